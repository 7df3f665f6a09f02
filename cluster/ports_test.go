package cluster_test

import (
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/cluster"
)

func TestParsePortRange(t *testing.T) {
	for s, want := range map[string]cluster.PortRange{
		"49152-65535": {First: 49152, Last: 65535}, "7-7": {First: 7, Last: 7},
		"65535-49152": {}, "0-10": {}, "49152": {}, "1-65536": {}, "": {}, "a-b": {}, "1-2-3": {}, "1-+2": {},
	} {
		got, err := cluster.ParsePortRange(s)
		if got != want || (err != nil) != (want == cluster.PortRange{}) {
			t.Errorf("%q: got %v, %v, want %v", s, got, err, want)
		}

		if err == nil && got.String() != s {
			t.Errorf("%q is formatted %q", s, got)
		}
	}
}

func TestPortRange_Set(t *testing.T) {
	r := cluster.PortRange{First: 1, Last: 2}
	if err := r.Set("3-1"); err == nil || r != (cluster.PortRange{First: 1, Last: 2}) {
		t.Errorf("after an error (%v) the range is %v", err, r)
	}

	if err := r.Set("3-4"); err != nil || r != (cluster.PortRange{First: 3, Last: 4}) {
		t.Errorf("got %v, %v", r, err)
	}
}

func TestPortRange_methods(t *testing.T) {
	r := cluster.PortRange{First: 10, Last: 20}

	for port, want := range map[uint16]bool{9: false, 10: true, 20: true, 21: false} {
		if r.Contains(port) != want {
			t.Errorf("%v contains %d: %t", r, port, !want)
		}
	}

	for o, want := range map[cluster.PortRange]bool{
		{First: 1, Last: 9}: false, {First: 1, Last: 10}: true, {First: 20, Last: 30}: true, {First: 21, Last: 30}: false,
		{First: 12, Last: 13}: true, {First: 1, Last: 100}: true,
	} {
		if r.Overlaps(o) != want || o.Overlaps(r) != want {
			t.Errorf("%v overlaps %v: %t", r, o, !want)
		}
	}

	if r.Len() != 11 || !r.IsValid() {
		t.Errorf("%v: %d ports, valid %t", r, r.Len(), r.IsValid())
	}

	for _, o := range []cluster.PortRange{{}, {First: 0, Last: 5}, {First: 5, Last: 4}} {
		if o.IsValid() {
			t.Errorf("%v is valid", o)
		}
	}

	if s := (cluster.PortRange{}).String(); s != "(none)" {
		t.Errorf("the zero range is formatted %q", s)
	}
}
