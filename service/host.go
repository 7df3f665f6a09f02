package service

import "net/netip"

// IsOwn reports whether a socket of a host that connects to the address reaches the host itself.
// has reports whether an interface of the host has the address; it need not know loopback
// addresses, which every host has: 127.0.0.0/8 and ::1. Connecting to the unspecified address means
// loopback. As the address of a frontend, it stands for all of these addresses.
//
// Controller, agent and programs share this definition of the host's addresses. is_own in
// bpf/sock_choose.h is the same in C, and TestSock_ownAddresses in bpf compares both.
func IsOwn(a netip.Addr, has func(netip.Addr) bool) bool {
	a = a.Unmap()

	return a.IsUnspecified() || a.IsLoopback() || has(a)
}
