package bpf

import (
	"errors"
	"path/filepath"
	"slices"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// A node changes between all layouts without leftovers.
func TestGateway_layoutChange(t *testing.T) {
	hooks := map[verdict.Layout][]string{
		verdict.Direct:    {"bridge_ingress", "uplink_ingress"},
		verdict.Bridged:   {"bridge_egress", "bridge_ingress", "uplink_egress", "uplink_ingress"},
		verdict.Dedicated: {"uplink_egress", "uplink_ingress"},
	}

	for _, mode := range attachModes {
		t.Run(mode.name, func(t *testing.T) {
			if !mode.clsact {
				needTCX(t)
			}

			n := newLiveNode(t)
			for _, layout := range []verdict.Layout{verdict.Direct, verdict.Bridged, verdict.Direct, verdict.Dedicated, verdict.Bridged, verdict.Direct} {
				c := n.config()
				c.Layout = layout
				g := n.open(t, func(o *Options) { o.Config, o.ForceClsact = c, mode.clsact })
				n.must(t, func() error { return errors.Join(g.AttachBridge(n.bridge), g.AttachUplink(n.uplink)) })
				wantAttached(t, n, g, true, true)

				if diff := cmp.Diff(hooks[layout], pinnedHooks(t, n)); diff != "" {
					t.Fatalf("%s (-want +got):\n%s", layout, diff)
				}

				if layout == verdict.Direct {
					traffic(t, n)
				}

				g.Close()
			}

			g := n.open(t, func(o *Options) { o.ForceClsact = mode.clsact })
			if err := g.Detach(); err != nil {
				t.Fatal(err)
			}

			wantNothing(t, n)
		})
	}
}

// pinnedHooks returns the hooks with a pin and a program on a device.
func pinnedHooks(t *testing.T, n *node) []string {
	t.Helper()

	var names []string

	for _, h := range allHooks {
		pins, err := filepath.Glob(filepath.Join(n.pinDir, h.name+"*"))
		if err != nil {
			t.Fatal(err)
		}

		ifindex := n.uplink
		if h.onBridge {
			ifindex = n.bridge
		}

		var running int

		n.must(t, func() error {
			all, err := link.QueryPrograms(link.QueryOptions{Target: ifindex, Attach: h.attachType()})
			if err == nil {
				running = len(all.Programs)
			}

			if n.clsactAttached(ifindex, h.name, h.egress) {
				running++
			}

			if errors.Is(err, unix.EINVAL) {
				return nil // before 6.6 there is no tcx to ask for
			}

			return err
		})

		if running != len(pins) {
			t.Fatalf("hook %s: %d programs run, pins %v", h.name, running, pins)
		}

		if len(pins) == 1 {
			names = append(names, h.name)
		}
	}

	slices.Sort(names)

	return names
}

func TestGateway_SetConfig_keepsLayout(t *testing.T) {
	n := newNode(t)
	c := n.config()

	c.Layout = verdict.Dedicated
	if err := n.open(t).SetConfig(c); err == nil {
		t.Error("no error for another layout")
	}
}

// Attached detects changes of the hooks by other programs.
func TestGateway_Attached_notices(t *testing.T) {
	for _, mode := range attachModes {
		t.Run(mode.name, func(t *testing.T) {
			if !mode.clsact {
				needTCX(t)
			}

			n := newLiveNode(t)
			c := n.config()
			c.Layout = verdict.Bridged
			g := n.open(t, func(o *Options) { o.Config, o.ForceClsact = c, mode.clsact })
			attach(t, n, g)
			wantAttached(t, n, g, true, true)
			n.must(t, func() error {
				if mode.clsact {
					return n.clsactDetach(n.uplink, uplinkEgress, true)
				}

				l, err := link.LoadPinnedLink(filepath.Join(n.pinDir, uplinkEgress), nil)
				if err != nil {
					return err
				}

				return errors.Join(l.Detach(), l.Close())
			})
			wantAttached(t, n, g, false, true)
			attach(t, n, g)
			wantAttached(t, n, g, true, true)
		})
	}
}

func TestGateway_Ahead(t *testing.T) {
	needTCX(t)
	n := newLiveNode(t)
	g := n.open(t)
	attach(t, n, g)

	other, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.SchedCLS, License: "GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, -1), asm.Return()},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()

	for i, anchor := range []link.Anchor{link.Tail(), link.Head()} {
		n.must(t, func() error {
			l, err := link.AttachTCX(link.TCXOptions{Interface: n.uplink, Program: other, Attach: ebpf.AttachTCXIngress, Anchor: anchor})
			if err != nil {
				return err
			}
			defer l.Close()

			got, err := g.Ahead(n.uplink)
			if err == nil && got != i {
				t.Errorf("%d programs ahead, want %d", got, i)
			}

			return err
		})
	}
}

// needTCX skips a test on kernels before 6.6, which lack tcx.
func needTCX(t *testing.T) {
	t.Helper()
	n := newNamespace(t)
	lo := n.up(t, "lo")

	err := n.do(func() error {
		_, err := link.QueryPrograms(link.QueryOptions{Target: lo, Attach: ebpf.AttachTCXIngress})
		return err
	})
	if err != nil {
		t.Skipf("kernel has no tcx: %v", err)
	}
}
