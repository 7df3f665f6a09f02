package bench

import (
	"strings"
	"testing"
)

func TestPartOf(t *testing.T) {
	for stack, want := range map[string]string{
		"bpf_prog_0123456789abcdef_uplink_ingress [bpf];tcx_run;sch_handle_ingress.constprop.0": "our programs",
		"memcpy;ovs_flow_key_extract [openvswitch];ovs_vport_receive [openvswitch]":             "OVS: flow key and lookup",
		"do_execute_actions [openvswitch];ovs_execute_actions [openvswitch]":                    "OVS: actions",
		"kfree;nf_conntrack_in [nf_conntrack];ovs_ct_execute [openvswitch]":                     "conntrack and NAT",
		"geneve_rx [geneve]": "tunnel: Geneve and UDP encapsulation",
		"user":               "sockets and system calls",
		"idle":               otherPart,
	} {
		if got := partOf(stack); got != want {
			t.Errorf("%s is of %q, want %q", stack, got, want)
		}
	}
}

func TestCompareProfiles(t *testing.T) {
	base := Profile{Row: Row{Variant: "b", Instructions: 1000}, Stacks: map[string]int{"geneve_rx [geneve]": 3, "user": 1}}
	ours := Profile{Row: Row{Variant: "o", Instructions: 1200}, Stacks: map[string]int{"kfree;geneve_rx [geneve]": 1, "user": 1}}
	got := CompareProfiles(base, ours)
	for _, want := range []string{
		"| tunnel: Geneve and UDP encapsulation | 750 | 600 | -150 |",
		"| sockets and system calls | 250 | 600 | +350 |",
		"| **all** | **1000** | **1200** | **+200** |",
		"| `geneve_rx [geneve]` | 750 | 0 | -750 |",
		"| `kfree` | 0 | 600 | +600 |",
	} {
		if !strings.Contains(got, want+"\n") {
			t.Errorf("no line %q in:\n%s", want, got)
		}
	}
}
