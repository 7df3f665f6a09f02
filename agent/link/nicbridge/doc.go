// Package nicbridge makes a NIC a port of an OVS bridge and moves the host's network configuration
// from the NIC to the bridge's internal port, and back.
//
// Addresses, routes, rules and neighbours move as the kernel's own messages: the result of a dump
// is sent again with another interface, as iproute2's save and restore do. So attributes that this
// package does not know are preserved. Nothing is removed from the NIC before the bridge has it, so
// the host's connections survive.
//
// Before the first change, the package writes a snapshot and starts a watchdog, which is a separate
// process. The watchdog restores the snapshot in three cases: the mover dies, it exceeds its time,
// or the gateway no longer answers. Undo, watchdog, crash recovery and bridges-to-nics use the same
// function, which restores the snapshot from any intermediate state.
//
// Read Move in nicbridge.go first, then applyMove in move.go and moveBack in restore.go, which list
// the steps. Their tools are in steps.go and moveroutes.go. message.go explains the kernel's
// messages. SavedDevice is independent of moves: it saves and restores a device's configuration
// during a takeover of the node.
//
// These cannot be moved:
//
//   - sockets bound to the NIC (SO_BINDTODEVICE)
//   - multicast groups joined on the NIC
//   - routes with nexthop objects (the move is refused)
//   - temporary IPv6 addresses (they become plain ones with the same lifetime)
//   - addresses from stable_secret (they stay until they expire)
//
// For a default route from router advertisements, a copy with a metric one higher bridges the gap
// and expires. The kernel learns its own route at once, because it sends a solicitation.
package nicbridge
