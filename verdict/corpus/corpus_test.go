package corpus

import (
	"slices"
	"testing"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

const now = 2 * time.Hour

// The corpus has cases enough, every reason among them, and the model gives
// each the reason that its row says.
func TestCases(t *testing.T) {
	cases := Cases()

	names, seen := make(map[string]bool), make(map[verdict.Reason]bool)
	for _, c := range cases {
		if names[c.Name] {
			t.Errorf("two cases are called %q", c.Name)
		}

		names[c.Name], seen[c.Want] = true, true
		if got := c.Node.Model(now).Decide(c.Dir, verdict.Parse(c.Frame), now); got.Reason != c.Want {
			t.Errorf("%s: decided by %s, want %s\nframe %x", c.Name, got.Reason, c.Want, c.Frame)
		}
	}

	if len(cases) < 400 {
		t.Errorf("%d cases, want 400", len(cases))
	}

	for _, r := range verdict.Rules() {
		if !seen[r.Reason] && !bound[r.Reason] {
			t.Errorf("no case of %s", r.Name)
		}
	}

	for _, l := range []verdict.Layout{verdict.Direct, verdict.Bridged, verdict.Dedicated} {
		n := 0

		for _, c := range cases {
			if c.In(l) {
				n++
			}
		}

		t.Logf("%d cases of %s", n, l)
	}
}

// bound are reasons that need an entry for a device: TestShortcut_agreesWithModel of package bpf
// has their cases.
var bound = map[verdict.Reason]bool{verdict.SNATCached: true, verdict.ServiceCached: true, verdict.OutCached: true}

// A node need be set up once for all of its cases, in any order.
func TestCases_doNotDisturb(t *testing.T) {
	forward := Cases()
	backward := slices.Clone(forward)
	slices.Reverse(backward)

	for _, order := range [][]Case{forward, backward} {
		var (
			node *Node
			m    verdict.Model
		)

		set := make(map[*Node]bool)

		for _, c := range order {
			if c.Node != node {
				if set[c.Node] {
					t.Fatalf("the cases of %s are not together", c.Node.Name)
				}

				node, m = c.Node, c.Node.Model(now)
				set[node] = true
			}

			d := m.Decide(c.Dir, verdict.Parse(c.Frame), now)
			m.Tables.Apply(d, now)

			if d.Reason != c.Want {
				t.Errorf("%s: decided by %s after others, want %s", c.Name, d.Reason, c.Want)
			}
		}
	}
}

// Frames are what they are called: those that are not mangled are well formed,
// and tags come off.
func TestCases_wellFormedFrames(t *testing.T) {
	for _, c := range Cases() {
		f := verdict.Parse(c.Frame)

		ip := f.Type == EtherIPv4 || f.Type == EtherIPv6 || f.Type == EtherARP
		if ip && !f.Whole && !c.Mangled {
			t.Errorf("%s is not well formed", c.Name)
		}

		proto, tci, rest := Untag(c.Frame)
		if (proto != 0) != f.Tagged || f.Tagged && len(rest) != len(c.Frame)-4 {
			t.Errorf("%s: taking tag %x off left %d of %d bytes", c.Name, proto, len(rest), len(c.Frame))
		}

		if proto == EtherVLAN && tci&0xfff != f.VID {
			t.Errorf("%s: tag %d came off, the model reads %d", c.Name, tci&0xfff, f.VID)
		}
	}
}
