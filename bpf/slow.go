//go:build slow

package bpf

import (
	"errors"
	"fmt"
	"maps"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

// OpenSlow is Open with a loop in front of every program, of three instructions per turn once
// compiled. Only the benchmark harness uses it, to test that the CI gate detects slow programs. No
// product is built with this tag.
func OpenSlow(opts Options, turns int) (*Gateway, error) {
	spec, err := loadGateway()
	if err != nil {
		return nil, fmt.Errorf("read gateway programs: %w", err)
	}

	if err := prepareShortcuts(spec, opts); err != nil {
		return nil, fmt.Errorf("prepare shortcuts: %w", err)
	}

	for p := range maps.Values(spec.Programs) {
		p.Instructions = slow(p.Instructions, turns)
	}

	g := &Gateway{opts: opts, attacher: opts.attacher(), progs: make(map[string]*ebpf.Program)}
	if err := g.load(spec); err != nil {
		return nil, fmt.Errorf("load slow gateway programs: %w", err)
	}

	g.digest = newDigest(&g.objs.gatewayVariables)
	if err := errors.Join(g.SetConfig(opts.Config), g.restore()); err != nil {
		return nil, errors.Join(err, g.Close())
	}

	return g, nil
}

// slow inserts the loop. The first instruction keeps the name and type of the function.
func slow(program asm.Instructions, turns int) asm.Instructions {
	loop := asm.Instructions{
		asm.Mov.Imm(asm.R0, int32(turns)),
		asm.Sub.Imm(asm.R0, 1).WithSymbol("slow"),
		asm.JNE.Imm(asm.R0, 0, "slow"),
	}
	loop[0].Metadata, program[0].Metadata = program[0].Metadata, asm.Metadata{}

	return append(loop, program...)
}
