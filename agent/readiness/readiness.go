// Package readiness collects the items that the parts of an agent lack, and serves them as /readyz.
// An item is a line of text for the operator. The node is ready when no part lacks any.
package readiness

import (
	"cmp"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"

	"github.com/ovn-ebpf/ovn-ebpf/loop"
)

// Readiness collects the missing items of all parts. Its methods may be called concurrently.
type Readiness struct {
	// Changed is triggered by the parts when their missing items may have changed.
	Changed loop.Signal
	log     *slog.Logger

	mu      sync.Mutex      // guards the following fields
	parts   []func() string // see Add
	faults  func() []string // see SetFaults; may be nil
	started bool            // Complete was called
	waiting string          // see Starting
}

// New returns the readiness of an agent that starts.
func New(log *slog.Logger) *Readiness {
	return &Readiness{log: log, Changed: loop.NewSignal()}
}

// Add registers a part: a function that returns the item that the part lacks, or "". It may be
// called concurrently.
func (r *Readiness) Add(part func() string) {
	r.mu.Lock()
	defer r.mu.Unlock()

	r.parts = append(r.parts, part)
}

// Complete ends the start, when all parts are registered. Until then, the agent is not ready.
func (r *Readiness) Complete() {
	r.mu.Lock()
	defer r.mu.Unlock()

	r.started = true
}

// Starting records the reason why the start waits, and logs it; "" clears it. It fits loop.Insist.
func (r *Readiness) Starting(why string) {
	r.mu.Lock()
	defer r.mu.Unlock()

	if why != r.waiting && why != "" {
		r.log.Warn("waiting", "for", why)
	}

	r.waiting = why
}

// SetFaults registers the function that returns the lines about faults of the node's environment.
// /readyz prints them, but they do not make the node unready.
func (r *Readiness) SetFaults(faults func() []string) {
	r.mu.Lock()
	defer r.mu.Unlock()

	r.faults = faults
}

// Missing returns all missing items, in the order of the parts. The node is ready if there are
// none.
func (r *Readiness) Missing() []string {
	r.mu.Lock()
	parts, started, waiting := r.parts, r.started, r.waiting
	r.mu.Unlock()

	var out []string
	if !started {
		out = append(out, cmp.Or(waiting, "starting"))
	}

	for _, p := range parts {
		if s := p(); s != "" {
			out = append(out, s)
		}
	}

	return out
}

// Register registers /healthz and /readyz.
func (r *Readiness) Register(mux *http.ServeMux) {
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", r.serve)
}

// serve serves /readyz: a line for each missing item or "ok", and then the faults.
func (r *Readiness) serve(w http.ResponseWriter, _ *http.Request) {
	if missing := r.Missing(); len(missing) > 0 {
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprintln(w, strings.Join(missing, "\n"))
	} else {
		fmt.Fprintln(w, "ok")
	}

	r.mu.Lock()
	faults := r.faults
	r.mu.Unlock()

	if faults == nil {
		return
	}

	for _, fault := range faults() {
		fmt.Fprintln(w, fault)
	}
}
