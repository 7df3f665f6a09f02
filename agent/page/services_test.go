package page

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/ovn-ebpf/ovn-ebpf/bpf"
	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// /services.json lists each frontend with its Service, sorted, and is an empty list before the
// start.
func TestServicesAreSorted(t *testing.T) {
	p := New(func() []string { return nil })
	mux := http.NewServeMux()
	p.Register(mux, func(h http.Handler) http.Handler { return h })

	look := func() (got []Frontend) {
		t.Helper()

		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/services.json", http.NoBody))

		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || got == nil {
			t.Fatalf("%v: %s", err, w.Body)
		}

		return got
	}
	if got := look(); len(got) > 0 {
		t.Errorf("before the start: %v", got)
	}

	node, cluster := netip.MustParseAddr("172.30.0.11"), netip.MustParseAddr("10.96.0.7")
	web := bpf.ServicePort{Namespace: "default", Name: "web", Proto: 6, Port: 80}

	p.Set(Source{Frontends: func() map[verdict.ServiceKey]bpf.ServicePort {
		return map[verdict.ServiceKey]bpf.ServicePort{{Addr: node, Proto: 6, Port: 30080}: web, {Addr: cluster, Proto: 6, Port: 80}: web}
	}})

	want := []Frontend{{cluster, 6, 80, "default/web:80/TCP"}, {node, 6, 30080, "default/web:80/TCP"}}
	if diff := cmp.Diff(want, look(), cmpopts.EquateComparable(netip.Addr{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
