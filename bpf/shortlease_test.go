package bpf

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// An entry ends with its lease.
func TestShortcut_lease(t *testing.T) {
	const lease = 200 * time.Millisecond

	r := newShortRig(t, verdict.Direct, func(o *Options) { o.Shortcuts.Lease = lease })
	c := conn{v6, protoTCP, 40000, 50000, 30}

	out := c.segment(true, true, flagACK, 64)
	for range 3 {
		r.open(t, c)
		time.Sleep(lease + 20*time.Millisecond)

		got, _ := r.fromPod(t, out)
		got.expect(t, "pod", retNext, "", out)

		if in := r.arrive(t, c.segment(false, false, flagACK, 60)); in.reason != "snat_port" {
			t.Errorf("wire: %s", in.reason)
		}
	}
}

// A packet longer than any of the pod that OVS has passed goes through OVS first.
func TestShortcut_learnsLength(t *testing.T) {
	r := newShortRig(t, verdict.Direct)
	small, long := conn{v4, protoUDP, 40000, 50000, 30}, conn{v4, protoUDP, 40000, 50000, 1000}
	r.open(t, small)

	got, number := r.fromPod(t, long.segment(true, true, 0, 64))
	if got.reason != "" || number == 0 {
		t.Fatalf("by %q, slot %d", got.reason, number)
	}

	r.leave(t, number, long.segment(true, false, 0, 62))
	got, _ = r.fromPod(t, long.segment(true, true, 0, 64))
	got.expect(t, "again", retRedirect, "out_cached", long.segment(true, false, 0, 62))
}

// With shortcuts off nothing of them is loaded, attached or pinned, also after a load with them.
func TestShortcut_off(t *testing.T) {
	r := newShortRig(t, verdict.Direct)
	r.open(t, conn{v4, protoUDP, 40000, 50000, 30})

	off := r.node.open(t)
	if _, err := ReadShortcutCounts(r.pinDir); !errors.Is(err, ErrNoShortcuts) {
		t.Errorf("counts: %v", err)
	}

	if len(off.progs) != len(off.hooks()) {
		t.Errorf("%d programs for %d hooks", len(off.progs), len(off.hooks()))
	}

	for _, m := range []*ebpf.Map{off.objs.Shortcuts, off.objs.ShortPods, off.objs.PodReceived, off.objs.Slots} {
		if n := m.MaxEntries(); n != 1 {
			t.Errorf("%s has room for %d entries", m, n)
		}
	}

	r.must(t, func() error { return off.AttachPod(r.pod, podMTU, true) })

	names, err := filepath.Glob(filepath.Join(r.pinDir, "*pod*"))
	if err != nil || len(names) != 0 {
		t.Errorf("pinned: %v, %v", names, err)
	}

	r.must(t, func() error {
		found, err := link.QueryPrograms(link.QueryOptions{Target: r.pod, Attach: ebpf.AttachTCXIngress})
		if err == nil && len(found.Programs) != 0 {
			err = fmt.Errorf("%d programs on the pod's device", len(found.Programs))
		}

		if errors.Is(err, link.ErrNotSupported) || errors.Is(err, unix.EINVAL) { // no tcx
			return nil
		}

		return err
	})
}

// When a connection passes OVS again, an entry that OVS contradicts is counted, in each direction.
// Entries of an earlier epoch, and entries that ended long ago, are not counted.
func TestShortcut_mismatch(t *testing.T) {
	const justNow, longAgo = 10 * time.Millisecond, 1100 * time.Millisecond

	mismatched := func(r *shortRig) uint64 {
		t.Helper()

		c, err := ReadShortcutCounts(r.pinDir)
		if err != nil {
			t.Fatal(err)
		}

		return c.Mismatched
	}
	for _, f := range []family{v4, v6} {
		r := newShortRig(t, verdict.Direct)
		for i, tt := range []struct {
			name   string
			wrong  *uint8                 // origin of the entry that is changed
			change func(*gatewayShortcut) // to it
			ended  time.Duration          // before the connection passes OVS again; 0: justNow
			epoch  bool                   // raised in between
			moved  bool                   // OVS then translates the connection to another port
			want   uint64
		}{
			{name: "right"},
			{name: "pod's port", wrong: new(uint8(gatewayOriginORIGIN_POD)), change: func(s *gatewayShortcut) { s.Sport++ }, want: 1},
			{name: "pod's next hop", wrong: new(uint8(gatewayOriginORIGIN_POD)), change: func(s *gatewayShortcut) { s.Macs[5]++ }, want: 1},
			{name: "pod's TTL", wrong: new(uint8(gatewayOriginORIGIN_POD)), change: func(s *gatewayShortcut) { s.Hops++ }, want: 1},
			{name: "wire's address", wrong: new(uint8(gatewayOriginORIGIN_WIRE)), change: func(s *gatewayShortcut) { s.Dst.W[3]++ }, want: 1},
			{name: "wire's MAC", wrong: new(uint8(gatewayOriginORIGIN_WIRE)), change: func(s *gatewayShortcut) { s.Macs[0]++ }, want: 1},
			{name: "OVS changed silently", moved: true, want: 1},
			{name: "OVS changed, new epoch", epoch: true, moved: true},
			{name: "OVS changed, long unused", ended: longAgo, moved: true},
		} {
			t.Run(f.name+" "+tt.name, func(t *testing.T) {
				before := mismatched(r)
				// Each case has a connection of its own, as entries of earlier cases are still there.
				c := conn{f, protoTCP, uint16(40000 + i), uint16(50000 + 2*i), 30}

				after := c
				if tt.moved {
					after.out++
				}

				r.open(t, c)
				plant(t, r.g, func(k gatewayShortcutKey, s *gatewayShortcut) {
					if tt.wrong != nil && k.Origin == *tt.wrong {
						tt.change(s)
					}

					s.Until = uint64(monotonic(t) - cmp.Or(tt.ended, justNow))
				})

				if tt.epoch {
					r.must(t, r.g.ForgetShortcuts)
				}

				for range 2 {
					_, number := r.fromPod(t, after.segment(true, true, flagACK, 64))
					r.leave(t, number, after.segment(true, false, flagACK, 62))
					r.arrive(t, after.segment(false, false, flagACK, 60))
				}

				if got := mismatched(r) - before; got != tt.want {
					t.Errorf("%d mismatches, want %d", got, tt.want)
				}
			})
		}
	}
}

// plant changes all entries.
func plant(t *testing.T, g *Gateway, change func(gatewayShortcutKey, *gatewayShortcut)) {
	t.Helper()

	changed := map[gatewayShortcutKey]gatewayShortcut{}

	if err := eachEntry(g.objs.Shortcuts, func(k gatewayShortcutKey, s gatewayShortcut) {
		change(k, &s)
		changed[k] = s
	}); err != nil {
		t.Fatal(err)
	}

	for k, s := range changed {
		if err := g.objs.Shortcuts.Put(k, s); err != nil {
			t.Fatal(err)
		}
	}
}
