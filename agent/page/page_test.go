package page

import (
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/agent/gateway"
	"github.com/ovn-ebpf/ovn-ebpf/bpf"
)

// fixture is an agent with counters that grow at each request, every two seconds of its clock.
type fixture struct {
	*httptest.Server
	page    *Page
	mu      sync.Mutex // guards the fields that a browser reads while the test modifies them
	missing []string
	stats   gateway.Stats
	err     error
	asked   uint64
	looked  int64
}

func newFixture(t *testing.T, protect func(http.Handler) http.Handler) *fixture {
	t.Helper()

	f := &fixture{stats: gateway.Stats{Degraded: map[string]string{"bind_gate": ""}, Repairs: map[string]uint64{"flows": 2}}}
	f.page = New(func() []string {
		f.mu.Lock()
		defer f.mu.Unlock()

		return f.missing
	})
	f.page.now = func() time.Time { // advances by two seconds per call
		f.looked++
		return time.Unix(1_800_000_000+2*f.looked, 0)
	}
	mux := http.NewServeMux()
	f.page.Register(mux, protect)
	f.Server = httptest.NewServer(mux)
	t.Cleanup(f.Close)

	return f
}

func open(h http.Handler) http.Handler { return h }

// begin sets the source, as the agent does when its parts exist.
func (f *fixture) begin() {
	f.page.Set(Source{
		Info:     Info{Node: "node1", Backend: "ebpf", Layout: "direct", Datapath: "system", Uplink: "eth0", Bridge: "breth0"},
		Counters: f.counters, Stats: func() gateway.Stats {
			f.mu.Lock()
			defer f.mu.Unlock()

			s := f.stats
			s.Degraded = maps.Clone(s.Degraded)

			return s
		},
	})
}

func (f *fixture) change(to func()) {
	f.mu.Lock()
	defer f.mu.Unlock()

	to()
}

func (f *fixture) counters() ([]bpf.Counter, error) {
	f.asked++

	out := bpf.Reasons()
	for i := range out {
		per := map[string]uint64{"default": 4000, "snat_port": 2500, "service": 1200, "out": 3100, "arp_reply": 3, "geneve": 9000, "svc_leak": 7, "hairpin": 40}[out[i].Reason]
		out[i].Packets, out[i].Bytes = per*f.asked, per*f.asked*600
	}
	// As in layout direct, where no program counts it.
	out = append(out, bpf.Counter{Port: "host", Direction: "tx", Verdict: "out", Reason: "derived", Packets: 5000 * f.asked, Bytes: 3000000 * f.asked})

	return out, f.err
}

func (f *fixture) get(t *testing.T, path string) (int, http.Header, string) {
	t.Helper()

	res, err := http.Get(f.URL + path)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()

	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}

	return res.StatusCode, res.Header, string(body)
}

func (f *fixture) state(t *testing.T) State {
	t.Helper()

	var s State
	if code, _, body := f.get(t, "/status.json"); code != http.StatusOK || json.Unmarshal([]byte(body), &s) != nil {
		t.Fatalf("%d %s", code, body)
	}

	return s
}

func TestState(t *testing.T) {
	f := newFixture(t, open)

	f.missing = []string{"starting"}
	if s := f.state(t); len(s.Missing) != 1 || len(s.Counters) != 0 || s.Problem != "" {
		t.Errorf("before the start: %+v", s)
	}

	f.begin()
	f.missing = nil
	f.stats.Degraded["host_to_service"] = "no cgroup2"

	s := f.state(t)
	if s.Node != "node1" || len(s.Missing) != 0 || len(s.Counters) != len(bpf.Reasons())+1 || s.Repairs["flows"] != 2 || s.Time.IsZero() {
		t.Errorf("%+v", s)
	}

	if len(s.Degraded) != 1 || s.Degraded["host_to_service"] != "no cgroup2" {
		t.Errorf("degraded %v", s.Degraded)
	}

	f.err = errors.New("no pins")
	if s := f.state(t); s.Problem != "no pins" {
		t.Errorf("%+v", s)
	}
}

// The page is one file without external resources, and its policy enforces that.
func TestPageIsSelfContained(t *testing.T) {
	f := newFixture(t, open)

	code, header, body := f.get(t, "/")
	if code != http.StatusOK || !strings.HasPrefix(header.Get("Content-Type"), "text/html") || !strings.HasPrefix(body, "<!doctype html>") {
		t.Errorf("%d %v", code, header)
	}

	if csp := header.Get("Content-Security-Policy"); !strings.HasPrefix(csp, "default-src 'none'") {
		t.Errorf("policy %q", csp)
	}

	if found := regexp.MustCompile(`https?://|//[a-z0-9-]+\.[a-z]|<script[^>]+src|<link[^>]+href="[^d]|@import|url\([^#]`).FindAllString(body, -1); found != nil {
		t.Errorf("from elsewhere: %q", found)
	}

	if code, _, _ := f.get(t, "/other"); code != http.StatusNotFound {
		t.Errorf("another path: %d", code)
	}
}

// The page has the same protection as the metrics.
func TestPageIsProtected(t *testing.T) {
	f := newFixture(t, func(http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) })
	})
	for _, path := range []string{"/", "/status.json"} {
		if code, _, _ := f.get(t, path); code != http.StatusForbidden {
			t.Errorf("%s: %d", path, code)
		}
	}
}
