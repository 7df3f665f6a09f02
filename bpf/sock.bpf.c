// clang-format off
//go:build ignore

/* clang-format on */
// SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0)
/*
 * Host to Service: translates the sockets of the host's network namespace when they connect or
 * send. A socket that queries its peer sees the frontend. No packet is modified.
 *
 *   connect      replaces the frontend by a backend, and stores both in sock_peers (TCP and UDP)
 *   sendmsg      does the same for each packet of an unconnected UDP socket, with sock_exchanges
 *   recvmsg      replaces the backend, as the source of a UDP packet, by the frontend
 *   getpeername  does the same for the peer of a connected socket
 *
 * Each hook has a program for IPv4 and one for IPv6. A program returns 1 to let the call continue,
 * and 0 to refuse it.
 */
#include <linux/bpf.h>
#include <linux/errno.h>
#include <linux/in.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "sock.h"
#include "sock_choose.h"

char _license[] SEC("license") = "GPL";

const volatile __u64 host_netns = 0;
const volatile __u8 has_set_retval = 0; /* since Linux 6.1 for these hooks */

/* Reports whether the socket is a TCP or UDP socket of the host's network namespace. */
static __always_inline int is_translated(struct bpf_sock_addr *ctx)
{
	return (ctx->protocol == IPPROTO_TCP || ctx->protocol == IPPROTO_UDP) &&
	       bpf_get_netns_cookie(ctx) == host_netns;
}

/* load4 and load6 read the address of the call, store4 and store6 replace it. */
static __always_inline void load4(struct bpf_sock_addr *ctx, struct back *b)
{
	b->addr.w[0] = 0;
	b->addr.w[1] = 0;
	b->addr.w[2] = bpf_htonl(0xffff);
	b->addr.w[3] = ctx->user_ip4;
	b->port = ctx->user_port;
	b->pad = 0;
}

static __always_inline void load6(struct bpf_sock_addr *ctx, struct back *b)
{
	b->addr.w[0] = ctx->user_ip6[0];
	b->addr.w[1] = ctx->user_ip6[1];
	b->addr.w[2] = ctx->user_ip6[2];
	b->addr.w[3] = ctx->user_ip6[3];
	b->port = ctx->user_port;
	b->pad = 0;
}

static __always_inline void store4(struct bpf_sock_addr *ctx, const struct back *b)
{
	ctx->user_ip4 = b->addr.w[3];
	ctx->user_port = b->port;
}

static __always_inline void store6(struct bpf_sock_addr *ctx, const struct back *b)
{
	ctx->user_ip6[0] = b->addr.w[0];
	ctx->user_ip6[1] = b->addr.w[1];
	ctx->user_ip6[2] = b->addr.w[2];
	ctx->user_ip6[3] = b->addr.w[3];
	ctx->user_port = b->port;
}

/* Refuses as a port without a listener does. Old kernels can only return EPERM. */
static __always_inline int refuse(void)
{
	if (has_set_retval)
		bpf_set_retval(-ECONNREFUSED);
	return 0;
}

/* Stores the peer that a socket connects to, for later queries. */
static __always_inline void set_peer(struct bpf_sock_addr *ctx, const struct back *front,
				     const struct back *back)
{
	struct bpf_sock *sk = ctx->sk;
	struct peer *p;

	if (!sk)
		return;
	p = bpf_sk_storage_get(&sock_peers, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (!p)
		return;
	p->front = *front;
	p->back = *back;
	if (ctx->protocol == IPPROTO_UDP) {
		__u64 cookie = bpf_get_socket_cookie(ctx);

		bpf_map_update_elem(&sock_connected, &cookie, back, BPF_ANY);
	}
}

/* Deletes the peer of an earlier connect, because a socket may connect again. */
static __always_inline void clear_peer(struct bpf_sock_addr *ctx)
{
	struct bpf_sock *sk = ctx->sk;

	if (sk)
		bpf_sk_storage_delete(&sock_peers, sk);
	if (ctx->protocol == IPPROTO_UDP) {
		__u64 cookie = bpf_get_socket_cookie(ctx);

		bpf_map_delete_elem(&sock_connected, &cookie);
	}
}

/*
 * Reports whether the agent has exempted the socket (ExemptSocket). Only sockets at a frontend need
 * this lookup.
 */
static __always_inline int is_exempt(struct bpf_sock_addr *ctx)
{
	__u64 cookie;

	if (ctx->protocol != IPPROTO_TCP)
		return 0;
	cookie = bpf_get_socket_cookie(ctx);
	return !!bpf_map_lookup_elem(&sock_exempt, &cookie);
}

/* Replaces dst, the destination of connect(), by a backend if it is a frontend. */
static __noinline int translate_connect(struct bpf_sock_addr *ctx, struct back *dst)
{
	struct front_key want = { .addr = dst->addr, .port = dst->port, .proto = ctx->protocol };
	struct choice c = {};
	int answer;
	struct back front;

	replace_unspecified(&want.addr);
	answer = choose(&want, 0, &c);
	if (answer != ANSWER_PASS && is_exempt(ctx))
		answer = ANSWER_PASS;

	if (answer != ANSWER_BACKEND) {
		clear_peer(ctx);
		return answer;
	}

	front = (struct back){ .addr = want.addr, .port = want.port };
	set_peer(ctx, &front, &c.back);
	*dst = c.back;
	return answer;
}

/*
 * Stores both directions of an exchange: the backend of a frontend, and the frontend of a backend.
 * Usually both already exist. known: the first one does.
 */
static __noinline void remember(__u64 cookie, const struct back *front, const struct choice *c,
				int known)
{
	struct exchange_key key = { .cookie = cookie, .peer = *front };
	struct choice requested = { .back = *front };
	struct choice *old;

	if (!known)
		bpf_map_update_elem(&sock_exchanges, &key, c, BPF_ANY);

	key.peer = c->back;
	key.reply = 1;
	old = bpf_map_lookup_elem(&sock_exchanges, &key);
	if (!old || !back_eq(&old->back, front))
		bpf_map_update_elem(&sock_exchanges, &key, &requested, BPF_ANY);
}

/* The same for a packet of an unconnected UDP socket, which keeps its backend. */
static __noinline int translate_send(struct bpf_sock_addr *ctx, struct back *dst)
{
	struct front_key want = { .addr = dst->addr, .port = dst->port, .proto = IPPROTO_UDP };
	struct exchange_key key = { .cookie = bpf_get_socket_cookie(ctx) };
	struct choice c = {}, *last;
	int answer;
	__u32 slot = ~0u;

	replace_unspecified(&want.addr);
	key.peer = (struct back){ .addr = want.addr, .port = want.port };
	last = bpf_map_lookup_elem(&sock_exchanges, &key);
	if (last) {
		c = *last;
		slot = c.slot;
	}

	answer = choose(&want, key.cookie, &c);
	if (answer != ANSWER_BACKEND)
		return answer;

	remember(key.cookie, &key.peer, &c,
		 last && slot == c.slot && back_eq(&last->back, &c.back));
	*dst = c.back;
	return answer;
}

/* Replaces src, a peer of the socket, by the frontend for which the socket got it as backend. */
static __noinline int restore_frontend(struct bpf_sock_addr *ctx, struct back *src)
{
	struct bpf_sock *sk = ctx->sk;
	struct exchange_key key = { .peer = *src, .reply = 1 };
	struct choice *requested;
	struct peer *p;

	if (sk) {
		p = bpf_sk_storage_get(&sock_peers, sk, 0, 0);
		if (p && back_eq(&p->back, src)) {
			*src = p->front;
			return 1;
		}
	}

	if (ctx->protocol != IPPROTO_UDP)
		return 0;
	key.cookie = bpf_get_socket_cookie(ctx);
	requested = bpf_map_lookup_elem(&sock_exchanges, &key);
	if (!requested)
		return 0;

	*src = requested->back;
	return 1;
}

SEC("cgroup/connect4")
int sock_connect4(struct bpf_sock_addr *ctx)
{
	struct back dst;
	int answer;

	if (!is_translated(ctx))
		return 1;

	load4(ctx, &dst);
	answer = translate_connect(ctx, &dst);
	if (answer == ANSWER_REFUSE)
		return refuse();
	if (answer == ANSWER_BACKEND)
		store4(ctx, &dst);
	return 1;
}

SEC("cgroup/connect6")
int sock_connect6(struct bpf_sock_addr *ctx)
{
	struct back dst;
	int answer;

	if (!is_translated(ctx))
		return 1;

	load6(ctx, &dst);
	answer = translate_connect(ctx, &dst);
	if (answer == ANSWER_REFUSE)
		return refuse();
	if (answer == ANSWER_BACKEND)
		store6(ctx, &dst);
	return 1;
}

SEC("cgroup/sendmsg4")
int sock_sendmsg4(struct bpf_sock_addr *ctx)
{
	struct back dst;
	int answer;

	if (!is_translated(ctx))
		return 1;

	load4(ctx, &dst);
	answer = translate_send(ctx, &dst);
	if (answer == ANSWER_REFUSE)
		return refuse();
	if (answer == ANSWER_BACKEND)
		store4(ctx, &dst);
	return 1;
}

SEC("cgroup/sendmsg6")
int sock_sendmsg6(struct bpf_sock_addr *ctx)
{
	struct back dst;
	int answer;

	if (!is_translated(ctx))
		return 1;

	load6(ctx, &dst);
	answer = translate_send(ctx, &dst);
	if (answer == ANSWER_REFUSE)
		return refuse();
	if (answer == ANSWER_BACKEND)
		store6(ctx, &dst);
	return 1;
}

/* Makes the socket see the frontend as its peer. */
static __always_inline int show_frontend4(struct bpf_sock_addr *ctx)
{
	struct back src;

	if (!is_translated(ctx))
		return 1;
	load4(ctx, &src);
	if (restore_frontend(ctx, &src))
		store4(ctx, &src);
	return 1;
}

static __always_inline int show_frontend6(struct bpf_sock_addr *ctx)
{
	struct back src;

	if (!is_translated(ctx))
		return 1;
	load6(ctx, &src);
	if (restore_frontend(ctx, &src))
		store6(ctx, &src);
	return 1;
}

SEC("cgroup/recvmsg4")
int sock_recvmsg4(struct bpf_sock_addr *ctx)
{
	return show_frontend4(ctx);
}

SEC("cgroup/recvmsg6")
int sock_recvmsg6(struct bpf_sock_addr *ctx)
{
	return show_frontend6(ctx);
}

SEC("cgroup/getpeername4")
int sock_getpeername4(struct bpf_sock_addr *ctx)
{
	return show_frontend4(ctx);
}

SEC("cgroup/getpeername6")
int sock_getpeername6(struct bpf_sock_addr *ctx)
{
	return show_frontend6(ctx);
}
