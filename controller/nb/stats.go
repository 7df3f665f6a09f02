package nb

import (
	"maps"
	"sync"
)

// Stats counts the writes since the start.
type Stats struct {
	Transactions, Failed uint64            // sent; refused or lost
	Operations           map[string]uint64 // "insert", "update", "mutate", "delete"
}

type stats struct {
	mu sync.Mutex // guards s
	s  Stats
}

func newStats() *stats { return &stats{s: Stats{Operations: map[string]uint64{}}} }

func (s *stats) count(ops map[string]uint64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.s.Transactions++
	if err != nil {
		s.s.Failed++
		return
	}
	for op, n := range ops {
		s.s.Operations[op] += n
	}
}

// Stats returns the counts so far.
func (d *DB) Stats() Stats {
	d.stats.mu.Lock()
	defer d.stats.mu.Unlock()
	out := d.stats.s
	out.Operations = maps.Clone(out.Operations)
	return out
}
