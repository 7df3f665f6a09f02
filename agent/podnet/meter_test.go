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

// TestMeterCountsPods: a pod's packets are reported under its name while it exists.
func TestMeterCountsPods(t *testing.T) {
	r := newRig(t)
	m := &Meter{Dir: r.Dir, Most: 10}
	read := func() map[string]Traffic {
		t.Helper()
		all, more, err := m.Read()
		if err != nil || more != 0 {
			t.Fatalf("%d more, error %v", more, err)
		}
		of := map[string]Traffic{}
		for _, p := range all {
			of[p.Namespace+"/"+p.Pod+"/"+p.Interface] = p
		}
		return of
	}
	if got := read(); len(got) != 0 {
		t.Errorf("without pods: %+v", got)
	}
	a, b := newPod(t, "c-a", "a", 3), newPod(t, "c-b", "b", 4)
	r.add(t, a)
	r.add(t, b)
	before := read()
	traffic(t, r, a)
	const pings, size = 2, 98 // what traffic sends
	after := read()
	for _, pod := range []string{"default/a/eth0", "default/b/eth0"} {
		was, now := before[pod], after[pod]
		if now.Sent.Packets < was.Sent.Packets+pings || now.Received.Packets < was.Received.Packets+pings ||
			now.Sent.Bytes < was.Sent.Bytes+pings*size || now.Received.Bytes < was.Received.Bytes+pings*size {
			t.Errorf("%s: before %+v, after %+v", pod, was, now)
		}
		if now.Sent.Dropped != was.Sent.Dropped || now.Received.Dropped != was.Received.Dropped {
			t.Errorf("%s: what OVS took counts as dropped: before %+v, after %+v", pod, was, now)
		}
	}
	if err := r.Del(t.Context(), "c-a", "eth0"); err != nil {
		t.Fatal(err)
	}
	if got := read(); len(got) != 1 || got["default/b/eth0"].Pod != "b" || len(m.owners) != 1 {
		t.Errorf("one deleted: %+v, %d owners", got, len(m.owners))
	}
}
