package link

import (
	"context"
	"log/slog"
	"slices"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/ovn-ebpf/ovn-ebpf/agent/testnode"
)

// program loads a program that passes every packet.
func program(t *testing.T) int {
	t.Helper()

	code := []uint64{0xffffffff_000000b7, 0x95} // r0 = -1; exit
	license := []byte("GPL\x00")
	attr := struct {
		kind, count    uint32
		code, license  unsafe.Pointer
		level, size    uint32
		buffer         uint64
		version, flags uint32
	}{kind: 3 /* BPF_PROG_TYPE_SCHED_CLS */, count: 2, code: unsafe.Pointer(&code[0]), license: unsafe.Pointer(&license[0])}

	r, _, errno := unix.Syscall(unix.SYS_BPF, 5 /* BPF_PROG_LOAD */, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr))
	if errno != 0 {
		t.Fatal("load program:", errno)
	}

	fd := int(r)

	t.Cleanup(func() { unix.Close(fd) })

	return fd
}

func TestClsactDirections(t *testing.T) {
	veth(t, "tst3")

	dev, err := Get("tst3")
	if err != nil {
		t.Fatal(err)
	}

	fd := program(t)

	attached := func(name string) (in, out bool) {
		return ClsactAttached(dev.Index, name, false), ClsactAttached(dev.Index, name, true)
	}
	if in, out := attached("ours"); in || out {
		t.Errorf("device without clsact: ingress %t, egress %t", in, out)
	}

	must := func(err error) {
		t.Helper()

		if err != nil {
			t.Fatal(err)
		}
	}

	if _, in := ClsactPlace(dev.Index, "ours", true); in {
		t.Error("device without clsact: it has a place")
	}

	must(AttachClsact(dev.Index, fd, "foreign", true))

	for range 2 {
		must(AttachClsact(dev.Index, fd, "ours", true))
	}

	must(AttachClsact(dev.Index, fd, "later", true))

	for name, want := range map[string]int{"foreign": 0, "ours": 1, "later": 2} {
		if ahead, in := ClsactPlace(dev.Index, name, true); !in || ahead != want {
			t.Errorf("%s: attached %t, %d before it, want %d", name, in, ahead, want)
		}
	}

	must(DetachClsact(dev.Index, "later", true))

	if in, out := attached("ours"); in || !out {
		t.Errorf("after attaching to egress: ingress %t, egress %t", in, out)
	}

	must(AttachClsact(dev.Index, fd, "ours", false))

	got, err := ClsactFilters(func(name string) bool { return name == "ours" })
	must(err)

	for i := range got {
		if got[i].ProgID == 0 {
			t.Error("filter without a program's ID")
		}

		got[i].ProgID = 0
	}

	want := []ClsactFilter{{Name: "ours", Ifindex: dev.Index, Device: "tst3"}, {Name: "ours", Ifindex: dev.Index, Device: "tst3", Egress: true}}
	if !slices.Equal(got, want) {
		t.Errorf("filters %+v, want %+v", got, want)
	}

	must(DetachClsact(dev.Index, "ours", true))

	if in, out := attached("ours"); !in || out {
		t.Errorf("after detaching from egress: ingress %t, egress %t", in, out)
	}

	must(DetachClsact(dev.Index, "ours", false))

	if in, out := attached("foreign"); in || !out {
		t.Errorf("the filter of another: ingress %t, egress %t", in, out)
	}

	must(DetachClsact(dev.Index+1000, "ours", true))
}

func TestWatchFiltersAndReplug(t *testing.T) {
	veth(t, "tst4")

	dev, err := Get("tst4")
	if err != nil {
		t.Fatal(err)
	}

	if err := AttachClsact(dev.Index, program(t), "ours", true); err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	events := make(chan string, 4096)

	ended := make(chan error, 1)
	go func() {
		ended <- Watch(ctx, slog.New(slog.DiscardHandler), func(device string) { events <- device })
	}()

	until := func(want string) {
		t.Helper()

		limit := time.After(30 * time.Second)

		for {
			select {
			case got := <-events:
				if got == want {
					return
				}
			case <-limit:
				t.Fatalf("no event of %q", want)
			}
		}
	}
	until("") // from now on events are heard

	for _, step := range []struct {
		what string
		do   func()
	}{
		{"filter deleted", func() { testnode.Run(t, "tc", "filter", "del", "dev", "tst4", "egress") }},
		{"qdisc deleted", func() { testnode.Run(t, "tc", "qdisc", "del", "dev", "tst4", "clsact") }},
		{"MAC changed", func() { testnode.Run(t, "ip", "link", "set", "tst4", "address", "02:00:00:00:00:99") }},
		{"replaced", func() {
			testnode.Run(t, "ip", "link", "del", "tst4")
			testnode.Run(t, "ip", "link", "add", "tst4", "type", "veth", "peer", "name", "tst4p")
		}},
	} {
		t.Log(step.what)
		step.do()
		until("tst4")
	}

	cancel()

	if err := <-ended; err != nil {
		t.Error(err)
	}
}
