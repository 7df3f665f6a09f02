package cloud_test

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/controller/cloud"
)

// Records differ if an agent would see a difference.
func TestRecordEqual(t *testing.T) {
	record := cloud.Record{
		VIF: "vif", Trunk: "t1", Network: "n1", MTU: 1442, Groups: []string{"all"},
		Gateways: []cloud.Gateway{{Address: netip.MustParsePrefix("10.244.0.1/28"), MAC: "fa:16:3e:00:00:01"}},
		Lines: []cloud.Line{
			{Port: "p2", Tag: 2, Addresses: []netip.Addr{netip.MustParseAddr("10.244.0.2")}, Groups: []string{"all"}},
			{Port: "p3", Tag: 3, Addresses: []netip.Addr{netip.MustParseAddr("10.244.0.3")}, Groups: []string{}},
			{Port: "p4", Tag: 4, Addresses: []netip.Addr{netip.MustParseAddr("10.244.0.4")}},
		},
	}

	for name, change := range map[string]func(*cloud.Record){
		"groups of new ports":       func(r *cloud.Record) { r.Groups = nil },
		"gateways":                  func(r *cloud.Record) { r.Gateways = nil },
		"port was repaired":         func(r *cloud.Record) { r.Lines[0].Port = "p5" },
		"port is held":              func(r *cloud.Record) { r.Lines[0].Held = true },
		"MAC":                       func(r *cloud.Record) { r.Lines[0].MAC = "fa:16:3e:00:00:02" },
		"other groups":              func(r *cloud.Record) { r.Lines[0].Groups = []string{"profile"} },
		"no groups, then unknown":   func(r *cloud.Record) { r.Lines[1].Groups = nil },
		"unknown groups, then none": func(r *cloud.Record) { r.Lines[2].Groups = []string{} },
	} {
		changed := record
		changed.Lines = slices.Clone(record.Lines)
		change(&changed)

		if changed.Equal(record) || record.Equal(changed) {
			t.Errorf("%s: the records are equal", name)
		}
	}

	if same := record; !same.Equal(record) {
		t.Error("a record differs from itself")
	}
}
