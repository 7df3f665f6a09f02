package podnet

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
)

// TestMeterTakesOldest: the oldest interfaces are reported; of two of one pod the later one; none
// without an owner.
func TestMeterTakesOldest(t *testing.T) {
	device := func(name string, index int, packets uint64) link.PodTraffic {
		return link.PodTraffic{Name: name, Index: index, Received: link.Traffic{Packets: packets}}
	}
	owner := func(host string) (Owner, bool) {
		o, known := map[string]Owner{"h1": {"b", "one", "eth0"}, "h2": {"a", "two", "eth0"}, "h2again": {"a", "two", "eth0"}, "h3": {"c", "three", "eth0"}}[host]
		return o, known
	}
	devices := []link.PodTraffic{device("h3", 30, 3), device("h2again", 25, 9), device("h1", 10, 1), device("h2", 20, 2), device("unowned", 5, 7)}
	two := Traffic{Owner: Owner{"a", "two", "eth0"}, Received: link.Traffic{Packets: 9}}
	one := Traffic{Owner: Owner{"b", "one", "eth0"}, Received: link.Traffic{Packets: 1}}

	three := Traffic{Owner: Owner{"c", "three", "eth0"}, Received: link.Traffic{Packets: 3}}
	for _, tt := range []struct {
		most, more int
		want       []Traffic
	}{{3, 0, []Traffic{two, one, three}}, {2, 1, []Traffic{two, one}}, {1, 2, []Traffic{one}}} {
		got, owners, more := meter(devices, tt.most, owner)
		if diff := cmp.Diff(tt.want, got); diff != "" || more != tt.more || len(owners) != 4 {
			t.Errorf("at most %d: %d more, %d owners %s", tt.most, more, len(owners), diff)
		}
	}
}
