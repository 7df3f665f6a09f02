package metrics

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sys/unix"

	"github.com/ovn-ebpf/ovn-ebpf/agent/gateway"
	"github.com/ovn-ebpf/ovn-ebpf/bpf"
	"github.com/ovn-ebpf/ovn-ebpf/cluster"
	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// services is the number of Services, each with a NodePort on two addresses.
const services = 10000

// BenchmarkScrape scrapes a node with counters for every port of 10,000 Services.
func BenchmarkScrape(b *testing.B) {
	g, dir := countingGateway(b)
	c := New(Source{
		PinDir: dir, Ready: func() bool { return true }, Drained: func() bool { return false }, Log: slog.New(slog.DiscardHandler),
		Stats: func() gateway.Stats { return gateway.Stats{} }, Services: g.ServiceCounts,
	})
	registry := prometheus.NewRegistry()
	registry.MustRegister(c)
	handler := promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
	request := httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody)

	b.ReportAllocs()

	for b.Loop() {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, request)

		if w.Code != 200 {
			b.Fatal(w.Body.String())
		}

		n, _ := io.Copy(io.Discard, w.Body)
		b.ReportMetric(float64(n)/1e6, "MB")
	}
}

func countingGateway(b *testing.B) (g *bpf.Gateway, dir string) {
	b.Helper()

	mount := b.TempDir()
	if err := unix.Mount("bpf", mount, "bpf", 0, ""); err != nil {
		b.Fatal(err)
	}

	b.Cleanup(func() { _ = unix.Unmount(mount, unix.MNT_DETACH) })

	dir = filepath.Join(mount, "gateway")
	nodes := []netip.Addr{netip.MustParseAddr("172.30.0.11"), netip.MustParseAddr("fd00:172:30::11")}

	g, err := bpf.Open(bpf.Options{PinDir: dir, CountServices: services, Config: bpf.Config{Config: verdict.Config{
		NodeMAC: verdict.MAC{2, 0, 0, 0, 0, 1}, Node4: nodes[0], Node6: nodes[1], SNATPorts: cluster.PortRange{First: 49152, Last: 65535}, GenevePort: 6081,
	}}})
	if err != nil {
		b.Fatal(err)
	}

	b.Cleanup(func() { g.Close() })

	owners, ports := map[verdict.ServiceKey]verdict.ServiceOwner{}, map[verdict.ServiceKey]bpf.ServicePort{}

	for i := range services {
		for _, a := range nodes {
			k := verdict.ServiceKey{Addr: a, Proto: 6, Port: uint16(20000 + i)}
			owners[k], ports[k] = verdict.ServiceOVN, bpf.ServicePort{Namespace: "default", Name: fmt.Sprintf("service-%d", i), Proto: 6, Port: 80}
		}
	}

	if err := g.SyncServices(owners); err != nil {
		b.Fatal(err)
	}

	if err := g.SyncServiceCounts(ports); err != nil {
		b.Fatal(err)
	}

	return g, dir
}
