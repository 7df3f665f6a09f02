package reconcile

import (
	"errors"
	"fmt"
	"sync"
)

// status is what readiness and metrics ask, possibly while the loop works.
type status struct {
	mu       sync.Mutex // guards all below
	api      error
	watching bool // the informers have the whole cluster
	leading  bool
	synced   uint64 // the database connection of the last full sync
	pending  int    // keys of the last full sync that are not done; -1: none was begun
	nodes    int    // with subnets
	pods     int    // addresses in use
}

func (s *status) setAPI(err error) (changed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	changed = (err == nil) != (s.api == nil)
	s.api = err
	return changed
}

func (s *status) set(f func(*status)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(s)
}

func (s *status) leadership() (leading bool, pending, nodes, pods int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.leading, max(s.pending, 0), s.nodes, s.pods
}

// Ready returns nil when the database was made equal to the cluster since this
// replica began to lead or, on standby, when it could take over at once. Else
// it returns everything that is missing.
func (l *Loop) Ready() error {
	db, generation := l.db.Ready(), l.db.Generation()
	s := &l.status
	s.mu.Lock()
	defer s.mu.Unlock()
	errs := []error{db}
	if s.api != nil {
		errs = append(errs, fmt.Errorf("API server: %w", s.api))
	}
	if !s.watching {
		errs = append(errs, errors.New("cluster not yet listed from the API server"))
	}
	if s.leading && (s.pending != 0 || s.synced != generation) {
		text := "first synchronisation not begun"
		if s.pending > 0 {
			text = fmt.Sprintf("synchronising: %d owners left", s.pending)
		}
		errs = append(errs, errors.New(text))
	}
	return errors.Join(errs...)
}

// Leading says whether this replica leads now.
func (l *Loop) Leading() bool {
	leading, _, _, _ := l.status.leadership()
	return leading
}
