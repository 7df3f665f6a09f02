package nb_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/controller/nb"
	"github.com/ovn-ebpf/ovn-ebpf/controller/nb/nbtest"
	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
)

// BenchmarkCommit adds ports to 100 switches in batches of 64 owners, then compares all of them
// again, as a restart does. Run it with -benchtime=1x.
func BenchmarkCommit(b *testing.B) {
	const switches = 100

	for _, ports := range []int{1000, 10000} {
		b.Run(fmt.Sprintf("ports=%d", ports), func(b *testing.B) {
			var write, compare time.Duration

			for b.Loop() {
				db := openBench(b)
				nodes := map[plan.Key][]plan.Row{}

				for i := range switches {
					name := fmt.Sprint("n", i)
					nodes[plan.NodeKey(name)] = []plan.Row{plan.LogicalSwitch{Name: name}}
				}

				mustCommit(b, db, nodes)
				write += commitPorts(b, db, ports, switches)
				compare += commitPorts(b, db, ports, switches)
			}

			rate := func(d time.Duration) float64 { return float64(ports*b.N) / d.Seconds() }
			b.ReportMetric(rate(write), "written/s")
			b.ReportMetric(rate(compare), "compared/s")
		})
	}
}

func commitPorts(b *testing.B, db *nb.DB, ports, switches int) time.Duration {
	const batch = 64

	start := time.Now()

	for first := 0; first < ports; first += batch {
		want := map[plan.Key][]plan.Row{}

		for i := first; i < min(first+batch, ports); i++ {
			name := fmt.Sprint("p", i)
			address := fmt.Sprintf("0a:58:0a:00:%02x:%02x 10.0.%d.%d", i>>8, i&255, i>>8, i&255)
			want[plan.PodKey("ns", name)] = []plan.Row{plan.LogicalSwitchPort{
				Switch: fmt.Sprint("n", i%switches), Name: "ns_" + name, Incarnation: name,
				Addresses: []string{address}, PortSecurity: []string{address},
				Options: map[string]string{"requested-chassis": "x", "iface-id-ver": name},
			}}
		}

		mustCommit(b, db, want)
	}

	return time.Since(start)
}

func mustCommit(b *testing.B, db *nb.DB, want map[plan.Key][]plan.Row) {
	if errs := db.Commit(b.Context(), want); len(errs) > 0 {
		b.Fatal(errs)
	}
}

func openBench(b *testing.B) *nb.DB {
	db := nb.New([]string{nbtest.Start(b).Endpoint}, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(context.Background())

	done := make(chan error)
	go func() { done <- db.Run(ctx) }()

	b.Cleanup(func() {
		cancel()

		if err := <-done; err != nil {
			b.Error(err)
		}
	})
	<-db.Connected()

	return db
}
