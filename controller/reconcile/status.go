package reconcile

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/controller/election"
	"github.com/ovn-ebpf/ovn-ebpf/controller/ipam"
)

// maxLag is how long an owner may wait for the database while this replica is ready. Under constant
// change the database never equals the cluster for long.
const maxLag = time.Second

// maxListed bounds how many failing owners readiness lists.
const maxListed = 100

// status is read by readiness and metrics, possibly while the loop works.
type status struct {
	mu       sync.Mutex          // guards all below
	api      error               // of the last probe of the API server
	watching bool                // the informers have the whole cluster
	leading  bool                // also before its first term, if there are no standbys: see Loop.Run
	term     uint64              // the number of the claimed term; 0: none yet
	late     bool                // the lease is not renewed in time: nothing is written
	lost     *election.LostError // why this replica no longer leads, until the new leader is known
	begun    bool                // a full sync was begun since this replica leads
	synced   uint64              // the database connection whose full sync is done, as nb.DB.Generation
	pending  int                 // keys of the last full sync that are not done
	// allocator is nil while this replica does not lead, and until it has read the allocations.
	allocator *ipam.Allocator
}

// setAPI records the result of a probe of the API server.
func (s *status) setAPI(err error) { s.set(func(s *status) { s.api = err }) }

// set calls f, which changes the fields, with the lock held.
func (s *status) set(f func(*status)) {
	s.mu.Lock()
	defer s.mu.Unlock()

	f(s)
}

// leadership returns whether this replica leads, the number of keys of the full sync that are not
// done, and the allocator, which may be nil.
func (s *status) leadership() (leading bool, pending int, a *ipam.Allocator) {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.leading, s.pending, s.allocator
}

// claimedTerm returns the number of the claimed term, or 0.
func (s *status) claimedTerm() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.term
}

// Ready returns nil when the database equals the cluster as it was a second ago, except for the
// owners that Failing lists. On standby it returns nil when this replica could take over at once.
// Otherwise it returns everything that is missing.
func (l *Loop) Ready() error {
	db, generation := l.db.Ready(), l.db.Generation()

	s := &l.status
	s.mu.Lock()
	defer s.mu.Unlock()

	errs := []error{db, l.db.Storage()}
	if s.api != nil {
		errs = append(errs, fmt.Errorf("API server: %w", s.api))
	}

	if !s.watching {
		errs = append(errs, errors.New("cluster not yet listed from the API server"))
	} else {
		for _, i := range l.informers {
			errs = append(errs, i.Behind())
		}
	}

	if s.leading && s.synced != generation {
		text := "first synchronisation not begun"

		switch {
		case s.term == 0:
			text = "northbound database not claimed yet"
		case s.begun:
			text = fmt.Sprintf("synchronising: %d owners left", s.pending)
		}

		errs = append(errs, errors.New(text))
	}

	if s.late {
		errs = append(errs, errors.New("the lease is not renewed in time: nothing is written"))
	}

	if s.lost != nil {
		errs = append(errs, s.lost)
	}

	if k, since, n := l.lag.oldest(); s.leading && n > 0 && time.Since(since) > maxLag {
		errs = append(errs, fmt.Errorf("%d owners wait, %s for %s",
			n, k, time.Since(since).Round(time.Second)))
	}

	return errors.Join(errs...)
}

// Failing returns a line for each owner whose rows differ from the cluster, with the reason. Most
// often its object requests something impossible. After maxListed owners, a line has the number
// of the others.
func (l *Loop) Failing() []string {
	lines, total := l.failures.list(maxListed)
	if total > len(lines) {
		lines = append(lines, fmt.Sprintf("and %d more", total-len(lines)))
	}

	return lines
}

// Leading reports whether this replica leads now.
func (l *Loop) Leading() bool {
	leading, _, _ := l.status.leadership()
	return leading
}
