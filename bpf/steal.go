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

// Steal is a program that drops every packet at a device's ingress. On OVS's
// userspace datapath a port is read through AF_PACKET, which has its copy
// before tc ingress; without Steal the kernel's stack would handle the same
// packet a second time.
type Steal struct {
	prog   *ebpf.Program
	clsact ClsactFuncs
}

// NewSteal loads the program. It is attached as a clsact filter: that lives as
// long as the device and needs no pin that could outlive it.
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

// Attach makes the device's ingress drop everything; it is idempotent.
func (s *Steal) Attach(ifindex int) error {
	return s.clsact.attach(ifindex, s.prog.FD(), stealName, false)
}

// Close frees the program; filters that use it go on.
func (s *Steal) Close() error { return s.prog.Close() }
