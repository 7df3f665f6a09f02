/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/*
 * What a dry run (explain.bpf.c) writes down on the way to a reason. In the
 * programs that run there is nothing of it.
 */
#ifndef __NOTE_H
#define __NOTE_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "types.h"

/* What was asked. explain.go says each in words. */
enum asked {
	ASKED_ADDRESS, /* whose the address is: enum addr_kind */
	ASKED_SERVICE, /* who serves the front end: enum service_owner */
	ASKED_RANGE,   /* whether the port is in the SNAT range */
	ASKED_GATE,    /* whether a socket of the host may have the port */
	ASKED_SOCKET,  /* whether one owns the packet */
	ASKED_EXCHANGE,
	ASKED_TAKEOVER,
	ASKED_FRAGMENT, /* 1 + enum frag_owner; 0: the first is not known */
	ASKED_PROTOCOL, /* whether the host uses it with that peer */
	ASKED_NETWORK,	/* what the network of the address is: enum network */
	WOULD_LEARN,
	WOULD_REMEMBER, /* 1 + enum frag_owner */
};

struct note {
	struct addr addr;
	__u64 ns; /* when the entry was last used */
	__be16 port;
	__u8 proto;
	__u8 asked;
	__u8 answer;
	__u8 pad[3];
};
_Static_assert(sizeof(struct note) == 32, "note is shared with Go");

#ifdef EXPLAIN

#define DRY_RUN 1
#define MAX_NOTES 32

struct dry_run {
	__u32 reason;
	__u32 quick; /* of the short way; REASON_MAX: it left it to the full way */
	__u32 silent;
	__u32 count;
	struct note notes[MAX_NOTES];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct dry_run);
} explanation SEC(".maps");

/* Arguments are packed: there may be five. */
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

static __always_inline void note(__u8 asked, __u8 answer, const struct addr *addr, __be16 port,
				 __u8 proto, const struct seen *s)
{
	note_down(asked << 8 | answer, port | proto << 16, addr, s ? s->ns : 0);
}

#else

#ifndef DRY_RUN /* monitor.bpf.c has it, and takes no notes */
#define DRY_RUN 0
#endif
#define note(...)                                                                                  \
	do {                                                                                       \
	} while (0)

#endif

#endif /* __NOTE_H */
