// Package page is the agent's own status page: the gateway's picture with live
// rates and what is wrong, in one file that loads nothing from anywhere.
package page

import (
	_ "embed"
	"encoding/json"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/agent/gateway"
	"github.com/ovn-ebpf/ovn-ebpf/bpf"
)

//go:embed page.html
var html []byte

// Info is what does not change while the agent runs.
type Info struct {
	Node     string `json:"node"`
	Backend  string `json:"backend"`
	Layout   string `json:"layout"`
	Datapath string `json:"datapath"`
	Uplink   string `json:"uplink"`
	Bridge   string `json:"bridge"`
}

// Source is where a page reads.
type Source struct {
	Info     Info
	Counters func() ([]bpf.Counter, error)
	Stats    func() gateway.Stats
	// FrontEnds returns the Service's port of each front end; nil: there are none.
	FrontEnds func() map[bpf.ServiceKey]bpf.ServicePort
}

// State is what the page shows, and what /status.json is.
type State struct {
	Info
	Time     time.Time         `json:"time"`
	Missing  []string          `json:"missing"`           // what keeps the agent from being ready; none: it is
	Degraded map[string]string `json:"degraded"`          // optional parts that do not work, and why
	Repairs  map[string]uint64 `json:"repairs"`           // since the agent's start, by part
	Counters []Counter         `json:"counters"`          // all that there are, also at zero; they never go down while the agent runs
	Problem  string            `json:"problem,omitempty"` // why there are no counters
}

// Counter is one reason's.
type Counter struct {
	Port      string `json:"port"`
	Direction string `json:"direction"`
	Verdict   string `json:"verdict"`
	Reason    string `json:"reason"`
	Packets   uint64 `json:"packets"`
	Bytes     uint64 `json:"bytes"`
}

// Page serves it. Before Set it shows what the start waits for.
type Page struct {
	missing func() []string
	now     func() time.Time
	source  atomic.Pointer[Source]
}

// New returns a Page that asks missing what keeps the agent from being ready.
func New(missing func() []string) *Page { return &Page{missing: missing, now: time.Now} }

// Set tells where to read from now on.
func (p *Page) Set(s Source) { p.source.Store(&s) }

// State reads everything now.
func (p *Page) State() State {
	s := State{Time: p.now().UTC(), Missing: append([]string{}, p.missing()...), Degraded: map[string]string{}, Repairs: map[string]uint64{}, Counters: []Counter{}}
	source := p.source.Load()
	if source == nil {
		return s
	}
	s.Info = source.Info
	stats := source.Stats()
	for part, why := range stats.Degraded {
		if why != "" {
			s.Degraded[part] = why
		}
	}
	for part, n := range stats.Repairs {
		s.Repairs[part] = n
	}
	counters, err := source.Counters()
	if err != nil {
		s.Problem = err.Error()
	}
	for _, c := range counters {
		s.Counters = append(s.Counters, Counter(c))
	}
	return s
}

// policy lets a page run what is in it, ask its own server, and nothing else.
const policy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; img-src data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"

// Register adds /, /status.json and /services.json to mux, behind protect.
func (p *Page) Register(mux *http.ServeMux, protect func(http.Handler) http.Handler) {
	mux.Handle("GET /{$}", protect(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Content-Security-Policy", policy)
		_, _ = w.Write(html) // who has gone does not read it
	})))
	mux.Handle("GET /services.json", protect(http.HandlerFunc(p.services)))
	mux.Handle("GET /status.json", protect(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		_ = json.NewEncoder(w).Encode(p.State())
	})))
}
