package cloud_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/ovn-ebpf/ovn-ebpf/controller/cloud"
	"github.com/ovn-ebpf/ovn-ebpf/controller/cloud/cloudtest"
)

var update = flag.Bool("update", false, "rewrite the goldens in testdata")

// TestPlan compares plans with goldens. Each testdata/*.txtar has a comment and these files:
//   - node: a Node in YAML;
//   - config (optional): lines of a setting and its value;
//   - script: commands to scene.run, by line;
//   - plan: what they print.
func TestPlan(t *testing.T) {
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

			s := newScene(t, sections["node"], sections["config"])
			for line := range strings.Lines(sections["script"]) {
				s.run(t, strings.TrimSpace(line))
			}

			got := s.out.String()
			if *update {
				write(t, file, archive, got)
				return
			}

			if diff := cmp.Diff(sections["plan"], got); diff != "" {
				t.Errorf("plan (-golden +got; -update rewrites):\n%s", diff)
			}
		})
	}
}

func write(t *testing.T, file string, archive *txtar.Archive, plan string) {
	t.Helper()

	archive.Files = slices.DeleteFunc(archive.Files, func(f txtar.File) bool { return f.Name == "plan" })

	archive.Files = append(archive.Files, txtar.File{Name: "plan", Data: []byte(plan)})
	if err := os.WriteFile(file, txtar.Format(archive), 0o644); err != nil {
		t.Fatal(err)
	}
}

// scene is a node and its project.
type scene struct {
	config cloud.Config
	node   corev1.Node
	pods   int
	left   bool
	cloud  *cloudtest.Neutron
	out    strings.Builder
}

func newScene(t *testing.T, node, config string) *scene {
	t.Helper()

	s := &scene{config: cloud.Config{Cluster: "k8s", Project: "project", Router: "r", SubnetPool: "pods", Groups: []string{"all"}}}
	if err := yaml.UnmarshalStrict([]byte(node), &s.node); err != nil {
		t.Fatal(err)
	}

	for line := range strings.Lines(config) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch key {
		case "subnet-pool-6":
			s.config.SubnetPool6 = value
		case "max-ports":
			s.config.MaxPorts = number(t, value)
		case "prefix-length":
			s.config.PrefixLength = number(t, value)
		default:
			t.Fatalf("no setting %s", key)
		}
	}

	s.cloud = cloudtest.New(cloud.Port{
		ID: "vif", Project: "project", MAC: "fa:16:3e:00:00:aa", Network: "vms", Device: "server1",
		FixedIPs: []cloud.FixedIP{{Subnet: "vms", Address: netip.MustParseAddr("10.0.0.11")}},
	})

	return s
}

func number(t *testing.T, text string) int {
	t.Helper()

	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}

	return n
}

// plan returns what is to be done now. A node that is refused has a problem.
func (s *scene) plan() cloud.Plan {
	if s.left {
		return cloud.Release(s.config, s.node.Name, s.cloud.Seen)
	}

	pool, err := cloud.NodePool(s.config, &s.node, s.pods)

	var problem *cloud.Problem
	switch {
	case errors.As(err, &problem):
		return cloud.Plan{Problems: []cloud.Problem{*problem}}
	case err != nil:
		return cloud.Plan{}
	}

	return pool.Plan(s.cloud.Seen)
}

// settle executes the first step of each plan until there is none, and returns the problems left.
func (s *scene) settle(print func(cloud.Step)) ([]cloud.Problem, error) {
	for range 10000 {
		plan := s.plan()
		if len(plan.Steps) == 0 {
			return plan.Problems, nil
		}

		if _, err := s.cloud.Do(context.Background(), plan.Steps[0]); err != nil {
			return nil, err
		}

		print(plan.Steps[0])
	}

	return nil, errors.New("the plan has no end")
}

// run executes a command of a script and prints what comes of it.
func (s *scene) run(t *testing.T, command string) {
	t.Helper()
	fmt.Fprintf(&s.out, "$ %s\n", command)

	f := strings.Fields(command)
	switch f[0] {
	case "plan": // the steps that are possible now, and problems
		plan := s.plan()
		for _, step := range plan.Steps {
			fmt.Fprintln(&s.out, step)
		}

		s.problems(plan.Problems)
	case "settle": // all steps to the end, one plan each
		problems, err := s.settle(func(step cloud.Step) { fmt.Fprintln(&s.out, step) })
		if err != nil {
			t.Fatal(err)
		}

		s.problems(problems)
	case "settle-quietly":
		problems, err := s.settle(func(cloud.Step) {})
		if err != nil {
			t.Fatal(err)
		}

		s.problems(problems)
	case "steps": // the first steps, one plan each
		for range number(t, f[1]) {
			step := s.plan().Steps[0]
			if _, err := s.cloud.Do(t.Context(), step); err != nil {
				t.Fatal(err)
			}

			fmt.Fprintln(&s.out, step)
		}
	case "record": // what the node is told; it is published by that
		s.record(t)
	case "pods":
		s.pods = number(t, f[1])
	case "leave":
		s.left = true
	case "annotate":
		s.node.Annotations[f[1]] = f[2]
	case "provider":
		s.node.Spec.ProviderID = f[1]
	case "name-length": // of the pool's name, in characters
		s.config.Cluster = strings.Repeat("ä", number(t, f[1])-len("-node1"))
	default:
		s.change(t, f)
	}
}

func (s *scene) problems(all []cloud.Problem) {
	for _, p := range all {
		fmt.Fprintf(&s.out, "problem %s: %s\n", p.Reason, p.Text)
	}
}

func (s *scene) record(t *testing.T) {
	t.Helper()

	pool, err := cloud.NodePool(s.config, &s.node, s.pods)
	if err != nil {
		t.Fatal(err)
	}

	r := pool.Record(s.cloud.Seen)
	fmt.Fprintf(&s.out, "vif %s, trunk %s, network %s, mtu %d", r.VIF, r.Trunk, r.Network, r.MTU)

	for _, g := range r.Gateways {
		fmt.Fprintf(&s.out, ", gateway %s %s", g.Address, g.MAC)
	}

	fmt.Fprintf(&s.out, ", groups %v\n", r.Groups)

	seen := map[string]bool{}

	for _, l := range r.Lines {
		fmt.Fprintf(&s.out, "%s %d %s %v %s", l.Port, l.Tag, l.MAC, l.Addresses, groups(l.Groups))

		if l.Held {
			fmt.Fprint(&s.out, " held")
		}

		fmt.Fprintln(&s.out)

		for _, key := range append(strings.Fields(fmt.Sprint(l.Addresses)), l.Port, fmt.Sprint("tag ", l.Tag)) {
			if key = strings.Trim(key, "[]"); seen[key] {
				t.Errorf("two lines have %s", key)
			}

			seen[key] = true
		}
	}

	s.cloud.Seen.Published = r.Lines
}

// groups returns the groups of a port: "?" if they are unknown, "-" if it has none.
func groups(all []string) string {
	switch {
	case all == nil:
		return "?"
	case len(all) == 0:
		return "-"
	default:
		return fmt.Sprint(all)
	}
}

// change is what others do in the project.
func (s *scene) change(t *testing.T, f []string) {
	t.Helper()

	seen := &s.cloud.Seen
	port := func(id string) *cloud.Port {
		i := slices.IndexFunc(seen.Ports, func(p cloud.Port) bool { return p.ID == id })
		if i < 0 {
			t.Fatalf("no port %s", id)
		}

		return &seen.Ports[i]
	}

	switch f[0] {
	case "quota":
		q := map[string]*cloud.Quota{
			"network": &seen.Quotas.Networks, "subnet": &seen.Quotas.Subnets, "port": &seen.Quotas.Ports, "trunk": &seen.Quotas.Trunks,
		}[f[1]]
		q.Limit = number(t, f[2])
	case "mtu":
		s.cloud.MTU = number(t, f[1])
	case "vif": // vif FIELD VALUE
		v := &seen.VIFs[0]

		switch f[1] {
		case "id":
			v.ID = f[2]
		case "project":
			v.Project = f[2]
		case "address":
			v.FixedIPs[0].Address = netip.MustParseAddr(f[2])
		case "owner":
			v.Owner = f[2]
		case "server": // vif server [ID]
			v.Device = strings.Join(f[2:], "")
		case "mtu": // of its network
			seen.VIFMTU = number(t, f[2])
		}
	case "delete": // a port, out of its trunk too
		for _, tr := range seen.Trunks {
			*seen = seen.After(cloud.RemoveSubports{Trunk: tr.ID, Ports: f[1:2]}, cloud.Result{})
		}

		*seen = seen.After(cloud.DeletePort{Port: port(f[1]).ID}, cloud.Result{})
	case "delete-subnet": // with its ports
		for _, p := range seen.Ports {
			if p.FixedIPs[0].Subnet == f[1] {
				s.change(t, []string{"delete", p.ID})
			}
		}

		*seen = seen.After(cloud.DeleteSubnet{Subnet: f[1]}, cloud.Result{})
	case "replace": // replace PORT ID MAC: another port has its name, address and tag
		p := port(f[1])
		p.ID, p.MAC = f[2], f[3]

		for _, tr := range seen.Trunks {
			for i := range tr.Subports {
				if tr.Subports[i].Port == f[1] {
					tr.Subports[i].Port = f[2]
				}
			}
		}
	case "delete-trunk":
		*seen = seen.After(cloud.DeleteTrunk{Trunk: f[1]}, cloud.Result{})
	case "readdress":
		port(f[1]).FixedIPs[0].Address = netip.MustParseAddr(f[2])
	case "mac":
		port(f[1]).MAC = f[2]
	case "groups": // groups PORT GROUP...; "?": Neutron does not say which
		if port(f[1]).Groups = f[2:]; slices.Equal(f[2:], []string{"?"}) {
			port(f[1]).Groups = nil
		}
	case "retag":
		for _, tr := range seen.Trunks {
			for i := range tr.Subports {
				if tr.Subports[i].Port == f[1] {
					tr.Subports[i].Tag = number(t, f[2])
				}
			}
		}
	case "do": // another's or a repeated request: do network NAME, do port ADDRESS, do trunk PORT TAG...
		s.do(t, f[1:])
	default:
		t.Fatalf("no command %s", f[0])
	}
}

func (s *scene) do(t *testing.T, f []string) {
	t.Helper()

	var step cloud.Step

	switch f[0] {
	case "again": // the plan's first step, twice
		step = s.plan().Steps[0]
		if _, err := s.cloud.Do(t.Context(), step); err != nil {
			t.Fatal(err)
		}
	case "network":
		step = cloud.CreateNetwork{Name: f[1], Description: "another's"}
	case "port":
		step = cloud.CreatePorts{Ports: []cloud.Port{{
			Name: "another's", Network: "n1", FixedIPs: []cloud.FixedIP{{Subnet: "s1", Address: netip.MustParseAddr(f[1])}},
			Groups: []string{},
		}}}
	case "trunk":
		step = cloud.CreateTrunk{Name: "another's", Port: "vif"}
	case "trunk-of": // a node of this cluster
		step = cloud.CreateTrunk{
			Name: "k8s-" + f[1], Description: "ovn-ebpf pool of node " + f[1] + " of cluster k8s", Port: "vif",
		}
	case "subport":
		step = cloud.AddSubports{Trunk: "t1", Subports: []cloud.Subport{{Port: f[1], Tag: number(t, f[2])}}}
	}

	if _, err := s.cloud.Do(t.Context(), step); err != nil {
		t.Fatal(err)
	}
}
