// Package link is the agent's view of the kernel's network devices: the
// uplink, addresses, routes, per-device settings, veth pairs, offloads, tc
// filters of programs that others loaded, and the sockets of the host.
//
// It and nicbridge below it are the only importers of netlink beside the lab. Functions act on the
// network namespace of the calling thread unless they are given another; all
// that change something are idempotent.
package link
