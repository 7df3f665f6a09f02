/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/*
 * Records what the rules look up on their path to a reason, in a dry run (explain.bpf.c defines
 * EXPLAIN). In all other programs note() is empty. The rules write nothing if DRY_RUN is 1.
 */
#ifndef __NOTE_H
#define __NOTE_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "types.h"

/* Kinds of lookups. explainstep.go describes each in words. */
enum asked {
	ASKED_ADDRESS,	/* kind of the address: enum addr_kind */
	ASKED_SERVICE,	/* owner of the frontend: enum service_owner */
	ASKED_RANGE,	/* whether the port is in the SNAT range */
	ASKED_GATE,	/* whether a host socket may use the port */
	ASKED_SOCKET,	/* whether a host socket owns the packet */
	ASKED_EXCHANGE, /* whether ns has the exchange */
	ASKED_TAKEOVER, /* whether takeover has the connection */
	ASKED_FRAGMENT, /* 1 + enum frag_owner; 0: the first is unknown */
	ASKED_PROTOCOL, /* whether the host uses it with that peer */
	ASKED_NETWORK,	/* kind of the address' network: enum network */
	WOULD_LEARN,	/* not a lookup: the exchange would be added to ns */
	WOULD_REMEMBER, /* not a lookup: a first fragment; 1 + enum frag_owner */
};

/* A lookup: its key, as far as it is of interest, and its answer. */
struct note {
	struct addr addr;
	__u64 ns;    /* last use of the entry; 0: none */
	__be16 port; /* or echo identifier; 0: not applicable */
	__u8 proto;  /* 0: not applicable */
	__u8 asked;  /* enum asked */
	__u8 answer; /* depends on asked */
	__u8 pad[3];
};
_Static_assert(sizeof(struct note) == 32, "note is shared with Go");

#ifdef EXPLAIN

#define DRY_RUN 1
#define MAX_NOTES 32

/* The result of a dry run. */
struct dry_run {
	__u32 reason; /* of the full path */
	__u32 quick;  /* of the short path; REASON_MAX: it leaves the packet to the full path */
	__u32 silent; /* nothing is recorded: the short path runs */
	__u32 count;  /* of notes; more than MAX_NOTES are not recorded */
	struct note notes[MAX_NOTES];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct dry_run);
} explanation SEC(".maps");

/*
 * Records a lookup. what has asked << 8 | answer, and where has port | proto << 16, because a
 * function has at most five arguments.
 */
static __noinline int note_down(__u32 what, __u32 where, const struct addr *addr, __u64 ns)
{
	struct dry_run *e;
	struct note *n;
	__u32 zero = 0, i;

	e = bpf_map_lookup_elem(&explanation, &zero);
	if (!e || e->silent)
		return 0;

	i = e->count;
	if (i >= MAX_NOTES)
		return 0;

	n = &e->notes[i];
	n->addr = *addr;
	n->ns = ns;
	n->asked = what >> 8;
	n->answer = what;
	n->port = where;
	n->proto = where >> 16;

	e->count = i + 1;
	return 0;
}

/* Records a lookup with its key (addr, port, proto). s is the entry that was found, or NULL. */
static __always_inline void note(__u8 asked, __u8 answer, const struct addr *addr, __be16 port,
				 __u8 proto, const struct seen *s)
{
	note_down(asked << 8 | answer, port | proto << 16, addr, s ? s->ns : 0);
}

#else

#ifndef DRY_RUN /* defined in monitor.bpf.c, which records nothing */
#define DRY_RUN 0
#endif
#define note(...)                                                                                  \
	do {                                                                                       \
	} while (0)

#endif

#endif /* __NOTE_H */
