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
	base := Profile{Row: Row{Variant: "b", Instructions: 1000}, Operations: 2, Stacks: map[string]int{"geneve_rx [geneve]": 1500, "user": 500}}
	between := Profile{Row: Row{Variant: "m", Instructions: 1100}, Operations: 1, Stacks: map[string]int{"kfree;ovs_ct_execute [openvswitch]": 1100}}
	ours := Profile{Row: Row{Variant: "o", Instructions: 1190}, Operations: 1, Stacks: map[string]int{"kfree;geneve_rx [geneve]": 600, "user": 600}}

	got := CompareProfiles(base, between, ours)
	for _, want := range []string{
		"| part | b | m | o | more |",
		"| tunnel: Geneve and UDP encapsulation | 750 | 0 | 600 | -150 |",
		"| OVS: actions | 0 | 1100 | 0 | +0 |",
		"| sockets and system calls | 250 | 0 | 600 | +350 |",
		"| **counted** | **1000** | **1100** | **1200** | **+200** |",
		"| measured, median | 1000 | 1100 | 1190 | +190 |",
		"| `geneve_rx [geneve]` | 750 | 0 | 0 | -750 |",
		"| `kfree` | 0 | 1100 | 600 | +600 |",
	} {
		if !strings.Contains(got, want+"\n") {
			t.Errorf("no line %q in:\n%s", want, got)
		}
	}
}

func TestProfileCheck(t *testing.T) {
	for total, good := range map[int]bool{0: false, 1959: false, 1961: true, 2000: true, 2039: true, 2041: false} {
		p := Profile{Row: Row{Instructions: 1000}, Operations: 2, Stacks: map[string]int{"user": total}}
		if err := p.Check(); (err == nil) != good {
			t.Errorf("%d instructions in 2 operations of 1000: %v", total, err)
		}
	}

	if err := (Profile{Row: Row{Instructions: 1000}}).Check(); err == nil {
		t.Error("no operations: no error")
	}
}
