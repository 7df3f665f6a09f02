package underlay

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	"github.com/ovn-ebpf/ovn-ebpf/controller/election"
)

// status is read by readiness and metrics, possibly while the controller works.
type status struct {
	mu      sync.Mutex // guards all below
	api     error      // of the last probe of the API server
	listed  bool       // the informers have the whole cluster
	cloud   string     // why OpenStack is not connected, or ""
	begin   string     // what this new leader waits for before it serves nodes, or ""
	leading bool
	late    bool                // the lease is not renewed in time: nothing is written
	lost    *election.LostError // why this replica no longer leads, until the new leader is known
}

func (s *status) set(f func(*status)) {
	s.mu.Lock()
	defer s.mu.Unlock()

	f(s)
}

func (s *status) setAPI(err error) { s.set(func(s *status) { s.api = err }) }

// waitFor records in a field of s what is waited for, and logs it once.
func (s *status) waitFor(field *string, why string, log *slog.Logger) {
	s.mu.Lock()
	defer s.mu.Unlock()

	if why != *field && why != "" {
		log.Warn("waiting", "for", why)
	}

	*field = why
}

// leads reports whether this replica leads.
func (s *status) leads() bool {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.leading
}

// ready returns nil if this replica serves the nodes, or could take over at once, and otherwise
// all reasons why it does not. Problems of single nodes do not count: failing returns them.
func (c *controller) ready() error {
	s := &c.status
	s.mu.Lock()
	defer s.mu.Unlock()

	var errs []error
	if s.api != nil {
		errs = append(errs, fmt.Errorf("API server: %w", s.api))
	}

	if s.cloud != "" {
		errs = append(errs, fmt.Errorf("OpenStack: %s", s.cloud))
	}

	if !s.listed {
		errs = append(errs, errors.New("cluster not yet listed from the API server"))
	} else {
		for _, i := range c.objects.all() {
			errs = append(errs, i.Behind())
		}
	}

	if s.begin != "" {
		errs = append(errs, errors.New(s.begin))
	}

	if s.late {
		errs = append(errs, errors.New("the lease is not renewed in time: nothing is written"))
	}

	if s.lost != nil {
		errs = append(errs, s.lost)
	}

	return errors.Join(errs...)
}

// mostListed bounds how many lines failing returns.
const mostListed = 100

// failing returns a line for each problem of a node, and for each pool without a problem whose
// last request failed.
func (c *controller) failing() []string {
	var lines []string

	if problems := c.problems.Load(); problems != nil {
		for _, p := range problems.list() {
			lines = append(lines, fmt.Sprintf("node %s: %s: %s", p.node, p.Reason, p.Text))
		}
	}

	if pools := c.pools.Load(); pools != nil {
		for _, s := range pools.Status() {
			if s.Err != nil && len(s.Problems) == 0 {
				lines = append(lines, fmt.Sprintf("node %s: %v", s.Node, s.Err))
			}
		}
	}

	slices.Sort(lines)

	if n := len(lines) - mostListed; n > 0 {
		lines = append(lines[:mostListed], fmt.Sprintf("and %d more", n))
	}

	return lines
}
