package gateway

import (
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/tokenbucket"
)

// Limits of the time that changes of Services take. Services with thousands of frontends that come
// and go again and again would keep the node's CPUs busy otherwise, and pods would start late.
const (
	restFactor  = 15          // a pause is this many times as long as the work before it
	longestRest = time.Second // but not longer than this
)

// Limits of the entries of the tables that the objects of a namespace change: their frontends and
// backends. The agent needs about 10 µs for an entry. So a namespace whose Services change all the time
// keeps a CPU busy for one percent of the time, and all namespaces together for four. The pauses above
// would stop other namespaces' changes, too.
const (
	entriesPerSecond      = 1024
	entriesAtOnce         = 16384 // after a pause; the frontends that a namespace may have by default
	totalEntriesPerSecond = 4096
	// plansPerEntry is the number of entries that the agent plans in the time in which it writes one.
	plansPerEntry = 4
)

// newEntryBuckets returns full buckets of the namespaces, in entries.
func newEntryBuckets() *tokenbucket.Set {
	return tokenbucket.New(tokenbucket.Limits{
		PerSecond: entriesPerSecond, AtOnce: entriesAtOnce, TotalPerSecond: totalEntriesPerSecond,
	})
}

// pacer computes the pauses between changes of Services, in proportion to the time that the changes
// took. Its caller serializes the calls.
type pacer struct {
	worked  time.Duration // sum of the work since the end of a pause
	endedAt time.Time     // end of the last work
}

// restEnd returns when the pause after the last work is over. The time since the work counts, so a
// change after a quiet time does not wait.
func (p *pacer) restEnd() time.Time { return p.endedAt.Add(min(restFactor*p.worked, longestRest)) }

// startWork starts to measure the time of a change. The caller must call end when the work is done.
func (p *pacer) startWork() (end func()) {
	began := time.Now()
	if !began.Before(p.restEnd()) {
		p.worked = 0
	}

	return func() {
		p.endedAt = time.Now()
		p.worked += p.endedAt.Sub(began)
	}
}
