package controller

import (
	"runtime"
	"testing"
)

// TestMemory_isDue checks that memory is returned once after much was allocated, and only when
// little is.
func TestMemory_isDue(t *testing.T) {
	const mib = 1 << 20

	var m memory

	for i, step := range []struct {
		allocated uint64 // MiB since the step before
		due       bool
	}{
		{100, false},
		{8, false}, // calm, but it was not busy
		{200, false},
		{9, false}, // busy
		{8, true},
		{8, false},
		{0, false},
		{248, false}, // 256 with the steps since the last time
		{0, true},
		{255, false},
		{0, false},
	} {
		if got := m.isDue(m.allocated + step.allocated*mib); got != step.due {
			t.Errorf("step %d, %d MiB more: due %t, want %t", i, step.allocated, got, step.due)
		}
	}
}

// TestMemory_look checks that garbage is collected and that its memory is returned.
func TestMemory_look(t *testing.T) {
	var m memory

	m.look()

	for range 10 {
		garbage := make([]byte, busyAllocation/4)
		for i := range garbage {
			garbage[i] = 1
		}
	}

	kept := func() uint64 {
		var s runtime.MemStats
		runtime.ReadMemStats(&s)

		return s.HeapSys - s.HeapReleased
	}

	m.look()

	before := kept()

	m.look()

	if after := kept(); before < busyAllocation/4 || after > before/2 {
		t.Errorf("the heap has %d bytes of memory, and %d before", after, before)
	}
}
