package nb_test

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/ovn-ebpf/ovn-ebpf/cluster"
	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
	"github.com/ovn-ebpf/ovn-ebpf/controller/nb/nbtest"
	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
	"github.com/ovn-ebpf/ovn-ebpf/controller/reconcile"
)

// policyConfig returns a configuration for the pods of the policy goldens.
func policyConfig() plan.Config {
	return plan.Config{
		Hosts:        annotation.TrustAll(),
		ClusterCIDRs: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16"), netip.MustParsePrefix("fd00:10:244::/48")},
		JoinSubnets:  []netip.Prefix{netip.MustParsePrefix("100.64.0.0/16"), netip.MustParsePrefix("fd98::/64")},
		ExternalIPs:  []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")},
		SNATPorts:    cluster.PortRange{First: 49152, Last: 65535}, MTU: 1400,
	}
}

// commitGolden commits the planned rows of the golden's objects and returns all of them.
func commitGolden(t *testing.T, ovn *nbtest.OVN, name string) []plan.Row {
	t.Helper()

	c, err := reconcile.NewCluster(policyConfig(), goldenObjects(t, name)...)
	if err != nil {
		t.Fatal(err)
	}

	db := open(t, ovn.Server)
	want := map[plan.Key][]plan.Row{}

	var all []plan.Row

	for _, k := range c.Keys() {
		want[k], _ = plan.Rows(c, k) // rows lack malformed parts
		all = append(all, want[k]...)
	}

	commit(t, db, want)
	ovn.Sync()

	return all
}

// TestOVNTakesPolicies checks that northd and the parser of OVN's expressions accept the rows of
// all policies, and that every group has its address sets, even when empty.
func TestOVNTakesPolicies(t *testing.T) {
	files, err := filepath.Glob("../plan/testdata/policy-*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no goldens: %v", err)
	}

	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txtar")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ovn := nbtest.StartOVN(t)
			ovn.AddChassis("node1")

			rows := commitGolden(t, ovn, name)
			for _, w := range ovn.Warnings() {
				t.Errorf("northd: %s", w)
			}

			for _, r := range rows {
				if g, ok := r.(plan.PortGroup); ok {
					for _, suffix := range []string{"_ip4", "_ip6"} {
						if !strings.HasPrefix(ovn.AddressSet(g.Name+suffix), g.Name+suffix) {
							t.Errorf("group %s has no address set %s", g.Name, suffix)
						}
					}
				}
			}

			out := ovn.Trace("node1", `inport == "stor-node1" && eth.src == 0a:58:0a:f4:01:01 && ip4 && ip.ttl == 64`)
			if strings.Contains(out, "WARN") || strings.Contains(out, "ERR") || strings.Contains(out, "rror") {
				t.Errorf("ovn-trace: %s", out)
			}
		})
	}
}

// TestPolicyTraces checks the fate of a connection's first packet with ovn-trace. The field from is
// a pod of the golden or an address outside of the router.
func TestPolicyTraces(t *testing.T) {
	pods := map[string]map[string]int{ // last address byte of each pod, by golden
		"policy-default-deny": {"in_a": 3, "out_a": 4, "both_db": 5, "both_web": 6},
		"policy-peers":        {"prod_db": 3, "prod_web": 4, "other_web": 5, "other_plain": 6},
		"policy-named-ports":  {"ns_a": 3, "ns_b": 4, "ns_none": 5, "ns_client": 6, "other_c": 7, "other_sidecar": 8},
	}

	const node = "10.244.1.2" // its management port
	for golden, flows := range map[string][]struct {
		from, to, packet string
		passes           bool
	}{
		"policy-default-deny": {
			{"in_a", "both_web", "tcp.dst == 80", true},
			{"both_web", "in_a", "tcp.dst == 80", false},
			{node, "in_a", "tcp.dst == 80", true},
			{"169.254.169.5", "in_a", "tcp.dst == 80", true},
			{"10.244.2.2", "in_a", "tcp.dst == 80", false}, // another node
			{"192.0.2.1", "in_a", "icmp4", false},
			{"out_a", "both_web", "tcp.dst == 80", false},
			{"both_web", "out_a", "tcp.dst == 80", true},
			{"out_a", node, "tcp.dst == 80", false},
			{"both_web", "both_db", "tcp.dst == 80", false},
			{"both_db", "both_web", "tcp.dst == 80", false},
			{"both_web", "out_a", "udp.dst == 80", true},
		},
		"policy-peers": {
			{"prod_web", "prod_db", "tcp.dst == 80", true},
			{"other_web", "prod_db", "tcp.dst == 80", true},
			{"other_plain", "prod_db", "tcp.dst == 80", true},
			{"192.0.2.1", "prod_db", "tcp.dst == 80", false},
			{"prod_db", "192.0.2.1", "tcp.dst == 80", true},
			{"prod_db", "192.0.3.1", "tcp.dst == 80", false},
		},
		"policy-named-ports": {
			{"ns_client", "ns_a", "tcp.dst == 8080", false}, // out allows only pods of namespace other
			{"ns_b", "ns_a", "tcp.dst == 8080", true},
			{"ns_b", "ns_a", "tcp.dst == 9090", false},
			{"ns_b", "ns_a", "tcp.dst == 22", true},
			{"ns_a", "ns_b", "tcp.dst == 9090", true},
			{"ns_a", "ns_b", "tcp.dst == 8080", false},
			{"ns_b", "ns_a", "udp.dst == 5353", true},
			{"ns_a", "ns_b", "tcp.dst == 5354", false}, // TCP, but the policy allows UDP
			{"ns_a", "ns_none", "tcp.dst == 8080", false},
			{"other_c", "ns_a", "tcp.dst == 8080", false},
			{"ns_client", "other_c", "tcp.dst == 8080", true},
			{"ns_client", "other_sidecar", "tcp.dst == 8080", false},
			{"ns_client", "other_sidecar", "tcp.dst == 9101", true},
			{"ns_client", "other_sidecar", "tcp.dst == 9100", false},
			{"ns_client", "other_c", "tcp.dst == 9100", true},
		},
	} {
		t.Run(golden, func(t *testing.T) {
			t.Parallel()
			ovn := nbtest.StartOVN(t)
			ovn.AddChassis("node1")
			commitGolden(t, ovn, golden)

			for _, f := range flows {
				out := ovn.Trace("node1", packet(pods[golden], f.from, f.to, f.packet))

				arrives := fmt.Sprintf("output to %q", f.to)
				if pods[golden][f.to] == 0 {
					arrives = `ingress(dp="ovn_cluster_router"`
				}

				if passes := strings.Contains(out, arrives); passes != f.passes {
					t.Errorf("%s to %s, %s: passes is %t, want %t:\n%s", f.from, f.to, f.packet, passes, f.passes, out)
				}
			}
		})
	}
}

// packet returns a packet from one pod or address to another on node1's switch.
func packet(pods map[string]int, from, to, what string) string {
	port, mac, address := "stor-node1", "0a:58:0a:f4:01:01", from
	if last, ok := pods[from]; ok {
		port, mac, address = from, fmt.Sprintf("0a:58:0a:f4:01:%02x", last), fmt.Sprintf("10.244.1.%d", last)
	}

	toMAC, toAddress := "0a:58:0a:f4:01:01", to
	if last, ok := pods[to]; ok {
		toMAC, toAddress = fmt.Sprintf("0a:58:0a:f4:01:%02x", last), fmt.Sprintf("10.244.1.%d", last)
	}

	return fmt.Sprintf("inport == %q && eth.src == %s && eth.dst == %s && ip4.src == %s && ip4.dst == %s && ip.ttl == 64 && %s",
		port, mac, toMAC, address, toAddress, what)
}

// TestPodGroupChangeUpdatesOnlyGroups checks that a pod that moves to another group changes the
// rows of two groups and none of its own.
func TestPodGroupChangeUpdatesOnlyGroups(t *testing.T) {
	server := nbtest.Start(t)
	db := open(t, server)
	objects := goldenObjects(t, "policy-peers")
	rowsOf := func(objects []runtime.Object) map[plan.Key][]plan.Row {
		c, err := reconcile.NewCluster(policyConfig(), objects...)
		if err != nil {
			t.Fatal(err)
		}

		want := map[plan.Key][]plan.Row{}
		for _, k := range c.Keys() {
			if want[k], err = plan.Rows(c, k); err != nil {
				t.Fatal(err)
			}
		}

		return want
	}
	commit(t, db, rowsOf(objects))
	before := db.Stats().Operations
	i := slices.IndexFunc(objects, func(o runtime.Object) bool { return nameOf(o) == "other/web" })
	relabelled := objects[i].DeepCopyObject()
	setLabels(relabelled, map[string]string{"app": "db"})
	objects[i] = relabelled
	commit(t, db, rowsOf(objects))

	after := db.Stats().Operations
	if after["mutate"] != before["mutate"]+1 || after["update"] != before["update"] || after["insert"] != before["insert"] || after["delete"] != before["delete"] {
		t.Errorf("operations before %v, after %v: want one mutation, of the group of the peers of both", before, after)
	}

	uuid := server.Nbctl("--bare", "--columns=_uuid", "find", "Logical_Switch_Port", "name=other_web")
	if got := server.Nbctl("--bare", "--columns=external_ids", "find", "Port_Group", "ports{>=}"+uuid); strings.Contains(got, "NotIn") || !strings.Contains(got, "team=b") {
		t.Errorf("groups of other_web: %s", got)
	}

	commit(t, db, rowsOf(objects))

	if again := db.Stats().Transactions; again != 2 {
		t.Errorf("%d transactions, want 2: no row changed", again)
	}
}

func nameOf(o runtime.Object) string {
	m, err := meta.Accessor(o)
	if err != nil {
		return ""
	}

	return m.GetNamespace() + "/" + m.GetName()
}

func setLabels(o runtime.Object, labels map[string]string) {
	if m, err := meta.Accessor(o); err == nil {
		m.SetLabels(labels)
	}
}
