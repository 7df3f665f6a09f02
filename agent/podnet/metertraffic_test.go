package podnet_test

import (
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/agent/podnet"
)

// TestMeterCountsPods: a pod's packets are reported under its name while it exists.
func TestMeterCountsPods(t *testing.T) {
	r := newRig(t)
	m := &podnet.Meter{Dir: r.Dir, Max: 10}

	read := func() map[string]podnet.Traffic {
		t.Helper()

		all, more, err := m.Read()
		if err != nil || more != 0 {
			t.Fatalf("%d more, error %v", more, err)
		}

		of := map[string]podnet.Traffic{}
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
			t.Errorf("%s: packets that OVS took count as dropped: before %+v, after %+v", pod, was, now)
		}
	}

	if err := r.Del(t.Context(), "c-a", "eth0"); err != nil {
		t.Fatal(err)
	}

	if got := read(); len(got) != 1 || got["default/b/eth0"].Pod != "b" || m.Owners() != 1 {
		t.Errorf("one deleted: %+v, %d owners", got, m.Owners())
	}
}
