//go:build slow

package main

import "github.com/ovn-ebpf/ovn-ebpf/bpf"

// plantedTurns is the number of turns of a loop of three instructions. Together they are 3 % of a
// host_udp_rr, in which one packet runs the program.
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
