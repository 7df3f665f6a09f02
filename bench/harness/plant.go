//go:build slow

package main

import "github.com/ovn-ebpf/ovn-ebpf/bpf"

// plantedTurns are of three instructions: three in a hundred of a host_udp_rr, which
// has one packet that meets the program.
const plantedTurns = 172

// plant puts slower programs in the place of those attached, and takes those of the
// sockets away, which other tests of the host's did without.
func (e *ebpf) plant() error {
	if e.sock != nil {
		if err := e.sock.Detach(); err != nil {
			return err
		}
	}
	e.open = func(o bpf.Options) (*bpf.Gateway, error) { return bpf.OpenSlow(o, plantedTurns) }
	return inNetns(nodeNS, e.attach)
}
