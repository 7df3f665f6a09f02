// Package link is the agent's interface to the kernel's network devices: the uplink, addresses,
// routes, per-device settings, veth pairs, offloads, tc filters of foreign programs, and the
// sockets of the host.
//
// Together with nicbridge it is the only importer of netlink outside the lab. Functions act on the
// network namespace of the calling thread unless they take another. All functions that change the
// system are idempotent.
package link
