package plan_test

import (
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/cache"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
	services "github.com/ovn-ebpf/ovn-ebpf/service"
)

// event is the change of one object: old is nil if it is new, now if it is deleted.
type event struct {
	name     string
	old, now runtime.Object
	want     string // the affected keys, separated by "; ", a selector by the pods that it selects
}

// checkEvents applies each event to a cluster of the objects. It checks that Affected returns the
// keys that are wanted, that these include every key whose rows change, and that the plan after the
// event is that of a new cluster: nothing outdated is kept.
func checkEvents(t *testing.T, objects []runtime.Object, events []event) {
	t.Helper()

	for _, e := range events {
		t.Run(e.name, func(t *testing.T) {
			c := simCluster(t, objects...)
			before := planOf(c)
			left := slices.DeleteFunc(slices.Clone(objects), func(o runtime.Object) bool { return e.old != nil && sameObject(o, e.old) })

			var old, now any // without a type if they are nil
			if e.old != nil {
				old = e.old
				must(t, storeOf(c, e.old).Delete(e.old))
			}

			if e.now != nil {
				now = e.now
				left = append(left, e.now)
				must(t, storeOf(c, e.now).Add(e.now))
			}

			affected := plan.Affected(c, old, now)

			after := planOf(c)
			if diff := cmp.Diff(planOf(simCluster(t, left...)), after); diff != "" {
				t.Errorf("plan after the event (-of a new cluster +got):\n%s", diff)
			}

			var got []string
			for _, k := range affected {
				got = append(got, describe(k, before, after))
			}

			if diff := cmp.Diff(e.want, strings.Join(got, "; ")); diff != "" {
				t.Errorf("affected (-want +got):\n%s", diff)
			}

			gone := goneGroups(before, after)
			for _, k := range slices.SortedFunc(maps.Keys(merged(before, after)), plan.Key.Compare) {
				if was := gone.Replace(before[k]); was != after[k] && !slices.Contains(affected, k) {
					t.Errorf("%s changes and is not affected (-before +after):\n%s", k, cmp.Diff(was, after[k]))
				}
			}
		})
	}
}

// planOf returns the rows of all owners as text.
func planOf(c *plan.Cluster) map[plan.Key]string {
	out := map[plan.Key]string{}

	for _, k := range c.Keys() {
		rows, err := plan.Rows(c, k)

		out[k] = plan.Format(rows)
		if err != nil {
			out[k] += err.Error()
		}
	}

	return out
}

// goneGroups removes the port groups that no longer exist from pods' ports: a removed group takes
// its members with it.
func goneGroups(before, after map[plan.Key]string) *strings.Replacer {
	groups := func(plan map[plan.Key]string) (out []string) {
		for _, text := range plan {
			for _, found := range regexp.MustCompile(`(?m)^Port_Group (\w+)$`).FindAllStringSubmatch(text, -1) {
				out = append(out, found[1])
			}
		}

		return out
	}

	var replace []string

	still := groups(after)
	for _, g := range groups(before) {
		if !slices.Contains(still, g) {
			replace = append(replace, "  in Port_Group.ports: "+g+"\n", "", g+", ", "", ", "+g, "")
		}
	}

	return strings.NewReplacer(replace...)
}

func merged(a, b map[plan.Key]string) map[plan.Key]string {
	out := maps.Clone(a)
	maps.Copy(out, b)

	return out
}

// describe replaces the hash in a selector's key by the pods that it selects.
func describe(k plan.Key, plans ...map[plan.Key]string) string {
	for _, p := range plans {
		if _, pods, ok := strings.Cut(p[k], "external_ids: pods="); ok && k.Kind == plan.KindSelector {
			pods, _, _ = strings.Cut(pods, "\n")
			return "selector " + pods
		}
	}

	return k.String()
}

func storeOf(c *plan.Cluster, o runtime.Object) cache.Indexer {
	return c.Stores[plan.KindOf(o)].(cache.Indexer)
}

func sameObject(a, b runtime.Object) bool {
	x, y := a.(metav1.Object), b.(metav1.Object)
	return plan.KindOf(a) == plan.KindOf(b) && x.GetNamespace() == y.GetNamespace() && x.GetName() == y.GetName()
}

func must(t *testing.T, err error) {
	t.Helper()

	if err != nil {
		t.Fatal(err)
	}
}

// edit returns an event that changes a copy of the object.
func edit[T runtime.Object](name string, obj T, change func(T), want string) event {
	now := obj.DeepCopyObject().(T)
	change(now)

	return event{name, obj, now, want}
}

// annotate returns an event that sets an annotation of a node.
func annotate(name string, node *corev1.Node, key, value, want string) event {
	return edit(name, node, func(n *corev1.Node) { n.Annotations[key] = value }, want)
}

// nodeWithoutGateway returns a node whose pods leave by the gateways of other nodes.
func nodeWithoutGateway(i int) *corev1.Node {
	n := simNode(i)
	n.Annotations[annotation.GatewayConfig] = `{"default": {"mode": ""}}`

	return n
}

// podAt returns a pod with an address on simNode(node).
func podAt(namespace, name string, node int, ports ...corev1.ContainerPort) *corev1.Pod {
	n := simNode(node)
	subnets, _ := annotation.ParseNodeSubnets(n.Annotations)
	address := plan.ManagementAddress(subnets[0]).Addr().Next()

	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"app": name}, Annotations: map[string]string{
			annotation.PodNetworks: `{"default":{"ip_addresses":["` + address.String() + `/24"],"mac_address":"0a:58:0a:80:00:05"}}`,
		}},
		Spec: corev1.PodSpec{NodeName: n.Name, Containers: []corev1.Container{{Ports: ports}}},
	}
}

func hostPort(number int32) corev1.ContainerPort {
	return corev1.ContainerPort{HostPort: number, ContainerPort: 8080}
}

// TestNodeAffects checks what each change of a node affects: node1 is an egress gateway for the
// pods of node3, its pods are "host", which has a host port, and "plain"; the port of pod node1 in
// namespace breth0 has the name of the node's external port.
func TestNodeAffects(t *testing.T) {
	one, bare := simNode(1), nodeWithoutGateway(3)
	np, ip := simService(1, "NodePort"), simService(2, "ClusterIP")
	objects := []runtime.Object{one, simNode(2), bare, podAt("ns", "plain", 1), podAt("ns", "host", 1, hostPort(81)), podAt("ns", "far", 2), podAt("breth0", "node1", 2), np, ip}

	const (
		services, pods = "service/ns/service1", "pod/ns/host; pod/ns/plain"
		addresses      = "node/node1; node/node3; service/ns/service1; pod/ns/host"
	)

	local := func(n *corev1.Node) {
		n.Annotations[annotation.GatewayConfig] = strings.Replace(n.Annotations[annotation.GatewayConfig], "shared", "local", 1)
	}
	inLocal := one.DeepCopy()
	local(inLocal)

	all := "cluster; node/node1; node/node3; " + services + "; pod/breth0/node1; " + pods
	checkEvents(t, objects, []event{
		{"deleted", one, nil, all},
		annotate("heartbeat", one, "unrelated", "x", ""),
		annotate("subnets", one, annotation.NodeSubnets, `{"default": ["10.128.9.0/24"]}`, "node/node1; node/node3; "+services+"; "+pods),
		annotate("join addresses", one, annotation.NodeJoin, `{"default": {"ipv4": "100.64.9.9/16"}}`, addresses),
		annotate("chassis", one, annotation.ChassisID, "other", addresses),
		annotate("host addresses", one, annotation.HostCIDRs, `["172.30.0.99/16"]`, "cluster; "+addresses),
		edit("gateway", one, local, "node/node1; node/node3; "+services+"; pod/breth0/node1; pod/ns/host"),
		edit("status", one, func(n *corev1.Node) { n.Status.Addresses = []corev1.NodeAddress{{Address: "192.0.2.1"}} }, "cluster; "+addresses),
		annotate("number", one, annotation.NodeID, "9", "node/node1"),
		annotate("management port", one, annotation.ManagementMACs, `{"default": "0a:58:0a:f4:01:09"}`, "node/node1; node/node3"),
		annotate("port range", one, annotation.SNATPortRange, "50000-60000", "node/node1"),
		annotate("MTU", one, annotation.PodMTU, "1300", "node/node1"),
		annotate("gateway routes", one, annotation.GatewayRoutes, `[{"to":"0.0.0.0/0"}]`, "node/node1"),
		annotate("malformed gateway routes", one, annotation.GatewayRoutes, "x", addresses),
		annotate("routable pods", one, annotation.RoutablePods, "true", "node/node1; node/node3"),
		annotate("drained", one, annotation.DrainGateway, "true", "node/node3"),
		annotate("malformed MTU", one, annotation.PodMTU, "x", addresses),
		annotate("malformed port range", one, annotation.SNATPortRange, "x", addresses),
		annotate("egress gateways", bare, annotation.LeavesBy, `["node1"]`, "node/node3"),
		edit("zone", one, func(n *corev1.Node) { n.Labels[corev1.LabelTopologyZone] = "other" }, services),
		// A node that is no egress gateway affects no other node.
		annotate("drained without a gateway", bare, annotation.DrainGateway, "true", ""),
		annotate("management port without a gateway", bare, annotation.ManagementMACs, `{"default": "0a:58:0a:f4:01:09"}`, "node/node3"),
	})
	t.Run("added", func(t *testing.T) {
		checkEvents(t, slices.DeleteFunc(slices.Clone(objects), func(o runtime.Object) bool { return o == one }), []event{
			{"egress gateway", nil, one, all},
			{"no egress gateway", nil, inLocal, strings.Replace(all, "node/node3; ", "", 1)},
		})
	})
	t.Run("becomes an egress gateway", func(t *testing.T) {
		checkEvents(t, append(slices.DeleteFunc(slices.Clone(objects), func(o runtime.Object) bool { return o == one }), inLocal), []event{
			{"", inLocal, one, "node/node1; node/node3; " + services + "; pod/breth0/node1; pod/ns/host"},
		})
	})
}

// TestPodAffects checks what each change of a pod affects.
func TestPodAffects(t *testing.T) {
	pod := podAt("ns", "p", 1)
	pod.Annotations[annotation.FirstPod] = ""

	const self = "pod/ns/p"
	checkEvents(t, []runtime.Object{simNode(1), simNode(2), pod, podAt("ns", "other", 1), simService(1, "NodePort")}, []event{
		{"added", nil, podAt("ns", "new", 1), "pod/ns/new"},
		{"deleted", pod, nil, self},
		edit("starts", pod, func(p *corev1.Pod) { p.Status.Phase = corev1.PodRunning }, ""),
		edit("ends", pod, func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }, self),
		edit("is replaced", pod, func(p *corev1.Pod) { p.UID = types.UID("other") }, self),
		edit("moves", pod, func(p *corev1.Pod) { p.Spec.NodeName = "node2" }, self),
		edit("gets labels", pod, func(p *corev1.Pod) { p.Labels = map[string]string{"a": "b"} }, self),
		edit("gets addresses", pod, func(p *corev1.Pod) { p.Annotations[annotation.PodNetworks] += " " }, self),
		edit("requests a network", pod, func(p *corev1.Pod) { p.Annotations[annotation.DefaultNetwork] = "x" }, self),
		edit("loses an empty annotation", pod, func(p *corev1.Pod) { delete(p.Annotations, annotation.FirstPod) }, self),
		edit("gets another annotation", pod, func(p *corev1.Pod) { p.Annotations["x"] = "y" }, ""),
	})
}

// TestSlicesAffect checks that an endpoint slice affects the Service that it names, before and
// after a change.
func TestSlicesAffect(t *testing.T) {
	slice := func(service string) *discoveryv1.EndpointSlice {
		return &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "s", Labels: map[string]string{discoveryv1.LabelServiceName: service}}}
	}
	one := slice("service1")
	checkEvents(t, []runtime.Object{simService(1, "ClusterIP"), simService(2, "ClusterIP"), one}, []event{
		edit("endpoints", one, func(s *discoveryv1.EndpointSlice) { s.AddressType = discoveryv1.AddressTypeIPv4 }, "service/ns/service1"),
		{"move", one, slice("service2"), "service/ns/service1; service/ns/service2"},
		{"lose the service", one, slice(""), "service/ns/service1"},
		{"deleted", one, nil, "service/ns/service1"},
	})
}

// TestFrontsAffect checks that a Service or a pod with host ports affects those that request the
// same frontends, because these may move between them, and no others.
func TestFrontsAffect(t *testing.T) {
	service := func(i int, ip string, port, nodePort int32) *corev1.Service {
		s := simService(i, "ClusterIP")
		if s.Spec.Ports = []corev1.ServicePort{{Port: port, NodePort: nodePort}}; ip != "" {
			s.Spec.ExternalIPs = []string{ip}
		}

		return s
	}

	const node1, outside = "172.30.0.1", "203.0.113.9"

	objects := []runtime.Object{
		simNode(1), simNode(2), podAt("ns", "one", 1, hostPort(3000)), podAt("ns", "two", 2, hostPort(3000)), podAt("ns", "other", 1, hostPort(3001)),
		service(1, "", 80, 3000), service(2, node1, 3000, 0), service(3, outside, 3000, 0), service(4, outside, 3001, 0), service(5, "", 3000, 0),
	}
	checkEvents(t, objects, []event{
		{"host port", nil, podAt("ns", "new", 1, hostPort(3000)), "service/ns/service1; service/ns/service2; pod/ns/new; pod/ns/one"},
		{"host port of no other", nil, podAt("ns", "new", 1, hostPort(3009)), "pod/ns/new"},
		{"node port", nil, service(9, "", 80, 3000), "service/ns/service1; service/ns/service2; service/ns/service3; service/ns/service9; pod/ns/one; pod/ns/two"},
		{"external IP", nil, service(9, outside, 3000, 0), "service/ns/service1; service/ns/service3; service/ns/service9; pod/ns/one; pod/ns/two"},
		{"external IP of a node", nil, service(9, node1, 3000, 0), "service/ns/service1; service/ns/service2; service/ns/service9; pod/ns/one; pod/ns/two"},
		{"cluster IP", nil, service(9, "", 3000, 0), "service/ns/service9"},
		{"deleted", objects[5], nil, "service/ns/service1; service/ns/service2; service/ns/service3; pod/ns/one; pod/ns/two"},
	})
}

// TestPoliciesAffect checks what each change of a policy, of a namespace and of a pod with named
// ports affects.
func TestPoliciesAffect(t *testing.T) {
	labels := func(key, value string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{key: value}}
	}
	port := func(name string) []networkingv1.NetworkPolicyPort {
		named := intstr.FromString(name)
		return []networkingv1.NetworkPolicyPort{{Port: &named}}
	}
	policy := func(namespace, name string, pods *metav1.LabelSelector, from ...networkingv1.NetworkPolicyPeer) *networkingv1.NetworkPolicy {
		p := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
		if p.Spec.PodSelector = *pods; len(from) > 0 {
			p.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{From: from}}
		}

		return p
	}
	namespace := func(name string) *corev1.Namespace {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"team": name}}}
	}
	http := corev1.ContainerPort{Name: "http", ContainerPort: 8080}
	hostNetwork := podAt("ns", "web", 1, http)
	hostNetwork.Name, hostNetwork.Spec.HostNetwork = "host", true
	web := policy("ns", "web", labels("app", "web"))
	web.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{Ports: port("http")}}
	other := policy("ns", "other", labels("app", "web"))
	other.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{Ports: port("other")}}
	everywhere := policy("far", "everywhere", labels("app", "none"))
	everywhere.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeEgress}
	everywhere.Spec.Egress = []networkingv1.NetworkPolicyEgressRule{{Ports: port("http"), To: []networkingv1.NetworkPolicyPeer{{NamespaceSelector: labels("team", "ns")}}}}
	near, far := namespace("ns"), namespace("far")
	none := podAt("far", "none", 1) // which everywhere selects
	objects := []runtime.Object{
		simNode(1), near, far, podAt("ns", "web", 1, http), podAt("ns", "plain", 1), podAt("far", "web", 1), hostNetwork, web, other, everywhere, none,
	}

	const (
		subjects = "selector namespace ns, pods app=web"
		rest     = "selector namespace ns, pods all"
		farPods  = "selector namespace far, pods app=none"
		peers    = "selector namespaces team=ns, pods all"
	)
	checkEvents(t, objects, []event{
		// Policies.
		{"policy", nil, policy("ns", "new", labels("app", "plain")), "selector namespace ns, pods app=plain; policy/ns/new; pod/ns/plain"},
		{"policy of known pods", nil, policy("ns", "new", labels("app", "web")), subjects + "; policy/ns/new; pod/ns/web"},
		{"policy of no type", nil, &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "new"}, Spec: networkingv1.NetworkPolicySpec{PolicyTypes: []networkingv1.PolicyType{"x"}}}, "policy/ns/new"},
		{"policy deleted", web, nil, subjects + "; policy/ns/web"},
		edit("policy's labels", web, func(p *networkingv1.NetworkPolicy) { p.Labels = map[string]string{"a": "b"} }, ""),
		edit("policy's pods", web, func(p *networkingv1.NetworkPolicy) { p.Spec.PodSelector = metav1.LabelSelector{} }, rest+"; "+subjects+"; policy/ns/web; pod/ns/plain; pod/ns/web"),
		edit("policy's peers", everywhere, func(p *networkingv1.NetworkPolicy) { p.Spec.Egress[0].To[0].NamespaceSelector = labels("team", "far") },
			peers+"; selector namespaces team=far, pods all; "+farPods+"; policy/far/everywhere; pod/far/none; pod/far/web"),
		edit("policy's port", web, func(p *networkingv1.NetworkPolicy) { p.Spec.Ingress[0].Ports = port("https") }, subjects+"; policy/ns/web; pod/ns/web"),
		edit("policy's rule", web, func(p *networkingv1.NetworkPolicy) { p.Spec.Ingress = nil }, subjects+"; policy/ns/web"),
		// Namespaces.
		edit("namespace's labels", near, func(n *corev1.Namespace) { n.Labels = nil }, "policy/far/everywhere; pod/ns/plain; pod/ns/web"),
		edit("namespace's logging", near, func(n *corev1.Namespace) { n.Annotations = map[string]string{plan.ACLLogging: `{"deny":"info"}`} }, subjects+"; policy/ns/other; policy/ns/web"),
		edit("namespace's other annotation", near, func(n *corev1.Namespace) { n.Annotations = map[string]string{"x": "y"} }, ""),
		{"namespace deleted", far, nil, farPods + "; policy/far/everywhere; pod/far/none; pod/far/web"},
		{"namespace added", nil, namespace("new"), "policy/far/everywhere"},
		// Named ports.
		{"pod with the port", nil, renamed(podAt("ns", "web", 1, http)), "policy/far/everywhere; policy/ns/web; pod/ns/new"},
		{"pod with another port", nil, renamed(podAt("ns", "web", 1, corev1.ContainerPort{Name: "x", ContainerPort: 1})), "pod/ns/new"},
		{"pod that only others select", nil, podAt("ns", "new", 1, http), "policy/far/everywhere; pod/ns/new"},
		{"pod without ports", nil, renamed(podAt("ns", "web", 1)), "pod/ns/new"},
	})
}

// renamed keeps the label by which policies select the pod.
func renamed(p *corev1.Pod) *corev1.Pod {
	p.Name = "new"
	return p
}

// TestServersAffect checks that an API server that appears or disappears in the slices of
// default/kubernetes affects the Services and pods that request its port, and no others. A change
// of Cluster.Servers affects the same.
func TestServersAffect(t *testing.T) {
	const api, other = "203.0.113.5", "203.0.113.9"

	service := func(i int, ip string, port, nodePort int32) *corev1.Service {
		s := simService(i, "ClusterIP")
		if s.Spec.Ports = []corev1.ServicePort{{Port: port, NodePort: nodePort}}; ip != "" {
			s.Spec.ExternalIPs = []string{ip}
		}

		return s
	}
	c := simCluster(t, simNode(1), podAt("ns", "host", 1, hostPort(8443)), podAt("ns", "else", 1, hostPort(80)),
		service(1, api, 8443, 0), service(2, api, 22, 0), service(3, api, 80, 0),
		service(4, other, 8443, 0), service(5, "", 80, 8443), service(6, "", 8443, 0))
	slice := func(name string, addresses ...string) *discoveryv1.EndpointSlice {
		s := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: name},
		}}

		s.Ports = []discoveryv1.EndpointPort{{Port: new(int32(8443))}}
		for _, a := range addresses {
			s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{a}})
		}

		return s
	}

	const itself, claimants = "service/default/kubernetes", "service/ns/service1; service/ns/service2; service/ns/service5; pod/ns/host"
	for _, tc := range []struct {
		name     string
		was, now any
		want     string
	}{
		{"added", nil, slice("kubernetes", api), itself + "; " + claimants},
		{"removed", slice("kubernetes", api), nil, itself + "; " + claimants},
		{"changed", slice("kubernetes", "203.0.113.4", api), slice("kubernetes", "203.0.113.4"), itself + "; " + claimants},
		{"the same", slice("kubernetes", api), slice("kubernetes", api), itself},
		{"of another Service", nil, slice("other", api), "service/default/other"},
	} {
		if got := keysText(plan.Affected(c, tc.was, tc.now)); got != tc.want {
			t.Errorf("%s: affected %s, want %s", tc.name, got, tc.want)
		}
	}

	at := services.NewControlPlane(services.APIServer, []netip.AddrPort{netip.MustParseAddrPort(api + ":8443")}, nil)
	for _, got := range [][]plan.Key{c.ControlPlaneAffects(at, services.ControlPlane{}), c.ControlPlaneAffects(services.ControlPlane{}, at)} {
		if keysText(got) != claimants {
			t.Errorf("a change of Servers affects %s, want %s", keysText(got), claimants)
		}
	}
}

func keysText(keys []plan.Key) string {
	var out []string
	for _, k := range keys {
		out = append(out, k.String())
	}

	return strings.Join(out, "; ")
}
