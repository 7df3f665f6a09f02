package bpf

import (
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

// tagger puts a VLAN tag on a frame and then runs a program on it. A test run
// has no way to set what reception sets when it takes a tag off; the kernel's
// own vlan_push leaves the same behind. The tag's protocol and TCI are in the
// control block; no protocol is no tag.
type tagger struct {
	progs map[string]*ebpf.Program // by hook
}

func newTagger(t testing.TB, g *Gateway) *tagger {
	t.Helper()

	tg := &tagger{progs: make(map[string]*ebpf.Program)}
	for _, h := range g.hooks() {
		tg.progs[h.name] = tagging(t, g.programOf(h))
	}

	return tg
}

// tagging returns a program that puts the tag on a frame and continues with prog.
func tagging(t testing.TB, prog *ebpf.Program) *ebpf.Program {
	t.Helper()

	calls, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.ProgramArray, KeySize: 4, ValueSize: 4, MaxEntries: 1})
	if err == nil {
		err = calls.Put(uint32(0), prog)
	}

	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { calls.Close() })

	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "GPL", Instructions: tagAndCall(calls)})
	if err != nil {
		t.Fatalf("%+v", err)
	}

	t.Cleanup(func() { p.Close() })

	return p
}

func tagAndCall(calls *ebpf.Map) asm.Instructions {
	const cb = 48 // in struct __sk_buff

	return asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R1),
		asm.LoadMem(asm.R2, asm.R1, cb, asm.Word),
		asm.JEq.Imm(asm.R2, 0, "call"),
		asm.LoadMem(asm.R3, asm.R1, cb+4, asm.Word),
		asm.FnSkbVlanPush.Call(),
		asm.Mov.Reg(asm.R1, asm.R6).WithSymbol("call"),
		asm.LoadMapPtr(asm.R2, calls.FD()),
		asm.Mov.Imm(asm.R3, 0),
		asm.FnTailCall.Call(),
		asm.Mov.Imm(asm.R0, 99), // no such call
		asm.Return(),
	}
}
