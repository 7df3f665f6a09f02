package service_test

import (
	"bytes"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/ovn-ebpf/ovn-ebpf/agent/service"
	model "github.com/ovn-ebpf/ovn-ebpf/service"
	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

var update = flag.Bool("update", false, "write the goldens of testdata anew")

// node1 has a secondary address, that of a node-local DNS cache and that of the bridge.
func node1() *service.Node {
	return &service.Node{
		Name: "node1", Zone: "zone1", NodePorts: true, Lookup: true,
		Addresses: addrs("172.30.0.11", "172.30.0.77", "10.96.0.53", "fd00:172:30::11"),
		Own:       addrs("172.30.0.11", "172.30.0.77", "10.96.0.53", "fd00:172:30::11", "fe80::11", "169.254.169.2"),
		Hosts:     addrs("172.30.0.12"),
		Cluster: model.Config{
			Pods:     prefixes("10.244.0.0/16", "fd00:10:244::/48"),
			Services: prefixes("10.96.0.0/16", "fd00:10:96::/112"), Join: prefixes("100.64.0.0/16", "fd98::/64"),
			ExternalIPs: prefixes("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "2001:db8::/32"),
		},
	}
}

func addrs(texts ...string) (out []netip.Addr) {
	for _, s := range texts {
		out = append(out, netip.MustParseAddr(s))
	}

	return out
}

func prefixes(texts ...string) (out []netip.Prefix) {
	for _, s := range texts {
		out = append(out, netip.MustParsePrefix(s))
	}

	return out
}

// Each testdata/*.txtar holds the plan of node1 for some objects: a comment, then the files objects
// (YAML documents) and plan. In mode-local*, node1 is in local gateway mode.
func TestPlan(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no goldens: %v", err)
	}

	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(file)
			if err != nil || len(archive.Files) != 2 {
				t.Fatalf("want the files objects and plan, error %v", err)
			}

			n := node1()
			n.Local = strings.HasPrefix(filepath.Base(file), "mode-local")

			got := "\n" + planText(decode(t, archive.Files[0].Data), n)
			if *update {
				archive.Files[1].Data = []byte(got)
				if err := os.WriteFile(file, txtar.Format(archive), 0o644); err != nil {
					t.Fatal(err)
				}

				return
			}

			if diff := cmp.Diff(string(archive.Files[1].Data), got); diff != "" {
				t.Errorf("plan (-golden +got; -update rewrites):\n%s", diff)
			}
		})
	}
}

// decode returns the objects of YAML documents by key.
func decode(t *testing.T, documents []byte) map[service.Key]model.Objects {
	t.Helper()

	out := map[service.Key]model.Objects{}

	for _, doc := range bytes.Split(documents, []byte("\n---\n")) {
		obj, _, err := scheme.Codecs.UniversalDeserializer().Decode(doc, nil, nil)
		if err != nil {
			t.Fatalf("%v in\n%s", err, doc)
		}

		switch obj := obj.(type) {
		case *corev1.Service:
			k := service.Key{Namespace: obj.Namespace, Name: obj.Name}
			out[k] = model.Objects{Service: obj, Slices: out[k].Slices}
		case *discoveryv1.EndpointSlice:
			k := service.Key{Namespace: obj.Namespace, Name: obj.Labels[discoveryv1.LabelServiceName]}
			out[k] = model.Objects{Service: out[k].Service, Slices: append(out[k].Slices, obj)}
		case *corev1.Pod:
			out[service.Key{Kind: model.KindPod, Namespace: obj.Namespace, Name: obj.Name}] = model.Objects{Pod: obj}
		default:
			t.Fatalf("cannot plan a %T", obj)
		}
	}

	return out
}

var protocols = map[uint8]string{6: "tcp", 17: "udp", 132: "sctp"}

// planText formats every plan, by key.
func planText(objects map[service.Key]model.Objects, n *service.Node) string {
	var (
		b    strings.Builder
		keys []service.Key
	)
	for k := range objects {
		keys = append(keys, k)
	}

	slices.SortFunc(keys, service.Key.Compare)

	for _, k := range keys {
		fmt.Fprintf(&b, "%s\n", k)

		p := service.New(objects[k].Meaning(n.Cluster), n)
		if p == nil {
			fmt.Fprintf(&b, "  nothing\n")
			continue
		}

		for i, g := range p.Groups {
			for _, o := range p.Groups[:i] {
				if cmp.Equal(g, o, equal) {
					fmt.Fprintf(&b, "  two groups are equal: %+v\n", g)
				}
			}
		}

		for _, f := range p.Frontends {
			g := p.Groups[f.Group]
			if g.Proto != f.Key.Proto {
				fmt.Fprintf(&b, "  a group of %s has a frontend of another protocol\n", protocols[g.Proto])
			}

			fmt.Fprintf(&b, "  %s/%s", netip.AddrPortFrom(f.Key.Addr, f.Key.Port), protocols[f.Key.Proto])

			switch f.Owner {
			case verdict.ServiceOVN:
				fmt.Fprintf(&b, " ovn")
			case verdict.ServiceHost:
				fmt.Fprintf(&b, " host %s", g.Local)
			}

			if f.Owner != 0 && len(g.Redirect) > 0 {
				fmt.Fprintf(&b, " redirect to %v", g.Redirect)

				if len(g.From) > 0 {
					fmt.Fprintf(&b, " from %v", g.From)
				}
			}

			if f.Socket {
				fmt.Fprintf(&b, " socket to%s", backends(g))
			}

			if f.Key.Addr.IsUnspecified() && g.NotLoopback {
				fmt.Fprintf(&b, ", not on loopback")
			}

			fmt.Fprintln(&b)
		}

		for _, a := range p.VIPs {
			fmt.Fprintf(&b, "  vip %s\n", a)
		}

		for _, a := range p.UDP {
			fmt.Fprintf(&b, "  answers %s\n", a)
		}

		for _, why := range p.Refused {
			fmt.Fprintf(&b, "  refused: %s\n", why)
		}
	}

	return b.String()
}

func backends(g service.Group) string {
	out := ""
	for _, a := range g.Backends {
		out += " " + a.String()
	}

	if out == "" {
		out = " no backend"
	}

	if g.Affinity != 0 {
		out += " for " + g.Affinity.String()
	}

	return out
}
