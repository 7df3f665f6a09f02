package bpf

import (
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

const (
	stealName    = "ovnebpf_steal"
	tcActionShot = 2 // TC_ACT_SHOT of linux/pkt_cls.h
)

// Steal is a program that takes every packet at a device's ingress away from the kernel's stack, by
// dropping it there. OVS' userspace datapath reads a port through AF_PACKET, which copies packets
// before tc ingress. Without Steal, the kernel's stack would process the same packet a second time.
type Steal struct {
	prog   *ebpf.Program
	clsact ClsactFuncs
}

// NewSteal loads the program. It is attached as a clsact filter, which lives as long as the device
// and has no pin that could survive it.
func NewSteal(clsact ClsactFuncs) (*Steal, error) {
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: stealName, Type: ebpf.SchedCLS, License: "Apache-2.0",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, tcActionShot), asm.Return()},
	})
	if err != nil {
		return nil, fmt.Errorf("load program %s: %w", stealName, err)
	}

	return &Steal{prog: prog, clsact: clsact}, nil
}

// Attach makes the device's ingress drop every packet. It is idempotent.
func (s *Steal) Attach(ifindex int) error {
	return s.clsact.attach(ifindex, s.prog.FD(), stealName, false)
}

// Close releases the program. Attached filters stay in use.
func (s *Steal) Close() error { return s.prog.Close() }
