package controller

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/loop"
)

const (
	memoryEvery = 5 * time.Second
	// calmAllocation is what a calm controller allocates at most in memoryEvery, in bytes.
	calmAllocation = 8 << 20
	// busyAllocation is what a controller has allocated at least, in bytes, if it was busy.
	busyAllocation = 256 << 20
)

// memory returns the memory of the heap to the operating system when the controller becomes calm
// after it was busy. Many changes make the heap grow to several times the size of the objects in
// it. Go keeps most of that as long as little is allocated, because no collection follows.
type memory struct {
	allocated uint64 // as of the last call of look, in bytes since the start of the process
	returned  uint64 // the same, as of the last time that memory was returned
}

// returnMemory calls look until the context ends.
func returnMemory(ctx context.Context) error {
	var m memory
	return loop.Every(ctx, memoryEvery, m.look)
}

// look returns the memory if it is time.
func (m *memory) look() {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample)

	if m.isDue(sample[0].Value.Uint64()) {
		debug.FreeOSMemory()
	}
}

// isDue reports whether the controller, which has allocated so many bytes, is calm after it was busy.
func (m *memory) isDue(allocated uint64) bool {
	isCalm := allocated-m.allocated <= calmAllocation
	m.allocated = allocated

	if !isCalm || allocated-m.returned < busyAllocation {
		return false
	}

	m.returned = allocated

	return true
}
