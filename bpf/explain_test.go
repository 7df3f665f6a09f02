package bpf

import (
	"bytes"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/ovn-ebpf/ovn-ebpf/cluster"
	"github.com/ovn-ebpf/ovn-ebpf/verdict"
	"github.com/ovn-ebpf/ovn-ebpf/verdict/corpus"
)

// deciding lists, by reason, steps of which one must have this answer if the reason depends on a
// table.
var deciding = map[string][]string{
	"service":            {"service: OVN's load balancers serve it"},
	"service_host":       {"service: a socket of the host serves it"},
	"service_local":      {"service: OVN's load balancers serve it", "service: a socket of the host serves it"},
	"snat_port":          {"socket port: no socket of the host has this port", "socket: no host socket owns the packet"},
	"host_socket":        {"socket: a host socket owns the packet"},
	"takeover":           {"takeover: a connection of OVN from before the takeover"},
	"icmp_echo_reply_ns": {"exchange: OVN has begun it"},
	"proto_ns":           {"exchange: OVN has begun it"},
	"host_owned":         {"socket: a host socket owns the packet", "protocol: the host uses it with this peer, or has a raw socket for it"},
	"icmp_error_echo":    {"exchange: OVN has begun it"},
	"proto_host":         {"protocol: the host uses it with this peer, or has a raw socket for it"},
	"fragment_ovn":       {"fragment: the first went to OVN"},
	"fragment":           {"fragment: the first went to the host"},
	"arp_vip":            {"address: a VIP of a service"},
	"arp_request":        {"address: the host's"},
	"arp_request_ovn":    {"address: OVN's alone"},
	"nd_vip":             {"address: a VIP of a service"},
	"nd_solicit":         {"address: the host's"},
	"nd_solicit_ovn":     {"address: OVN's alone"},
	"ovn_address":        {"address: OVN's alone"},
	"pmtud":              {"address: another node's"},
	"spoofed_source":     {"network: the cluster's own: never on the wire"},
	"out_learned":        {"learn: a packet would be remembered for its replies"},
}

// The explanation of every named case equals its decision, with the deciding entry. Explaining does
// not count, learn or delete.
func TestExplainer_Explain(t *testing.T) {
	for _, layout := range corpusLayouts {
		t.Run(layout.String(), func(t *testing.T) {
			r := newRig(t, layout)
			attach(t, r.node0, r.g)

			e := r.explainer(t)
			if e.Layout != layout {
				t.Fatalf("explains layout %s", e.Layout)
			}

			short := 0

			var before map[string][]byte

			unchanged := func() {
				t.Helper()

				if diff := cmp.Diff(before, r.contents(t)); diff != "" {
					t.Fatalf("changed by asking (-before +after):\n%s", diff)
				}
			}

			for _, c := range corpus.Cases() {
				if !c.In(layout) {
					continue
				}

				if r.node != c.Node {
					if before != nil {
						unchanged()
					}

					r.set(t, c.Node)
					before = r.contents(t)
				}

				got, err := r.explain(e, c.Dir, c.Frame)
				if err != nil {
					t.Fatalf("%s: %v", c.Name, err)
				}

				if got.Short {
					short++
				}

				if got.Reason != c.Want.String() || got.Verdict != c.Want.Verdict().String() {
					t.Errorf("%s: explained as %s to %s, is %s to %s", c.Name, got.Reason, got.Verdict, c.Want, c.Want.Verdict())
				}

				answers := deciding[got.Reason]

				said := func(s Step) bool { return slices.Contains(answers, s.Asked+": "+s.Answer) }
				if len(answers) > 0 && !slices.ContainsFunc(got.Steps, said) {
					t.Errorf("%s: decided by %s, but the steps are %v", c.Name, got.Reason, got.Steps)
				}
			}

			unchanged()

			if short == 0 {
				t.Error("no case took the short way")
			}
		})
	}
}

func (r *rig) explainer(t testing.TB) *Explainer {
	t.Helper()

	e, err := OpenExplainer(r.pinDir)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { e.Close() })

	return e
}

func (r *rig) explain(e *Explainer, side verdict.Direction, frame []byte) (got Explanation, err error) {
	err = r.do(func() (err error) {
		got, err = e.Explain(side, frame)
		return err
	})

	return got, err
}

// kernels are reasons of packets that the kernel sends by itself.
var kernels = map[string]bool{
	"multicast": true, "vlan": true, "nd_other": true, "pass_unconfigured": true,
	"bad_mac": true, "garp_guard": true, "neighbour_out": true, "no_uplink": true, "out": true, "host_out": true,
}

// contents returns all state that a packet may change.
func (r *rig) contents(t testing.TB) map[string][]byte {
	t.Helper()

	all := make(map[string][]byte)

	for name, m := range map[string]*ebpf.Map{"ns": r.g.objs.Ns, "frags": r.g.objs.Frags, "takeover": r.g.objs.Takeover} {
		var key, value []byte

		it := m.Iterate()
		for it.Next(&key, &value) {
			all[name+string(key)] = bytes.Clone(value)
		}

		if err := it.Err(); err != nil {
			t.Fatal(err)
		}
	}

	for reason := range counts(t, r.pinDir) {
		if !kernels[reason] {
			all["counter "+reason] = nil
		}
	}

	return all
}

// The programs' configuration is read back as it was written.
func TestConfigOf(t *testing.T) {
	for _, c := range corpus.Cases() {
		r := &rig{node0: &node{}, layout: verdict.Direct}

		want := r.config0(&c.Node.Config)
		if want.Local {
			want.SNATPorts = cluster.PortRange{}
		}

		want.Internal, want.External = nil, nil // have a table of their own

		got := configOf(want.cell())
		if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{}), cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("%s (-written +read):\n%s", c.Name, diff)
		}
	}
}

// A frame that the kernel drops before any program is not explained.
func TestExplainer_Explain_cutTag(t *testing.T) {
	r := newRig(t, verdict.Direct)
	attach(t, r.node0, r.g)

	e := r.explainer(t)
	for _, rest := range [][]byte{nil, {0}, {0, 7}, {0, 7, 8}} {
		if _, err := r.explain(e, verdict.FromWire, ether(nodeMAC, peerMAC, 0x8100, rest)); err == nil || !strings.Contains(err.Error(), "truncated") {
			t.Errorf("tag of %d bytes: %v", len(rest), err)
		}
	}
}

// Without programs there is no explanation.
func TestOpenExplainer_nothing(t *testing.T) {
	n := newNode(t)
	n.open(t)

	if _, err := OpenExplainer(n.pinDir); !errors.Is(err, ErrNotAttached) {
		t.Errorf("explained without a program: %v", err)
	}

	if _, err := OpenExplainer(t.TempDir() + "/none"); !errors.Is(err, ErrNotAttached) {
		t.Errorf("explained without pins: %v", err)
	}
}
