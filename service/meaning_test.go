package service_test

import (
	"flag"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ovn-ebpf/ovn-ebpf/service"
)

var update = flag.Bool("update", false, "write testdata/meaning.txt anew")

// TestMeaning compares the meaning of the objects of every golden with testdata/meaning.txt. Each
// component that renders Services must agree with it.
func TestMeaning(t *testing.T) {
	const file = "testdata/meaning.txt"

	var b strings.Builder
	for _, golden := range goldens(t) {
		fmt.Fprintf(&b, "%s\n", strings.TrimPrefix(golden, "../"))
		readCase(t, golden).write(&b)
	}

	if *update {
		if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}

	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}

	if diff := cmp.Diff(string(want), b.String()); diff != "" {
		t.Errorf("-%s +got (-update rewrites):\n%s", file, diff)
	}
}

func (w *world) write(b *strings.Builder) {
	hosts := map[netip.Addr]bool{}

	for _, n := range w.nodes {
		for _, a := range w.cfg.Hosts.HostAddresses(n) {
			hosts[a] = true
		}
	}

	for _, k := range slices.SortedFunc(maps.Keys(w.objects), service.Key.Compare) {
		o := w.objects[k]
		fmt.Fprintf(b, "  %s\n", k)

		switch m := o.Meaning(w.config()); {
		case m.Service != nil:
			fmt.Fprintf(b, "    depends on nodes %t\n", w.config().DependsOnNodes(o.Service, o.Slices))
			external, ports := service.Asked(o.Service)
			fmt.Fprintf(b, "    asks for %v %v\n", external, ports)
			writeService(b, m.Service, func(a netip.Addr) bool { return hosts[a] })
		case m.Pod != nil:
			writePod(b, m.Pod)
		default:
			fmt.Fprintf(b, "    nothing\n")
		}
	}
}

func writeService(b *strings.Builder, s *service.Service, isHost func(netip.Addr) bool) {
	fmt.Fprintf(b, "    created %s cluster %v external %v announced %v\n", s.Created.UTC().Format("2006-01-02 15:04"), s.ClusterIPs, s.External, s.Announced)
	fmt.Fprintf(b, "    local %t/%t affinity %v health check %d", s.ExternalLocal, s.InternalLocal, s.Affinity, s.HealthCheckPort)
	fmt.Fprintf(b, " ready on node1 %d, node2 %d\n", s.ReadyOn("node1"), s.ReadyOn("node2"))

	for _, is4 := range []bool{true, false} {
		if from := s.SourceRanges(is4); len(from) > 0 {
			fmt.Fprintf(b, "    %s clients from %v\n", service.FamilyName(is4), from)
		}

		if !s.HasFamily(is4) {
			continue
		}

		for _, port := range s.Ports {
			fmt.Fprintf(b, "    %s port %q %s/%d node port %d\n", service.FamilyName(is4), port.Name, port.Protocol, port.Number, port.NodePort)

			all := s.Endpoints(port, is4, isHost, func(slice string, a netip.Addr, why string) {
				fmt.Fprintf(b, "      refused: %s of %s: %s\n", a, slice, why)
			})
			for _, e := range all {
				fmt.Fprintf(b, "      %s %s on %q\n", e.Addr, [...]string{"gone", "serving", "terminating", "ready"}[e.State], e.Node)
			}

			if usable := service.Usable(all); len(usable) != len(all) {
				fmt.Fprintf(b, "      usable: %s\n", addresses(usable))
			}

			hints := service.NewHints(all)
			if len(hints.Nodes)+len(hints.Zones) > 0 {
				for _, n := range []string{"node1", "node2"} {
					for _, zone := range []string{"", "zone1", "zone2", "a", "b"} {
						fmt.Fprintf(b, "      near %s in %q: %s\n", n, zone, addresses(hints.For(n, zone)))
					}
				}
			}
		}
	}

	writeErrors(b, s.Refused)
}

func writePod(b *strings.Builder, p *service.Pod) {
	fmt.Fprintf(b, "    created %s on %s\n", p.Created.UTC().Format("2006-01-02 15:04"), p.Node)

	for _, port := range p.Ports {
		fmt.Fprintf(b, "    %s/%d at %v", port.Protocol, port.Number, port.At)

		for _, is4 := range []bool{true, false} {
			if to, ok := p.Backend(port, is4); ok {
				fmt.Fprintf(b, " to %s everywhere %t", to, port.Everywhere(is4))
			}
		}

		fmt.Fprintln(b)
	}

	writeErrors(b, p.Refused)
}

func writeErrors(b *strings.Builder, errs []error) {
	for _, err := range errs {
		fmt.Fprintf(b, "    refused: %v\n", err)
	}
}

func addresses(in []service.Endpoint) string {
	var out []netip.AddrPort
	for _, e := range in {
		out = append(out, e.Addr)
	}

	return text(out)
}
