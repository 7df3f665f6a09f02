package plan

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/ovn-ebpf/ovn-ebpf/cluster"
	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
	services "github.com/ovn-ebpf/ovn-ebpf/service"
)

// TestParseNode_shared checks that the gateway router's address is known to be the host's, too, also
// behind more addresses in host-cidrs than a Node can claim.
func TestParseNode_shared(t *testing.T) {
	var hosts []netip.Prefix
	for i := range 2 * annotation.MaxHostAddresses {
		hosts = append(hosts, netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}), 24))
	}

	own := netip.MustParsePrefix("198.51.100.1/24")
	gateway := annotation.Gateway{
		Mode: annotation.GatewayModeShared, InterfaceID: "breth0_node1", MAC: "02:00:00:00:00:01", Addresses: []netip.Prefix{own},
	}
	obj := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node1", Annotations: map[string]string{
		annotation.HostCIDRs: annotation.FormatHostCIDRs(append(hosts, own)), annotation.GatewayConfig: annotation.FormatGateway(gateway),
	}}}

	n, err := parseNode(obj, Config{})
	if err != nil || len(n.hosts.shared) != 1 || n.hosts.shared[0] != own.Addr() || len(n.hosts.claimed) != annotation.MaxHostAddresses {
		t.Errorf("shared %v, %d claimed, error %v; want %s and %d", n.hosts.shared, len(n.hosts.claimed), err, own.Addr(), annotation.MaxHostAddresses)
	}
}

// TestUnservedText checks how many parts an error names and keeps.
func TestUnservedText(t *testing.T) {
	for n, want := range map[int]string{
		0: "<nil>", 1: "not served: p0", 5: "not served: p0; p1; p2; p3; p4", 6: "not served: p0; p1; p2; p3; p4; and 1 more",
		maxParts: "not served: p0; p1; p10; p11; p12; and 95 more", maxParts + 1: "not served: p0; p1; p10; p11; p12; and 95 more",
	} {
		var s shortfall
		for i := range n {
			s.add("p%d", i)
		}

		if got := fmt.Sprint(newUnserved(s...)); got != want {
			t.Errorf("%d parts: %q, want %q", n, got, want)
		}
	}
}

// TestSourcesText checks the bound on the bytes of the ACLs of source ranges: at the bound they have
// all prefixes, beyond it they admit no client.
func TestSourcesText(t *testing.T) {
	announced := []netip.Addr{netip.MustParseAddr("203.0.113.1"), netip.MustParseAddr("203.0.113.2")}
	s := &service{Service: &services.Service{}, servedPorts: []servedPort{
		{corev1.ProtocolTCP, 80, announced[:1]}, {corev1.ProtocolTCP, 81, announced}, {corev1.ProtocolTCP, 82, announced[:1]},
	}}

	half := strings.Repeat("x", maxServiceBytes/2)
	for _, tc := range []struct {
		refused string
		all     []bool // which ACLs drop all clients
		event   string
	}{
		{half, []bool{false, false}, "<nil>"},
		{half + "x", []bool{false, true}, "not served: loadBalancerSourceRanges: their ACLs would be longer than 16777216 bytes: no client may come"},
	} {
		s.shortfall = nil

		rows := s.sourcesACLs(true, announced, []string{tc.refused})
		if got := fmt.Sprint(newUnserved(s.shortfall...)); got != tc.event || len(rows) != len(tc.all) {
			t.Fatalf("%d bytes: %d ACLs, error %q, want %q", len(tc.refused), len(rows), got, tc.event)
		}

		for i, row := range rows {
			if none := strings.HasSuffix(row.(ACL).Match, " && ip4"); none != tc.all[i] {
				t.Errorf("%d bytes: ACL %d drops all clients: %t", len(tc.refused), i, none)
			}
		}
	}
}

// TestPortRange checks which values of the annotation are valid.
func TestPortRange(t *testing.T) {
	defaults := cluster.PortRange{First: 49152, Last: 65535}
	for text, want := range map[string]cluster.PortRange{
		"": defaults, "1-65535": {First: 1, Last: 65535}, "50000-60000": {First: 50000, Last: 60000}, "50000-50000": {First: 50000, Last: 50000},
		"0-1": {}, "50000-49999": {}, "1-65536": {}, "x-5": {}, "5-x": {}, "5": {}, "-": {}, "-5": {},
	} {
		got, err := parsePortRange(text, defaults)
		if got != want || (err != nil) != (want == cluster.PortRange{}) {
			t.Errorf("%q: %v, %v, want %v", text, got, err, want)
		}
	}
}

// TestIndexes checks that objects without a value of an index, and other kinds, are not in it.
func TestIndexes(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns"}, Spec: corev1.PodSpec{NodeName: "n"}}

	slice := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Labels: map[string]string{discoveryv1.LabelServiceName: "s"}}}
	for _, tc := range []struct {
		name  string
		index func(any) ([]string, error)
		obj   any
		want  string
	}{
		{"bound pod", NodeOf, pod, "[n]"},
		{"unbound pod", NodeOf, &corev1.Pod{}, "[]"},
		{"service's slice", ServiceOf, slice, "[ns/s]"},
		{"slice of no service", ServiceOf, &discoveryv1.EndpointSlice{}, "[]"},
		{"pod's namespace", NamespaceOf, pod, "[ns]"},
		{"service with an address", ServiceFrontends, &corev1.Service{Spec: corev1.ServiceSpec{
			ExternalIPs: []string{"203.0.113.9"}, Ports: []corev1.ServicePort{{Port: 80, NodePort: 30080}},
		}}, "[203.0.113.9 TCP/203.0.113.9/80 TCP/external/80 TCP/node/30080]"},
		{"service with a cluster IP only", ServiceFrontends, &corev1.Service{Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}, "[]"},
	} {
		if got, err := tc.index(tc.obj); fmt.Sprint(got) != tc.want || err != nil {
			t.Errorf("%s: %v, %v, want %s", tc.name, got, err, tc.want)
		}
	}

	for i, index := range []func(any) ([]string, error){NodeOf, ServiceOf, NamespaceOf, ServiceFrontends, PodFrontends, PortNamesOf, PodsOf, SelectorsOf} {
		if got, err := index(&corev1.Node{}); got != nil || err != nil {
			t.Errorf("index %d of another kind: %v, %v", i, got, err)
		}
	}
}

// TestUsagesAreKept checks that the usage of a policy is computed once, and that few old ones are
// kept.
func TestUsagesAreKept(t *testing.T) {
	var us usageCache

	policies := make([]networkingv1.NetworkPolicy, maxUsages+1)
	for i := range policies {
		policies[i].Name = fmt.Sprint(i)
	}

	for i := range maxUsages {
		us.of(&policies[i])
	}

	if first := us.of(&policies[0]); first != us.of(&policies[0]) || len(us.cached) != maxUsages {
		t.Errorf("%d usages are kept, want %d, each once", len(us.cached), maxUsages)
	}

	if us.of(&policies[maxUsages]); len(us.cached) != 1 {
		t.Errorf("%d usages are kept after the limit, want 1", len(us.cached))
	}

	next := policies[maxUsages].DeepCopy()
	next.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeEgress}

	if u := us.of(next); !u.out || us.of(next) != u || len(us.cached) != 1 {
		t.Errorf("%d usages are kept, want that of the last version; of its directions: %+v", len(us.cached), u)
	}
}

// TestNamedPortContainers checks that only containers with named ports that run as long as the pod remain.
func TestNamedPortContainers(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	web := []corev1.ContainerPort{{Name: "web", ContainerPort: 80, HostPort: 80}, {ContainerPort: 81}}
	pod := &corev1.Pod{Spec: corev1.PodSpec{
		Containers:     []corev1.Container{{Name: "none", Ports: web[1:]}, {Name: "web", Ports: web}},
		InitContainers: []corev1.Container{{Name: "ends", Ports: web}, {Name: "sidecar", Ports: web, RestartPolicy: &always}},
	}}

	want := fmt.Sprint([]corev1.Container{{Ports: []corev1.ContainerPort{{Name: "web", ContainerPort: 80}}}, {Ports: []corev1.ContainerPort{{Name: "web", ContainerPort: 80}}}})
	if got := fmt.Sprint(namedPortContainers(pod)); got != want {
		t.Errorf("named ports %s, want %s", got, want)
	}
}

// TestOwnedPorts checks that PortOwner is the inverse of OwnedPorts, and that no other port has an
// owner.
func TestOwnedPorts(t *testing.T) {
	ports := OwnedPorts(NodeKey("n.example"))
	if fmt.Sprint(ports) != "[rtoe-GR_n.example rtoj-GR_n.example]" {
		t.Errorf("ports %v", ports)
	}

	for _, port := range ports {
		if k, ok := PortOwner(port); !ok || k != NodeKey("n.example") {
			t.Errorf("owner of %s: %v, %t", port, k, ok)
		}
	}

	for _, port := range []string{"rtoe-GR_", "rtoj-GR_", "rtoj-ovn_cluster_router", "ns_pod", ""} {
		if k, ok := PortOwner(port); ok {
			t.Errorf("owner of %q: %v", port, k)
		}
	}

	if got := OwnedPorts(PodKey("ns", "n.example")); got != nil {
		t.Errorf("ports of a pod: %v", got)
	}
}

// TestMayDiffer checks that without hints and traffic policies only routers of nodes with an endpoint
// on their host are planned apart: a Service must not cost more because there are many nodes.
func TestMayDiffer(t *testing.T) {
	a, b := &serviceNode{name: "a"}, &serviceNode{name: "b"}
	plain := &targets{byNode: map[*serviceNode][]services.Endpoint{a: nil}, atSharedAddress: map[*serviceNode]struct{}{b: {}}}
	nodes, zones := *plain, *plain

	nodes.hints.Nodes, zones.hints.Zones = map[string][]services.Endpoint{"a": nil}, map[string][]services.Endpoint{"z": nil}
	for _, tc := range []struct {
		name    string
		targets *targets
		side    lbSide
		want    []*serviceNode
	}{
		{"switches", plain, lbSide{atSwitches, false}, nil},
		{"routers", plain, lbSide{atRouters, false}, []*serviceNode{b}},
		{"local", plain, lbSide{atRouters, true}, []*serviceNode{a}},
		{"hints for nodes", &nodes, lbSide{atSwitches, false}, []*serviceNode{a, b}},
		{"hints for zones", &zones, lbSide{atSwitches, false}, []*serviceNode{a, b}},
	} {
		if got := tc.targets.mayDiffer([]*serviceNode{a, b}, tc.side); fmt.Sprint(got) != fmt.Sprint(tc.want) {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
	}
}

// emptyCluster returns a cluster with empty stores.
func emptyCluster() *Cluster {
	c := &Cluster{Stores: map[Kind]Store{}}

	for _, r := range Resources() {
		indexers := cache.Indexers{}
		for name, function := range r.Indexes {
			indexers[name] = function
		}

		c.Stores[r.Kind] = cache.NewIndexer(cache.MetaNamespaceKeyFunc, indexers)
	}

	return c
}

// TestUsageCache_drop checks that the cache has no versions of policies that were replaced or
// deleted.
func TestUsageCache_drop(t *testing.T) {
	c := emptyCluster()
	store, _ := c.Stores[KindPolicy].(cache.Indexer)

	var old, now any

	for version := range 10 {
		p := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", ResourceVersion: fmt.Sprint(version)}}
		if version%3 == 0 { // otherwise, the spec stays
			p.Spec.PodSelector.MatchLabels = map[string]string{"version": fmt.Sprint(version)}
		}

		if err := store.Update(p); err != nil {
			t.Fatal(err)
		}

		old, now = now, p
		Affected(c, old, now)
	}

	if len(c.usages.cached) != 1 {
		t.Errorf("%d usages are cached, want that of the last version", len(c.usages.cached))
	}

	if err := store.Delete(now); err != nil {
		t.Fatal(err)
	}

	deleted := now.(*networkingv1.NetworkPolicy).DeepCopy() // informers pass another object than the stored one
	deleted.ResourceVersion = "deleted"

	if Affected(c, deleted, nil); len(c.usages.cached) != 0 {
		t.Errorf("%d usages are cached after the policy is deleted", len(c.usages.cached))
	}
}

// TestBudgets_policiesGoneMeanwhile checks changes of two policies of a namespace that have left
// the store since: the namespace has no budget any more.
func TestBudgets_policiesGoneMeanwhile(t *testing.T) {
	c := emptyCluster()
	keys := keySet{}
	c.budgets.addNumbersChange(c, keys, keySet{PolicyKey("ns", "a"): {}, PolicyKey("ns", "b"): {}})

	if len(keys) > 0 || len(c.budgets.byNamespace) > 0 {
		t.Errorf("affects %v, budgets %v, want none", keys, c.budgets.byNamespace)
	}
}
