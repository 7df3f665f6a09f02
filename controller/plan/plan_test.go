package plan_test

import (
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
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/ovn-ebpf/ovn-ebpf/cluster"
	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
	"github.com/ovn-ebpf/ovn-ebpf/controller/reconcile"
)

var update = flag.Bool("update", false, "rewrite the goldens in testdata")

// TestRows compares the rows of clusters with goldens. Each testdata/*.txtar has a comment and
// these files:
//   - config (optional): lines of cluster, service, join, allowed (external IPs), tunnels or hosts
//     (trusted networks of hosts; default: all) and a prefix, or bfd, or named-chassis, or
//     namespace-frontends and a number;
//   - objects: YAML documents;
//   - keys (optional): owners without an object to plan in addition;
//   - kinds (optional): the kinds of owners to show;
//   - show (optional): the owners to show;
//   - tables (optional): the tables to show;
//   - rows: the expected rows.
func TestRows(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no goldens: %v", err)
	}

	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}

			sections := map[string]string{}
			for _, f := range archive.Files {
				sections[f.Name] = string(f.Data)
			}

			c, err := reconcile.NewCluster(parseConfig(t, sections["config"]), decode(t, sections["objects"])...)
			if err != nil {
				t.Fatal(err)
			}

			got := "\n" + planAll(t, c, parseKeys(t, sections["keys"]), sections)
			if diff := cmp.Diff(planOf(c), planOf(trimmed(t, c.Config, decode(t, sections["objects"])))); diff != "" {
				t.Errorf("rows of trimmed objects (-of whole ones +got):\n%s", diff)
			}

			if *update {
				writeRows(t, file, archive, got)
				return
			}

			if diff := cmp.Diff(sections["rows"], got); diff != "" {
				t.Errorf("rows (-golden +got; -update rewrites):\n%s", diff)
			}
		})
	}
}

// trimmed returns a cluster of the objects as the controller's stores keep them.
func trimmed(t *testing.T, cfg plan.Config, objects []runtime.Object) *plan.Cluster {
	t.Helper()

	for _, o := range objects {
		plan.Trim(o)
	}

	c, err := reconcile.NewCluster(cfg, objects...)
	if err != nil {
		t.Fatal(err)
	}

	return c
}

func parseConfig(t *testing.T, text string) plan.Config {
	t.Helper()

	c := plan.Config{SNATPorts: cluster.PortRange{First: 49152, Last: 65535}, MTU: 1400}

	if text == "" {
		text = "cluster 10.244.0.0/16\ncluster fd00:10:244::/48\nservice 10.96.0.0/16\nservice fd00:10:96::/112\njoin 100.64.0.0/16\njoin fd98::/64\n" +
			"allowed 192.0.2.0/24\nallowed 198.51.100.0/24\nallowed 203.0.113.0/24\nallowed 2001:db8::/32"
	}

	if !strings.Contains(text, "hosts ") {
		text += "\nhosts 0.0.0.0/0\nhosts ::/0"
	}

	into := map[string]*[]netip.Prefix{"hosts": &c.Hosts.Networks, "cluster": &c.ClusterCIDRs, "service": &c.ServiceCIDRs, "join": &c.JoinSubnets, "allowed": &c.ExternalIPs, "tunnels": &c.PodTunnels}

	for line := range strings.Lines(text) {
		what, prefix, _ := strings.Cut(strings.TrimSpace(line), " ")
		if what == "" {
			continue
		}

		switch what {
		case "bfd":
			c.BFD = true
			continue
		case "named-chassis":
			c.ChassisOfNode = true
			continue
		}

		if what == "namespace-frontends" {
			if _, err := fmt.Sscan(prefix, &c.Shares.Namespace); err != nil {
				t.Fatalf("config line %q: %v", line, err)
			}

			continue
		}

		p, err := netip.ParsePrefix(prefix)
		if err != nil || into[what] == nil {
			t.Fatalf("config line %q: %v", line, err)
		}

		*into[what] = append(*into[what], p)
	}

	return c
}

func decode(t *testing.T, text string) []runtime.Object {
	t.Helper()

	var objects []runtime.Object

	for doc := range strings.SplitSeq(text, "\n---\n") {
		if strings.TrimSpace(doc) == "" {
			continue
		}

		obj, _, err := scheme.Codecs.UniversalDeserializer().Decode([]byte(doc), nil, nil)
		if err != nil {
			t.Fatalf("decode object: %v\n%s", err, doc)
		}

		objects = append(objects, obj)
	}

	return objects
}

func parseKeys(t *testing.T, text string) []plan.Key {
	t.Helper()

	var keys []plan.Key

	for _, s := range strings.Fields(text) {
		k, err := plan.ParseKey(s)
		if err != nil {
			t.Fatal(err)
		}

		keys = append(keys, k)
	}

	return keys
}

// planAll returns the rows of all owners. Only the golden without objects has the cluster's own
// rows, because they are always the same.
func planAll(t *testing.T, c *plan.Cluster, more []plan.Key, sections map[string]string) string {
	t.Helper()

	keys := c.Keys()
	if len(keys) > 1 || len(more) > 0 {
		keys = append(keys[1:], more...)
	}

	var b strings.Builder

	for _, k := range keys {
		shown := func(section, name string) bool {
			return sections[section] == "" || slices.Contains(strings.Fields(sections[section]), name)
		}
		if !shown("kinds", k.Kind.String()) || !shown("show", k.String()) {
			continue
		}

		fmt.Fprintf(&b, "# %s\n", k)

		rows, err := plan.Rows(c, k)
		if err != nil {
			fmt.Fprintf(&b, "error: %v\n", err)
		}

		b.WriteString(plan.Format(slices.DeleteFunc(slices.Clone(rows), func(r plan.Row) bool { return !shown("tables", r.Table()) })) + "\n")

		again, _ := plan.Rows(c, k)
		if diff := cmp.Diff(plan.Format(rows), plan.Format(again)); diff != "" {
			t.Errorf("%s: two plans differ (-first +second):\n%s", k, diff)
		}
	}

	return b.String()
}

func writeRows(t *testing.T, file string, archive *txtar.Archive, rows string) {
	t.Helper()

	archive.Files = slices.DeleteFunc(archive.Files, func(f txtar.File) bool { return f.Name == "rows" })

	archive.Files = append(archive.Files, txtar.File{Name: "rows", Data: []byte(rows)})
	if err := os.WriteFile(file, txtar.Format(archive), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestKeyText(t *testing.T) {
	for _, k := range []plan.Key{
		plan.ClusterKey(), plan.NodeKey("n.example"), plan.PodKey("ns", "p"), plan.ServiceKey("ns", "s"),
		plan.SelectorKey("a12"), plan.PolicyKey("ns", "p"),
	} {
		if got, err := plan.ParseKey(k.String()); err != nil || got != k {
			t.Errorf("ParseKey(%q) = %v, %v", k, got, err)
		}
	}

	for _, s := range []string{"", "cluster/x", "node/", "node/a/b", "pod/ns", "pod//p", "pod/ns/", "pod/a/b/c", "vm/a/b"} {
		if got, err := plan.ParseKey(s); err == nil {
			t.Errorf("ParseKey(%q) = %v, want an error", s, got)
		}
	}
}
