// Package page is the agent's status page: the gateway's diagram with live rates and faults. The
// page is one file without external resources, page.html, which reads /status.json every few
// seconds.
package page

import (
	"cmp"
	_ "embed"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/agent/gateway"
	"github.com/ovn-ebpf/ovn-ebpf/bpf"
	"github.com/ovn-ebpf/ovn-ebpf/service"
	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

//go:embed page.html
var html []byte

// Info does not change while the agent runs.
type Info struct {
	Node     string `json:"node"`
	Backend  string `json:"backend"`
	Layout   string `json:"layout"`
	Datapath string `json:"datapath"`
	Uplink   string `json:"uplink"`
	Bridge   string `json:"bridge"`
}

// Source holds the inputs of a page. Its functions must be safe for concurrent use.
type Source struct {
	Info     Info
	Counters func() ([]bpf.Counter, error) // of decisions, by programs or flows
	Stats    func() gateway.Stats
	// Frontends returns the Service port of each frontend; nil if there are none.
	Frontends func() map[verdict.ServiceKey]bpf.ServicePort
}

// State is the content of the page and of /status.json.
type State struct {
	Info
	Time     time.Time         `json:"time"`
	Missing  []string          `json:"missing"`           // why the agent is not ready; empty if it is
	Degraded map[string]string `json:"degraded"`          // reason by optional part that does not work
	Repairs  map[string]uint64 `json:"repairs"`           // since the agent's start, by part
	Counters []Counter         `json:"counters"`          // all, also at zero; they only increase while the agent runs
	Problem  string            `json:"problem,omitempty"` // why Counters is empty
}

// Counter is the counter of one reason.
type Counter struct {
	Port      string `json:"port"`
	Direction string `json:"direction"`
	Verdict   string `json:"verdict"`
	Reason    string `json:"reason"`
	Packets   uint64 `json:"packets"`
	Bytes     uint64 `json:"bytes"`
}

// Page serves the status page. Before Set, the page shows only why the agent is not ready. Its
// methods are safe for concurrent use.
type Page struct {
	missing func() []string
	now     func() time.Time       // time.Now, except in tests
	source  atomic.Pointer[Source] // nil before Set
}

// New returns a Page. missing returns why the agent is not ready.
func New(missing func() []string) *Page { return &Page{missing: missing, now: time.Now} }

// Set sets the inputs.
func (p *Page) Set(s Source) { p.source.Store(&s) }

// State reads the current state.
func (p *Page) State() State {
	s := State{
		Time:     p.now().UTC(),
		Missing:  append([]string{}, p.missing()...),
		Degraded: map[string]string{},
		Repairs:  map[string]uint64{},
		Counters: []Counter{},
	}

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

// policy allows only inline content and requests to the page's own server.
const policy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; img-src data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"

// Register adds /, /status.json and /services.json to mux. protect restricts the access to them.
func (p *Page) Register(mux *http.ServeMux, protect func(http.Handler) http.Handler) {
	mux.Handle("GET /{$}", protect(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Content-Security-Policy", policy)
		_, _ = w.Write(html) // fails only if the client has gone
	})))
	mux.Handle("GET /services.json", protect(http.HandlerFunc(p.services)))
	mux.Handle("GET /status.json", protect(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		_ = json.NewEncoder(w).Encode(p.State())
	})))
}

// Frontend is an address of a Service port in /services.json.
type Frontend struct {
	Address  netip.Addr `json:"address"`
	Protocol uint8      `json:"protocol"` // number of the IP protocol
	Port     uint16     `json:"port"`
	Service  string     `json:"service"` // namespace/name:port/protocol
}

// Frontends returns the frontends of the Service ports, sorted, in the form of /services.json.
func Frontends(servicePorts map[verdict.ServiceKey]bpf.ServicePort) []Frontend {
	out := make([]Frontend, 0, len(servicePorts))
	for k, p := range servicePorts {
		out = append(out, Frontend{
			k.Addr,
			k.Proto,
			k.Port,
			fmt.Sprintf("%s/%s:%d/%s", p.Namespace, p.Name, p.Port, service.ProtocolName(p.Proto)),
		})
	}

	slices.SortFunc(out, func(a, b Frontend) int {
		return cmp.Or(a.Address.Compare(b.Address), cmp.Compare(a.Protocol, b.Protocol),
			cmp.Compare(a.Port, b.Port))
	})

	return out
}

// services serves /services.json.
func (p *Page) services(w http.ResponseWriter, _ *http.Request) {
	out := []Frontend{}
	if source := p.source.Load(); source != nil && source.Frontends != nil {
		out = Frontends(source.Frontends())
	}

	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_ = json.NewEncoder(w).Encode(out) // fails only if the client has gone
}
