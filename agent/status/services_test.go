package status

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestServices(t *testing.T) {
	code := http.StatusOK

	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(code)
		_, _ = io.WriteString(w, `# TYPE ovnkube_gateway_service_packets_total counter
ovnkube_gateway_service_packets_total{namespace="default",port="80",protocol="TCP",service="web"} 3
# TYPE ovnkube_gateway_service_bytes_total counter
ovnkube_gateway_service_bytes_total{namespace="default",port="80",protocol="TCP",service="web"} 210
`)
	}))
	defer server.Close()

	p := Paths{Metrics: strings.TrimPrefix(server.URL, "http://")}
	got, err := Services(t.Context(), p)

	want := ServiceCount{Name: "default/web:80/TCP", Packets: 3, Bytes: 210}
	if err != nil || len(got) != 1 || got[want.Name] != want {
		t.Errorf("%+v, error %v", got, err)
	}

	code = http.StatusForbidden

	if _, err := Services(t.Context(), p); err == nil || !strings.Contains(err.Error(), "status 403") {
		t.Errorf("metrics that need a certificate: %v", err)
	}

	if _, err := Services(t.Context(), Paths{}); err == nil {
		t.Error("queried an agent without metrics")
	}
}
