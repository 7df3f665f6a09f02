package podnet_test

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/ovn-ebpf/ovn-ebpf/agent/gateway"
	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/agent/metrics"
	"github.com/ovn-ebpf/ovn-ebpf/agent/podnet"
	"github.com/ovn-ebpf/ovn-ebpf/agent/testnode"
)

// pods is the number of pods of a large node.
const pods = 250

// BenchmarkMeter reads the traffic of 250 pods, alone and as a scrape. Their records are deleted,
// so a repeated read would fail.
func BenchmarkMeter(b *testing.B) {
	dir := b.TempDir()
	makePods(b, dir)
	m := &podnet.Meter{Dir: dir, Max: pods}
	read := func(b *testing.B) {
		b.Helper()

		if got, more, err := m.Read(); err != nil || len(got) != pods || more != 0 {
			b.Fatalf("%d of %d pods, %d more, error %v", len(got), pods, more, err)
		}
	}
	read(b)

	if err := os.RemoveAll(dir); err != nil {
		b.Fatal(err)
	}

	b.Run("read", func(b *testing.B) {
		b.ReportAllocs()

		for b.Loop() {
			read(b)
		}
	})
	b.Run("scrape", func(b *testing.B) {
		c := metrics.New(metrics.Source{
			PinDir: dir, Ready: func() bool { return true }, Drained: func() bool { return false }, Pods: m.Read,
			Stats: func() gateway.Stats { return gateway.Stats{} }, Log: slog.New(slog.DiscardHandler),
		})
		registry := prometheus.NewRegistry()
		registry.MustRegister(c)
		handler := promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
		request := httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody)

		b.ReportAllocs()

		for b.Loop() {
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, request)
			n, _ := io.Copy(io.Discard, w.Body)
			b.ReportMetric(float64(n)/1e3, "kB")
		}
	})
}

func makePods(b *testing.B, dir string) {
	b.Helper()
	ns := "/proc/" + testnode.Netns(b) + "/ns/net"

	for i := range pods {
		p := podnet.Pod{ContainerID: fmt.Sprintf("c%d", i), Interface: fmt.Sprintf("eth%d", i), LogicalPort: fmt.Sprintf("default_pod-%d", i)}
		host := podnet.HostName(p.ContainerID, p.Interface)

		record, err := json.Marshal(p)
		if err != nil {
			b.Fatal(err)
		}

		if err := os.WriteFile(filepath.Join(dir, host+".json"), record, 0o600); err != nil {
			b.Fatal(err)
		}

		b.Cleanup(func() { _ = link.Delete(host) })

		err = link.SyncPodInterface(link.PodInterface{
			HostName: host, Netns: ns, Name: p.Interface, MTU: 1400, MAC: net.HardwareAddr{0x0a, 0x58, 10, 244, byte(i >> 8), byte(i)},
			Addresses: []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 244, byte(i >> 8), byte(i)}), 16)},
		})
		if err != nil {
			b.Fatal(err)
		}
	}
}
