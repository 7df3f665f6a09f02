/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/*
 * Maps a frontend to a backend. The verifier checks non-static functions once instead of at each
 * call, but requires that they check their pointers.
 */
#ifndef __SOCK_CHOOSE_H
#define __SOCK_CHOOSE_H

#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "sock.h"

#define SCAN_SLOTS 64 /* slots that are searched for a backend that has moved */
#define ATTEMPTS 4
#define NS_PER_SEC 1000000000ull

enum answer {
	ANSWER_PASS, /* not a frontend */
	ANSWER_REFUSE,
	ANSWER_BACKEND,
};

static __always_inline int is_mapped(const struct addr *a)
{
	return !a->w[0] && !a->w[1] && a->w[2] == bpf_htonl(0xffff);
}

static __always_inline int back_eq(const struct back *a, const struct back *b)
{
	return a->addr.w[3] == b->addr.w[3] && a->port == b->port && a->addr.w[2] == b->addr.w[2] &&
	       a->addr.w[1] == b->addr.w[1] && a->addr.w[0] == b->addr.w[0];
}

/* Replaces the unspecified address, which means loopback to connect(). */
static __always_inline void replace_unspecified(struct addr *a)
{
	if (a->w[0] || a->w[1] || a->w[3])
		return;
	if (is_mapped(a))
		a->w[3] = bpf_htonl(0x7f000001);
	else if (!a->w[2])
		a->w[3] = bpf_htonl(1);
}

static __always_inline int is_loopback(const struct addr *a)
{
	if (is_mapped(a))
		return (a->w[3] & bpf_htonl(0xff000000)) == bpf_htonl(0x7f000000);
	return !a->w[0] && !a->w[1] && !a->w[2] && a->w[3] == bpf_htonl(1);
}

/*
 * Reports whether the host has the address. This is IsOwn of the Go package service, where
 * sock_addrs has the addresses of the host's interfaces, and replace_unspecified() has replaced the
 * unspecified address.
 */
static __always_inline int is_own(const struct addr *a)
{
	return is_loopback(a) || bpf_map_lookup_elem(&sock_addrs, a);
}

/* Finds the frontend of a destination. */
__noinline int find_front(const struct front_key *want, struct front *out)
{
	struct front_key key;
	struct addr own;
	struct front *f;

	if (!want || !out)
		return 0;

	key = *want; /* before Linux 6.2 a key must be on the function's own stack */
	f = bpf_map_lookup_elem(&sock_frontends, &key);

	/* a wildcard frontend matches all addresses of the host */
	if (!f) {
		own = key.addr;
		key.addr.w[0] = 0;
		key.addr.w[1] = 0;
		key.addr.w[2] = is_mapped(&own) ? own.w[2] : 0;
		key.addr.w[3] = 0;
		f = bpf_map_lookup_elem(&sock_frontends, &key);

		if (!f || !is_own(&own))
			return 0;
		if ((f->affinity & FRONT_NOT_LOOPBACK) && is_loopback(&own))
			return 0;
	}

	*out = *f;
	out->affinity &= ~FRONT_NOT_LOOPBACK;
	return 1;
}

/* Reports whether the slot of the choice's set has the chosen backend. */
static __always_inline int in_slot(const struct choice *c, __u32 slot)
{
	struct back_key key = { .set = c->set, .slot = slot };
	struct back *b;

	b = bpf_map_lookup_elem(&sock_backends, &key);
	return b && back_eq(b, &c->back);
}

/*
 * Reports whether the frontend still has this backend. If others were removed, it may have moved to
 * one of their slots.
 */
__noinline int has_backend(const struct front *f, struct choice *c)
{
	__u32 i;

	if (!f || !c || c->set != f->set)
		return 0;
	if (c->slot < f->count && in_slot(c, c->slot))
		return 1;

	for (i = 0; i < SCAN_SLOTS; i++) {
		if (i >= f->count)
			break;
		if (in_slot(c, i)) {
			c->slot = i;
			return 1;
		}
	}

	return 0;
}

/* Uses the backend of the last connections, unless the affinity has expired. */
__noinline int use_affinity(const struct front *f, struct choice *c)
{
	struct stuck *s;
	__u64 now;
	__u32 set;

	if (!f || !c)
		return 0;

	now = bpf_ktime_get_ns();
	set = f->set;
	s = bpf_map_lookup_elem(&sock_affinity, &set);
	if (!s || now - s->ns >= f->affinity * NS_PER_SEC)
		return 0;
	*c = s->choice;
	if (!has_backend(f, c))
		return 0;
	s->ns = now;
	return 1;
}

/* Stores the choice for later connections. */
static __always_inline void store_affinity(const struct choice *c)
{
	struct stuck s = { .ns = bpf_ktime_get_ns(), .choice = *c };
	__u32 set = c->set;

	bpf_map_update_elem(&sock_affinity, &set, &s, BPF_ANY);
}

/*
 * Selects a backend. An unconnected socket keeps its backend while that exists. Then its cookie
 * selects the next one, and not a random number, because all packets of an exchange must go to one
 * peer.
 */
__noinline int pick(const struct front *f, __u64 cookie, struct choice *c)
{
	struct back_key key = {};
	struct back *b;

	if (!f || !c || !f->count)
		return 0;
	if (f->affinity && use_affinity(f, c))
		return 1;

	key.set = f->set;
	if (cookie)
		/* a multiplicative hash, because cookies are consecutive numbers */
		key.slot = (__u32)(cookie * 0x9e3779b97f4a7c15ull >> 32) % f->count;
	else
		key.slot = bpf_get_prandom_u32() % f->count;
	b = bpf_map_lookup_elem(&sock_backends, &key);
	if (!b)
		return 0;

	c->back = *b;
	c->set = key.set;
	c->slot = key.slot;
	if (f->affinity)
		store_affinity(c);

	return 1;
}

/*
 * Chooses a backend for a destination. cookie 0: for a connection. Otherwise c contains the
 * socket's last choice on entry, or set 0.
 */
__noinline int choose(const struct front_key *want, __u64 cookie, struct choice *c)
{
	struct front f = {};
	int i;

	if (!want || !c)
		return ANSWER_PASS;

	/* retry, because a slot is empty only between two writes of Go */
	for (i = 0; i < ATTEMPTS; i++) {
		if (!find_front(want, &f))
			return ANSWER_PASS;
		if (!f.count)
			return ANSWER_REFUSE;
		if (cookie && c->set && has_backend(&f, c))
			return ANSWER_BACKEND;
		if (pick(&f, cookie, c))
			return ANSWER_BACKEND;
	}

	return ANSWER_REFUSE;
}

#endif /* __SOCK_CHOOSE_H */
