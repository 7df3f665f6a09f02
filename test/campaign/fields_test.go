package campaign

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

func (f field) String() string { return f.kind + " " + f.path }

// TestFieldsAreRead checks that the table has exactly the fields that the product reads.
func TestFieldsAreRead(t *testing.T) {
	read := readProduct(t).read()
	for _, f := range fields {
		if _, ok := read[f.String()]; !ok {
			t.Errorf("%s: no code reads it, or it reads a part of it", f)
		}

		delete(read, f.String())
	}

	for _, name := range slices.Sorted(maps.Keys(read)) {
		t.Errorf("%s: the table lacks it; it is read at %s", name, read[name])
	}
}

// TestFieldsAreFound checks that the reading of the code finds fields that are selected directly,
// through embedded structs, by an interface and in structs that several fields share.
func TestFieldsAreFound(t *testing.T) {
	read := readProduct(t).read()
	for _, name := range []string{"Pod spec.hostNetwork", "Service metadata.labels", "NetworkPolicy metadata.annotations", "NetworkPolicy spec.ingress.from.podSelector.matchLabels"} {
		if _, ok := read[name]; !ok {
			t.Errorf("%s is not found", name)
		}
	}

	for _, name := range []string{"Pod spec.affinity", "Service spec.loadBalancerIP", "EndpointSlice endpoints.targetRef", "Pod metadata.continue"} {
		if at, ok := read[name]; ok {
			t.Errorf("%s is found at %s, which does not read it", name, at)
		}
	}
}

// testNamespaces are those of a tenant.
var testNamespaces = []string{"tenant0-a", "tenant0-b"}

// testValues are the inputs of a lab, without one.
func testValues() values {
	v := values{ports: harmfulPorts, wired: 2, macs: []string{"ff:ff:ff:ff:ff:ff", "0a:58:0a:f4:00:03"}}
	for _, text := range harmfulAddresses {
		v.addresses = append(v.addresses, netip.MustParseAddr(text))
	}

	for i := range 3 {
		v.hosts = append(v.hosts, netip.MustParseAddr(fmt.Sprintf("172.30.0.%d", 11+i)), netip.MustParseAddr(fmt.Sprintf("fd00:172:30::%d", 11+i)))
		v.subnets = append(v.subnets, []netip.Prefix{netip.MustParsePrefix(fmt.Sprintf("10.244.%d.0/24", i)), netip.MustParsePrefix(fmt.Sprintf("fd00:10:244:%d::/64", i))})
	}

	v.used = append(slices.Clone(v.hosts), outside(false), outside(true), netip.MustParseAddr("10.244.0.3"), netip.MustParseAddr("fd00:10:244::3"))

	return v
}

// recorder is a stand-in for the API server: it keeps the last object of each name, for calls that
// report a status.
type recorder map[string]metav1.Object

func key(o metav1.Object) string {
	return kindOf(o) + "/" + o.GetNamespace() + "/" + o.GetName()
}

// take returns the object as a call leaves it, or nil.
func (r recorder) take(c call) metav1.Object {
	switch c.verb {
	case create, replace, toggle:
		r[key(c.object)] = c.object
		return c.object
	case report:
		if now := r[key(c.object)]; now != nil {
			c.status(now)
			return now
		}
	}

	return nil
}

// TestFieldsAreWritten checks that the generator sets every field of the table to at least two
// values, and that the function that the table names sets it.
func TestFieldsAreWritten(t *testing.T) {
	const steps = 3000

	g, err := newGenerator(rand.NewPCG(1, 0), testValues(), nil, testNamespaces)
	if err != nil {
		t.Fatal(err)
	}

	set, seen := recorder{}, map[field]map[string]bool{}

	for range steps {
		for _, c := range g.step().calls {
			o := set.take(c)

			open := func(f field) bool { return o != nil && f.kind == kindOf(o) && f.reason == "" && len(seen[f]) < 2 }
			if !slices.ContainsFunc(fields, open) {
				continue
			}

			object := plain(t, o)

			for _, f := range fields {
				if !open(f) {
					continue
				}

				if seen[f] == nil {
					seen[f] = map[string]bool{}
				}

				for _, value := range at(object, strings.Split(f.path, ".")) {
					seen[f][value] = true
				}
			}
		}
	}

	sets := assignments(t)

	for _, f := range fields {
		switch name := f.path[strings.LastIndex(f.path, ".")+1:]; {
		case (f.reason == "") != (f.set != ""):
			t.Errorf("%s: want either a function or a reason", f)
		case f.reason != "":
		case !sets[f.set][strings.ToLower(name)]:
			t.Errorf("%s: function %s does not set it", f, f.set)
		case len(seen[f]) < 2:
			t.Errorf("%s is set to %v in %d steps, want two values", f, slices.Collect(maps.Keys(seen[f])), steps)
		}
	}
}

// plain returns an object as the API has it, with false for fields that are left out then.
func plain(t *testing.T, o metav1.Object) any {
	t.Helper()

	b, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}

	var out map[string]any
	if err := json.Unmarshal(b, &out); err != nil {
		t.Fatal(err)
	}

	if p, ok := o.(*corev1.Pod); ok {
		out["spec"].(map[string]any)["hostNetwork"] = p.Spec.HostNetwork
	}

	return out
}

// at returns the values of a field, of all elements of lists on the way to it.
func at(v any, path []string) (out []string) {
	if list, ok := v.([]any); ok {
		for _, e := range list {
			out = append(out, at(e, path)...)
		}

		return out
	}

	if len(path) == 0 {
		return []string{fmt.Sprint(v)}
	}

	if m, ok := v.(map[string]any); ok && m[path[0]] != nil {
		return at(m[path[0]], path[1:])
	}

	return nil
}

// assignments returns, for each function of this package, the names that it sets in structs, in
// lower case.
func assignments(t *testing.T) map[string]map[string]bool {
	t.Helper()

	out := map[string]map[string]bool{}

	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}

	for _, name := range files {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}

		for _, d := range f.Decls {
			if d, ok := d.(*ast.FuncDecl); ok {
				if out[d.Name.Name] == nil {
					out[d.Name.Name] = map[string]bool{}
				}

				maps.Copy(out[d.Name.Name], setBy(d))
			}
		}
	}

	return out
}

func setBy(d *ast.FuncDecl) map[string]bool {
	out := map[string]bool{}

	ast.Inspect(d, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.KeyValueExpr:
			if id, ok := n.Key.(*ast.Ident); ok {
				out[strings.ToLower(id.Name)] = true
			}
		case *ast.AssignStmt:
			for _, x := range n.Lhs {
				if i, ok := x.(*ast.IndexExpr); ok {
					x = i.X
				}

				if s, ok := x.(*ast.SelectorExpr); ok {
					out[strings.ToLower(s.Sel.Name)] = true
				}
			}
		}

		return true
	})

	return out
}

// TestAttacksAreMade checks that all attacks are made before one is made again, that every second
// step is left for random ones, that no Service asks for an address of the outside host, and that
// the tenant writes in each of its namespaces.
func TestAttacksAreMade(t *testing.T) {
	g, err := newGenerator(rand.NewPCG(2, 0), testValues(), nil, testNamespaces)
	if err != nil {
		t.Fatal(err)
	}

	made, in := map[string]int{}, map[string]int{}

	for range 2000 {
		s := g.step()

		made[s.kind]++
		for _, c := range s.calls {
			in[c.object.GetNamespace()]++

			svc, ok := c.object.(*corev1.Service)
			if ok && slices.ContainsFunc(svc.Spec.ExternalIPs, func(a string) bool { return a == outside(false).String() || a == outside(true).String() }) {
				t.Errorf("%s: external IPs %v are the outside host's", s.kind, svc.Spec.ExternalIPs)
			}
		}
	}

	if namespaces := slices.Sorted(maps.Keys(in)); !slices.Equal(namespaces, testNamespaces) {
		t.Errorf("calls in namespaces %q, want %q", namespaces, testNamespaces)
	}

	for _, a := range g.attacks() {
		if made[a.name] == 0 {
			t.Errorf("%s is not made", a.name)
		}
	}

	for _, k := range g.kinds() {
		if made[k.name] == 0 {
			t.Errorf("kind %q is not made", k.name)
		}
	}
}

// TestOnlyChosenSteps checks that a regular expression chooses kinds of steps and attacks.
func TestOnlyChosenSteps(t *testing.T) {
	for only, want := range map[string][]string{"^policy$": {"policy"}, "opens ssh": {"", "attack: a slice opens ssh"}} {
		g, err := newGenerator(rand.NewPCG(3, 0), testValues(), regexp.MustCompile(only), testNamespaces)
		if err != nil {
			t.Fatal(err)
		}

		got := map[string]bool{}
		for range 200 {
			got[g.step().kind] = true
		}

		if kinds := slices.Sorted(maps.Keys(got)); !slices.Equal(kinds, want) {
			t.Errorf("%s: steps %q, want %q", only, kinds, want)
		}
	}

	if _, err := newGenerator(rand.NewPCG(3, 0), testValues(), regexp.MustCompile("nothing"), testNamespaces); err == nil {
		t.Error("no kind of steps is chosen, and that is no error")
	}
}

// labSettings are values of the chart that the lab replaces.
var labSettings = map[string]string{
	"CLUSTER_SUBNETS": "has both families", "SERVICE_CIDRS": "has both families", "NB_ADDRESS": "by TCP", "SB_ADDRESS": "by TCP",
}

// TestDefaults checks that what the lab leaves out is the chart's default: the flags of the
// programs have these defaults, or the chart sets nothing.
func TestDefaults(t *testing.T) {
	text, err := os.ReadFile("../../deploy/helm/ovn-ebpf/values.yaml")
	if err != nil {
		t.Fatal(err)
	}

	var chart struct{ Config map[string]string }
	if err := yaml.Unmarshal(text, &chart); err != nil {
		t.Fatal(err)
	}

	settings, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}

	if len(chart.Config) == 0 {
		t.Error("the chart has no settings")
	}

	for name, value := range chart.Config {
		flag := strings.ReplaceAll(strings.ToLower(name), "_", "-")
		row := fmt.Sprintf("| `%s` | ", flag)
		_, rest, documented := strings.Cut(string(settings), row)

		line, _, _ := strings.Cut(rest, "\n")
		switch _, replaced := labSettings[name]; {
		case value == "" || replaced:
		case !documented || !strings.Contains(line, "| `"+value+"` |"):
			t.Errorf("the chart has %s=%s, and that is not the default of --%s, with which the campaign runs: %s", name, value, flag, line)
		}
	}
}
