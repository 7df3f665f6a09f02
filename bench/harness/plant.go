//go:build slow

package main

import "github.com/ovn-ebpf/ovn-ebpf/bpf"

// plantedTurns are loops of three instructions: 3 % of a host_udp_rr, which has one packet that
// runs the program.
const plantedTurns = 172

// plant replaces the attached programs by slower ones, and detaches those of sockets, which other
// host tests ran without.
func (e *ebpf) plant() error {
	if e.sock != nil {
		if err := e.sock.Detach(); err != nil {
			return err
		}
	}
	e.open = func(o bpf.Options) (*bpf.Gateway, error) { return bpf.OpenSlow(o, plantedTurns) }
	return inNetns(nodeNS, e.attach)
}
