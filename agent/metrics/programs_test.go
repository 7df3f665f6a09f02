package metrics

import (
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/bpf"
)

// The host's packets are the device's counter minus OVN's, and never decrease.
func TestDerived(t *testing.T) {
	var d derived
	for i, look := range []struct {
		device, ovn uint64
		want        int64
	}{
		{1000, 400, 0}, // packets before the agent's start do not count
		{1010, 405, 5},
		{1010, 407, 5}, // OVN's packets are counted before those of the device
		{1012, 407, 5},
		{1020, 407, 13},
		{3, 408, 15}, // a new device
	} {
		if d.update(look.device, look.ovn, i == 0); d.shown != look.want {
			t.Errorf("look %d: %d, want %d", i, d.shown, look.want)
		}
	}
}

// The host's packets are added to the counters. A concurrent reader with older figures adds no
// packets twice, and packets of OVN that are sent meanwhile are not the host's.
func TestHostSent(t *testing.T) {
	var device, ovn atomic.Uint64
	device.Store(1_000_000)

	h := &HostSent{Device: func() (packets, bytes uint64, err error) {
		runtime.Gosched()

		n := device.Load()

		runtime.Gosched()

		return n, 100 * n, nil
	}}
	look := func() bpf.Counter {
		all, err := h.Append(func() ([]bpf.Counter, error) {
			n := ovn.Load()
			return []bpf.Counter{{Port: "ovn", Direction: "tx", Verdict: "out", Reason: "out", Packets: n, Bytes: 100 * n}}, nil
		})
		if err != nil || len(all) != 2 {
			t.Errorf("%+v, error %v", all, err)
			return bpf.Counter{}
		}

		return all[1]
	}

	want := bpf.Counter{Port: "host", Direction: "tx", Verdict: "out", Reason: Derived}
	if got := look(); got != want {
		t.Errorf("at first %+v", got)
	}

	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for range 2000 {
				ovn.Add(1) // the programs count it before the device sends it
				device.Add(2)
				look()
			}
		})
	}

	group.Wait()

	want.Packets, want.Bytes = 16000, 1600000
	if got := look(); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}

	h.Device = func() (packets, bytes uint64, err error) { return 0, 0, errors.New("no such device") }

	all, err := h.Append(func() ([]bpf.Counter, error) { return []bpf.Counter{{Reason: "out"}}, nil })
	if len(all) != 1 || err == nil {
		t.Errorf("without the device: %+v, error %v", all, err)
	}
}

// The counter of evictions starts at zero and never falls, although the figure that it is made of
// does.
func TestEvictions(t *testing.T) {
	var e evictions
	for i, look := range []struct {
		created uint64
		entries int
		want    uint64
	}{
		{1000, 400, 0}, // evictions before the agent's start do not count
		{1010, 400, 10},
		{1010, 403, 10}, // entries have come while they were counted
		{1012, 401, 11},
		{1012, 401, 11},
		{8, 8, 11}, // the state was pinned anew
		{20, 10, 21},
		{20, 30, 21},
		{31, 20, 22},
	} {
		if got := e.next(bpf.ShortcutCounts{Created: look.created, Entries: look.entries}); got != look.want {
			t.Errorf("look %d: %d, want %d", i, got, look.want)
		}
	}
}
