// Package link is the agent's interface to the kernel's network devices: the uplink, addresses,
// routes, per-device settings, veth pairs, offloads, tc filters of BPF programs, and the sockets of
// the host. Watch reports changes.
//
// Each file has one subject: link.go devices, address.go and route.go their addresses and routes,
// hop.go the kernel's next hops to the networks outside, connected.go routes to a device's own
// networks, hairpin.go what the host needs to reach OVN through the gateway bridge, veth.go and
// podpath.go the interfaces of pods, socket.go and raw.go sockets, tunnel.go the host's tunnels,
// watch.go events.
//
// Together with nicbridge it is the only importer of netlink outside the lab. Functions act on the
// network namespace of the calling thread unless they take another. All functions that change the
// system are idempotent. They keep no state, so they may be called concurrently.
package link
