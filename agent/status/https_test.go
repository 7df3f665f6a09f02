package status

import (
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
)

// The agent is queried by HTTPS if it serves HTTPS. Metrics with restricted access are not a fault.
func TestAskAgentTLS(t *testing.T) {
	protected := false
	mux := http.NewServeMux()
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(w, "one thing\nanother\ndegraded: a third; mend it\n")
	})
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		if protected {
			w.WriteHeader(http.StatusForbidden)
			return
		}

		_, _ = io.WriteString(w, "# TYPE ovnkube_gateway_snat_ports gauge\novnkube_gateway_snat_ports 7\n")
	})

	server := httptest.NewTLSServer(mux)
	defer server.Close()

	p := Paths{Metrics: strings.TrimPrefix(server.URL, "https://"), MetricsTLS: true}
	for _, protected = range []bool{false, true} {
		a := askAgent(t.Context(), p)
		if a.Err != nil || len(a.Missing) != 2 || !slices.Equal(a.Faults, []string{"a third; mend it"}) || (a.SNATPorts == 7) == protected {
			t.Errorf("protected %t: %+v", protected, a)
		}
	}

	if p.MetricsTLS = false; askAgent(t.Context(), p).Err == nil {
		t.Error("the HTTPS server answers HTTP")
	}
}
