package nb_test

import (
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/ovn-ebpf/ovn-ebpf/cluster"
	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
	"github.com/ovn-ebpf/ovn-ebpf/controller/nb/nbtest"
	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
	"github.com/ovn-ebpf/ovn-ebpf/controller/reconcile"
)

// TestNorthdTakesPlans checks that northd interprets the plans as intended: it accepts every row of
// the plan's goldens without a warning and makes the expected flows.
func TestNorthdTakesPlans(t *testing.T) {
	ovn := nbtest.StartOVN(t)
	ovn.AddChassis("node1")
	db := open(t, ovn.Server)

	var objects []runtime.Object
	for _, golden := range []string{"service-node-port", "service-ports", "service-dual-stack", "service-no-endpoints", "service-affinity", "pods", "node"} {
		objects = append(objects, goldenObjects(t, golden)...)
	}

	c, err := reconcile.NewCluster(plan.Config{
		Hosts:        annotation.TrustAll(),
		ClusterCIDRs: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16"), netip.MustParsePrefix("fd00:10:244::/48")},
		ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("fd00:10:96::/112")},
		JoinSubnets:  []netip.Prefix{netip.MustParsePrefix("100.64.0.0/16"), netip.MustParsePrefix("fd98::/64")},
		SNATPorts:    cluster.PortRange{First: 49152, Last: 65535}, MTU: 1400,
	}, objects...)
	if err != nil {
		t.Fatal(err)
	}

	want := map[plan.Key][]plan.Row{}

	for _, k := range c.Keys() {
		if rows, err := plan.Rows(c, k); err == nil {
			want[k] = rows
		}
	}

	commit(t, db, want)
	ovn.Sync()

	for _, w := range ovn.Warnings() {
		t.Errorf("northd: %s", w)
	}

	flows := ovn.Flows()
	for what, text := range map[string]string{
		"SNAT to ports reserved for OVN":    "ct_snat(172.30.0.11,49152-65535)",
		"SNAT, IPv6":                        "ct_snat(fd00:172:30::11,49152-65535)",
		"reroute to the management port":    "reg0 = 10.244.1.2",
		"replies to another node's gateway": "ip4.dst == 100.64.0.2/32",
		"pods leave by their own gateway":   "ip4.src == 10.244.1.0/24",
		"default route":                     "reg0 = 172.30.0.200",
		"default route, IPv6":               "xxreg0 = fd00:172:30::200",
		"node port":                         "backends=10.244.1.3:8080",
		"dual-stack service":                "backends=[fd00:10:244:1::3]:8080,[fd00:10:244:2::3]:8080",
		"rejection without endpoints":       "ip4.dst == 10.96.0.11 && tcp && tcp.dst == 80), action=(flags.force_snat_for_lb = 1; reg0 = 0; reject",
		"gateway MTU":                       "check_pkt_larger(1414)",
		"the pod's port security":           `inport == "ns_dual"`,
	} {
		if !strings.Contains(flows, text) {
			t.Errorf("%s: no logical flow contains %q", what, text)
		}
	}
}

// goldenObjects returns the objects of one of the plan's goldens.
func goldenObjects(t *testing.T, name string) []runtime.Object {
	t.Helper()

	archive, err := txtar.ParseFile("../plan/testdata/" + name + ".txtar")
	if err != nil {
		t.Fatal(err)
	}

	var out []runtime.Object

	for _, f := range archive.Files {
		if f.Name != "objects" {
			continue
		}

		for doc := range strings.SplitSeq(string(f.Data), "\n---\n") {
			obj, _, err := scheme.Codecs.UniversalDeserializer().Decode([]byte(doc), nil, nil)
			if err != nil {
				t.Fatal(err)
			}

			out = append(out, obj)
		}
	}

	return out
}
