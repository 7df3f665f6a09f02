// Package nicbridge makes a NIC a port of an OVS bridge and gives what the host
// had on the NIC to the bridge's internal port, and back.
//
// Addresses, routes, rules and neighbours are moved as the kernel's own
// messages: what a dump returns is sent again with another interface, as
// iproute2's save and restore do, so nothing is lost that this package does not
// know by name. Nothing is taken from the NIC before the bridge has it, so the
// host's connections go on.
//
// Before the first change everything is written to a snapshot, and a watchdog
// is started: a process of its own that puts the snapshot back when the mover
// dies, when it does not end in time, or when the gateway that answered before
// does not answer any more. Undoing, the watchdog, recovery after a crash and
// bridges-to-nics are one function, which brings any state in between back to
// the snapshot.
//
// What cannot be moved: sockets bound to the NIC (SO_BINDTODEVICE), multicast
// groups joined on it, routes by nexthop objects (refused), temporary IPv6
// addresses (they become plain ones with the same lifetime), and addresses made
// from stable_secret (they stay until they expire). Default routes learned from
// router advertisements are bridged over by a copy one metric worse, which
// expires; the kernel learns its own at once, as it solicits.
package nicbridge
