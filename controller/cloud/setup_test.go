package cloud_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"github.com/ovn-ebpf/ovn-ebpf/controller/cloud"
	"github.com/ovn-ebpf/ovn-ebpf/test/randomtest"
)

// setupScene is a project in which a cluster is set up. Its do answers as Neutron does.
type setupScene struct {
	setup cloud.Setup
	seen  cloud.SetupObservation
	made  map[string]int
}

// newSetupScene returns a project with the VMs' network, an external network, and nothing else.
func newSetupScene() *setupScene {
	all := []string{"quotas", "router", "security-group", "subnet_allocation", "trunk"}
	s := &setupScene{
		setup: cloud.Setup{
			Config: cloud.Config{Cluster: "k8s", Project: "project"}, VMNetwork: "vms",
			Prefix:       netip.MustParsePrefix("10.244.0.0/16"),
			ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")},
		},
		seen: cloud.SetupObservation{
			Observation: cloud.Observation{
				Networks: []cloud.Network{
					{ID: "n1", Name: "vms", Project: "project"},
					{ID: "n2", Name: "public", Project: "operator", External: true},
				},
				Subnets: []cloud.Subnet{{
					ID: "s1", Name: "vms", Network: "n1",
					Prefix:  netip.MustParsePrefix("10.0.0.0/24"),
					Gateway: netip.MustParseAddr("10.0.0.1"),
				}},
				Quotas: defaultQuotas(),
			},
			Extensions:     all,
			SecurityGroups: []cloud.SecurityGroup{{ID: "g1", Name: "default", Project: "project"}},
		},
		made: map[string]int{},
	}

	return s
}

// defaultQuotas are Neutron's, with the use of a project that has a network with a VM.
func defaultQuotas() cloud.Quotas {
	return cloud.Quotas{
		Networks: cloud.Quota{Limit: 100, Used: 1}, Subnets: cloud.Quota{Limit: 100, Used: 1},
		Ports: cloud.Quota{Limit: 500, Used: 2}, Trunks: cloud.Quota{Limit: -1},
		Routers: cloud.Quota{Limit: 10}, SubnetPools: cloud.Quota{Limit: -1},
		SecurityGroups: cloud.Quota{Limit: 10, Used: 1}, Rules: cloud.Quota{Limit: 100, Used: 4},
	}
}

// id returns the next ID of a kind of objects. Those of the project before have lower numbers.
func (s *setupScene) id(kind string) string {
	s.made[kind]++
	return fmt.Sprint(kind, s.made[kind]+10)
}

func (s *setupScene) do(step cloud.Step) {
	var r cloud.Result

	switch step := step.(type) {
	case cloud.CreateRouter:
		r.Router = cloud.Router{
			ID: s.id("r"), Name: step.Name, Description: step.Description, Project: "project",
			External: step.External,
		}
	case cloud.AddInterface:
		is := func(n cloud.Subnet) bool { return n.ID == step.Subnet }
		n := s.seen.Subnets[slices.IndexFunc(s.seen.Subnets, is)]
		r.Ports = []cloud.Port{s.interfaceOf(step.Router, n)}
	case cloud.CreateSubnetPool:
		r.SubnetPool = cloud.SubnetPool{
			ID: s.id("p"), Name: step.Name, Description: step.Description, Project: "project",
			Prefixes: []netip.Prefix{step.Prefix}, Shortest: step.Shortest, Longest: step.Longest,
		}
	case cloud.CreateSecurityGroup:
		r.SecurityGroup = cloud.SecurityGroup{
			ID: s.id("g"), Name: step.Name, Description: step.Description, Project: "project",
			Open: []cloud.Rule{
				{Direction: "egress", EtherType: "IPv4"}, {Direction: "egress", EtherType: "IPv6"},
			},
		}
	}

	s.seen = s.seen.After(step, r)
}

// interfaceOf returns the port of a router in the subnet.
func (s *setupScene) interfaceOf(router string, n cloud.Subnet) cloud.Port {
	return cloud.Port{
		ID: s.id("i"), Network: n.Network, Device: router, Owner: "network:router_interface",
		FixedIPs: []cloud.FixedIP{{Subnet: n.ID, Address: n.Gateway}},
	}
}

// addSubnet adds a subnet to a network.
func (s *setupScene) addSubnet(id, network, prefix, gateway string) {
	n := cloud.Subnet{ID: id, Network: network, Prefix: netip.MustParsePrefix(prefix)}
	if gateway != "" {
		n.Gateway = netip.MustParseAddr(gateway)
	}

	s.seen.Subnets = append(s.seen.Subnets, n)
}

// addRouter adds a router that the setup did not make, with interfaces in the subnets.
func (s *setupScene) addRouter(id, project string, subnets ...string) {
	s.seen.Routers = append(s.seen.Routers, cloud.Router{ID: id, Name: "another", Project: project})
	for _, n := range s.seen.Subnets {
		if slices.Contains(subnets, n.ID) {
			s.seen.Ports = append(s.seen.Ports, s.interfaceOf(id, n))
		}
	}
}

// addSubnetPool adds a subnet pool that the setup did not make, for subnets of all lengths.
func (s *setupScene) addSubnetPool(id, project, prefix string) {
	s.seen.SubnetPools = append(s.seen.SubnetPools, cloud.SubnetPool{
		ID: id, Name: "another", Project: project, Shortest: 8, Longest: 128,
		Prefixes: []netip.Prefix{netip.MustParsePrefix(prefix)},
	})
}

// settle executes the plan to its end, and returns what a user sees of it.
func (s *setupScene) settle(t *testing.T) string {
	t.Helper()

	var out strings.Builder

	for range 100 {
		plan := s.setup.Plan(s.seen)
		for _, p := range plan.Problems {
			fmt.Fprintf(&out, "%s: %s\n", p.Reason, p.Text)
		}

		if len(plan.Problems) > 0 && len(plan.Steps) > 0 {
			t.Errorf("steps beside problems: %v", plan.Steps)
		}

		if len(plan.Steps) == 0 {
			return out.String()
		}

		fmt.Fprintln(&out, plan.Steps[0])
		s.do(plan.Steps[0])
	}

	t.Fatal("the plan has no end")

	return ""
}

// setupCases are projects and wishes, by name.
var setupCases = []struct {
	name   string
	change func(s *setupScene)
}{
	// The setup makes what is missing.
	{"an empty project", func(*setupScene) {}},
	{"both families and an external network", func(s *setupScene) {
		s.setup.ExternalNetwork = "public"
		s.setup.Prefix6 = netip.MustParsePrefix("fd00:10:244::/48")
		s.addSubnet("s2", "n1", "fd00::/64", "fd00::1")
	}},
	{"an IPv6 subnet of the VMs, and pods with IPv4 only", func(s *setupScene) {
		s.addSubnet("s2", "n1", "fd00::/64", "fd00::1")
	}},
	{"two subnets of the VMs", func(s *setupScene) {
		s.addSubnet("s2", "n1", "10.0.1.0/24", "10.0.1.1")
	}},
	{"a short cluster subnet", func(s *setupScene) {
		s.setup.Prefix = netip.MustParsePrefix("10.244.0.0/27")
	}},
	{"names instead of IDs are IDs, too", func(s *setupScene) {
		s.setup.VMNetwork, s.setup.ExternalNetwork = "n1", "n2"
	}},

	// The setup uses what there is.
	{"the VMs' network has a router", func(s *setupScene) { s.addRouter("r1", "project", "s1") }},
	{"the router of the VMs gets its gateway", func(s *setupScene) {
		s.addRouter("r1", "project", "s1")
		s.setup.ExternalNetwork = "public"
	}},
	{"everything is chosen", func(s *setupScene) {
		s.addRouter("r1", "project")
		s.addSubnetPool("p1", "project", "10.200.0.0/16")
		s.addSubnetPool("p2", "project", "fd00:1::/48")
		s.setup.Router, s.setup.SubnetPool, s.setup.SubnetPool6 = "r1", "p1", "p2"
		s.setup.Groups, s.setup.Prefix = []string{"g1"}, netip.Prefix{}
	}},
	{"the chosen router has its interface", func(s *setupScene) {
		s.addRouter("r1", "project", "s1")
		s.addRouter("r2", "project")
		s.setup.Router = "r1"
	}},
	{"another's objects have the same names", func(s *setupScene) {
		s.seen.Routers = []cloud.Router{{ID: "r1", Name: "k8s", Project: "project"}}
		s.seen.SubnetPools = []cloud.SubnetPool{{ID: "p1", Name: "k8s", Project: "project"}}
		s.seen.SecurityGroups = []cloud.SecurityGroup{{ID: "g1", Name: "k8s", Project: "project"}}
	}},
	{"the VMs have addresses of the subnet pool", func(s *setupScene) {
		s.addSubnetPool("p1", "project", "10.0.0.0/16")
		s.seen.Subnets[0].SubnetPool = "p1"
		s.setup.SubnetPool, s.setup.Prefix = "p1", netip.Prefix{}
	}},

	// Refusals.
	{"no trunks", func(s *setupScene) { s.seen.Extensions = s.seen.Extensions[:4] }},
	{"unknown router", func(s *setupScene) { s.setup.Router = "r9" }},
	{"another project's router", func(s *setupScene) {
		s.addRouter("r1", "other")
		s.setup.Router = "r1"
	}},
	{"the VMs' router is another project's", func(s *setupScene) {
		s.addRouter("r1", "other", "s1")
	}},
	{"the VMs have another router", func(s *setupScene) {
		s.addRouter("r1", "project", "s1")
		s.addRouter("r2", "project")
		s.setup.Router = "r2"
	}},
	{"the VMs have two routers", func(s *setupScene) {
		s.addRouter("r1", "project", "s1")
		s.addRouter("r2", "project", "s1")
	}},
	{"two routers of the cluster", func(s *setupScene) {
		mine := cloud.Router{ID: "r1", Name: "k8s", Project: "project"}
		mine.Description = "ovn-ebpf router of cluster k8s"
		s.seen.Routers = []cloud.Router{mine, mine}
		s.seen.Routers[1].ID = "r2"
	}},
	{"the router has its gateway elsewhere", func(s *setupScene) {
		s.addRouter("r1", "project", "s1")
		s.seen.Routers[0].External = "n3"
		s.setup.ExternalNetwork = "public"
	}},
	{"the gateway's address is taken", func(s *setupScene) {
		s.seen.Ports = []cloud.Port{{
			ID: "i1", Network: "n1", Device: "vm", Owner: "compute:nova",
			FixedIPs: []cloud.FixedIP{{Subnet: "s1", Address: netip.MustParseAddr("10.0.0.1")}},
		}}
	}},
	{"the VMs' subnet has no gateway", func(s *setupScene) {
		s.seen.Subnets[0].Gateway = netip.Addr{}
	}},
	{"another project's network of VMs", func(s *setupScene) {
		s.seen.Networks[0].Project = "other"
	}},
	{"unknown networks", func(s *setupScene) {
		s.setup.VMNetwork, s.setup.ExternalNetwork = "vm", "publik"
	}},
	{"two networks of the name", func(s *setupScene) {
		other := cloud.Network{ID: "n3", Name: "vms", Project: "project"}
		s.seen.Networks = append(s.seen.Networks, other)
	}},
	{"an external network that is not external", func(s *setupScene) {
		s.setup.ExternalNetwork = "vms"
	}},
	{"a network without IPv4", func(s *setupScene) {
		s.seen.Subnets = nil
		s.addSubnet("s1", "n1", "fd00::/64", "fd00::1")
	}},
	{"unknown subnet pools", func(s *setupScene) {
		s.setup.SubnetPool, s.setup.SubnetPool6 = "p8", "p9"
	}},
	{"another project's subnet pool", func(s *setupScene) {
		s.addSubnetPool("p1", "other", "10.200.0.0/16")
		s.setup.SubnetPool = "p1"
	}},
	{"subnet pools of the wrong family", func(s *setupScene) {
		s.addSubnetPool("p1", "project", "10.200.0.0/16")
		s.addSubnetPool("p2", "project", "fd00:1::/48")
		s.setup.SubnetPool, s.setup.SubnetPool6 = "p2", "p1"
	}},
	{"a subnet pool of large subnets", func(s *setupScene) {
		s.addSubnetPool("p1", "project", "10.200.0.0/16")
		s.seen.SubnetPools[0].Longest = 19
		s.setup.SubnetPool, s.setup.Prefix = "p1", netip.Prefix{}
	}},
	{"a subnet pool of other addresses", func(s *setupScene) {
		s.addSubnetPool("p1", "project", "10.200.0.0/16")
		s.setup.SubnetPool = "p1"
	}},
	{"a cluster subnet without room", func(s *setupScene) {
		s.setup.Prefix = netip.MustParsePrefix("10.244.0.0/29")
		s.setup.Prefix6 = netip.MustParsePrefix("fd00::/65")
	}},
	{"no addresses of pods", func(s *setupScene) { s.setup.Prefix = netip.Prefix{} }},
	{"pods overlap the VMs", func(s *setupScene) {
		s.setup.Prefix = netip.MustParsePrefix("10.0.0.0/16")
	}},
	{"pods overlap Services", func(s *setupScene) {
		s.setup.Prefix = netip.MustParsePrefix("10.96.0.0/12")
	}},
	{"Services overlap the VMs", func(s *setupScene) {
		s.setup.ServiceCIDRs = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/16")}
	}},
	{"a subnet pool overlaps the VMs and Services", func(s *setupScene) {
		s.addSubnetPool("p1", "project", "10.0.0.0/8")
		s.setup.SubnetPool, s.setup.Prefix = "p1", netip.Prefix{}
	}},
	{"pods overlap another network of the router", func(s *setupScene) {
		s.addSubnet("s2", "n9", "10.244.3.0/24", "10.244.3.1")
		s.addRouter("r1", "project", "s1", "s2")
	}},
	{"unknown security groups", func(s *setupScene) {
		s.setup.Groups = []string{"g1", "g8", "g9"}
	}},
	{"no room for one node", func(s *setupScene) {
		q := &s.seen.Quotas
		q.Networks.Limit, q.Subnets.Limit, q.Ports.Limit, q.Trunks.Limit = 1, 1, 16, 0
		q.Routers.Limit, q.SubnetPools.Limit, q.SecurityGroups.Limit, q.Rules.Limit = 0, 0, 1, 7
	}},
	{"just enough room for one node", func(s *setupScene) {
		q := &s.seen.Quotas
		q.Networks.Limit, q.Subnets.Limit, q.Ports.Limit, q.Trunks.Limit = 2, 2, 18, 1
		q.Routers.Limit, q.SubnetPools.Limit, q.SecurityGroups.Limit, q.Rules.Limit = 1, 1, 2, 8
	}},
}

// TestSetup compares the steps and problems of each case with a golden, and what there is at the
// end. A second run makes nothing and comes to the same.
func TestSetup(t *testing.T) {
	const comment = "Steps, problems, and what there is at the end. -update rewrites this file.\n"

	archive := &txtar.Archive{Comment: []byte(comment)}

	for _, tc := range setupCases {
		t.Run(tc.name, func(t *testing.T) {
			s := newSetupScene()
			tc.change(s)

			text := s.settle(t)
			if len(s.setup.Plan(s.seen).Problems) == 0 {
				config, inventory := s.setup.Complete(s.seen), s.setup.Inventory(s.seen)
				text += fmt.Sprintf("router %s, subnet pools %q %q, groups %v\n",
					config.Router, config.SubnetPool, config.SubnetPool6, config.Groups)
				text += "- " + strings.Join(inventory, "\n- ") + "\n"

				chosen := *s

				chosen.setup.Config = config // as pasted into the configuration
				for _, again := range []*setupScene{s, &chosen} {
					if more := again.settle(t); more != "" {
						t.Errorf("a second run does: %s", more)
					}

					if diff := cmp.Diff(config, again.setup.Complete(again.seen)); diff != "" {
						t.Errorf("a second run comes to another result (-first +second):\n%s", diff)
					}
				}
			}

			archive.Files = append(archive.Files, txtar.File{Name: tc.name, Data: []byte(text)})
		})
	}

	file := filepath.Join("testdata", "setup", "cases.txtar")

	got := string(txtar.Format(archive))
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}

	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}

	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("cases (-golden +got; -update rewrites):\n%s", diff)
	}
}

// TestSetup_interrupted: a setup that ends after any of its possible steps, in any order, is
// continued by the next run and comes to the same numbers of objects.
func TestSetup_interrupted(t *testing.T) {
	seed := randomtest.Seed(t)
	for i := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, i))
		s := newSetupScene()
		s.setup.ExternalNetwork = "public"
		s.setup.Prefix6 = netip.MustParsePrefix("fd00:10:244::/48")
		s.addSubnet("s2", "n1", "fd00::/64", "fd00::1")

		for len(s.setup.Plan(s.seen).Steps) > 0 {
			steps := s.setup.Plan(s.seen).Steps
			random.Shuffle(len(steps), func(i, j int) { steps[i], steps[j] = steps[j], steps[i] })

			for _, step := range steps[:1+random.IntN(len(steps))] {
				s.do(step)
			}
		}

		if problems := s.setup.Plan(s.seen).Problems; len(problems) > 0 {
			t.Fatalf("seed %d, %d: problems %v", seed, i, problems)
		}

		if want := map[string]int{"r": 1, "i": 2, "p": 2, "g": 1}; !cmp.Equal(s.made, want) {
			t.Fatalf("seed %d, %d: made %v, want %v", seed, i, s.made, want)
		}

		if lines := s.setup.Inventory(s.seen); len(lines) != 12 {
			t.Fatalf("seed %d, %d: inventory %q, want 12 lines", seed, i, lines)
		}
	}
}

// TestSetup_fullQuota: a cluster with nodes that have used all quotas is set up again without a
// problem, because nothing is to be made. The node's subnet is a part of the subnet pool, and does
// not count as an overlap.
func TestSetup_fullQuota(t *testing.T) {
	s := newSetupScene()
	s.settle(t)

	q := &s.seen.Quotas
	for _, one := range []*cloud.Quota{
		&q.Networks, &q.Subnets, &q.Ports, &q.Trunks,
		&q.Routers, &q.SubnetPools, &q.SecurityGroups, &q.Rules,
	} {
		one.Limit = one.Used
	}

	if problems := s.setup.Plan(s.seen).Problems; len(problems) != 4 {
		t.Errorf("before the first node: %v, want networks, subnets, ports and trunks", problems)
	}

	s.seen.Networks = append(s.seen.Networks, cloud.Network{
		ID: "n5", Name: "k8s-node1", Project: "project",
		Description: "ovn-ebpf pool of node node1 of cluster k8s",
	})
	s.addSubnet("s5", "n5", "10.244.0.0/26", "10.244.0.1")
	node := &s.seen.Subnets[len(s.seen.Subnets)-1]
	s.seen.Ports = append(s.seen.Ports, s.interfaceOf("r11", *node))

	problems := s.setup.Plan(s.seen).Problems
	if len(problems) != 1 || problems[0].Reason != cloud.OverlappingPrefix {
		t.Errorf("a subnet of no subnet pool: %v, want an overlap", problems)
	}

	node.SubnetPool = "p11"

	if plan := s.setup.Plan(s.seen); len(plan.Problems)+len(plan.Steps) > 0 {
		t.Errorf("a cluster with a node: %v", plan)
	}
}
