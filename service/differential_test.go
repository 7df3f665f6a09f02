package service_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"

	agent "github.com/ovn-ebpf/ovn-ebpf/agent/service"
	"github.com/ovn-ebpf/ovn-ebpf/controller/annotation"
	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
	"github.com/ovn-ebpf/ovn-ebpf/controller/reconcile"
	"github.com/ovn-ebpf/ovn-ebpf/service"
)

// TestRenderersAgree gives the objects of every golden about Services and host ports, the
// controller's and the agent's, to both renderers: on each node, the agent's frontends must be
// those of the node's load balancers in OVN, with the same endpoints.
func TestRenderersAgree(t *testing.T) {
	compared := 0
	for _, pattern := range []string{"../controller/plan/testdata/service-*.txtar", "../controller/plan/testdata/pod-host-ports*.txtar", "../agent/service/testdata/*.txtar"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("no goldens %s: %v", pattern, err)
		}
		for _, file := range files {
			t.Run(filepath.Base(filepath.Dir(filepath.Dir(file)))+"/"+strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
				c := readCase(t, file)
				ovn := c.loadBalancers(t)
				for _, n := range c.nodes {
					compared += c.compare(t, ovn, n)
				}
			})
		}
	}
	if compared < 300 {
		t.Errorf("only %d frontends were compared", compared)
	}
}

// world is the cluster of one golden.
type world struct {
	cfg     plan.Config
	nodes   []*corev1.Node
	objects map[agent.Key]agent.Objects
}

// frontend is an address, a port and a protocol: tcp, udp or sctp.
type frontend struct {
	proto string
	at    netip.AddrPort
}

func (f frontend) String() string { return f.at.String() + "/" + f.proto }

func readCase(t *testing.T, file string) *world {
	t.Helper()
	archive, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	sections := map[string]string{}
	for _, f := range archive.Files {
		sections[f.Name] = string(f.Data)
	}
	w := &world{objects: map[agent.Key]agent.Objects{}, cfg: plan.Config{
		SNATPorts: plan.PortRange{First: 49152, Last: 65535}, MTU: 1400, JoinSubnets: prefixes("100.64.0.0/16", "fd98::/64"),
	}}
	w.cfg.ClusterCIDRs, w.cfg.ServiceCIDRs = prefixes("10.244.0.0/16", "fd00:10:244::/48"), prefixes("10.96.0.0/16", "fd00:10:96::/112")
	if text := sections["config"]; text != "" {
		into := map[string]*[]netip.Prefix{"cluster": &w.cfg.ClusterCIDRs, "service": &w.cfg.ServiceCIDRs, "join": &w.cfg.JoinSubnets}
		for _, list := range into {
			*list = nil
		}
		for line := range strings.Lines(text) {
			if what, prefix, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
				*into[what] = append(*into[what], netip.MustParsePrefix(prefix))
			}
		}
	}
	for doc := range strings.SplitSeq(sections["objects"], "\n---\n") {
		if strings.TrimSpace(doc) == "" {
			continue
		}
		obj, _, err := scheme.Codecs.UniversalDeserializer().Decode([]byte(doc), nil, nil)
		if err != nil {
			t.Fatalf("decode %s: %v", doc, err)
		}
		w.add(obj)
	}
	if len(w.nodes) == 0 { // the agent's goldens are of node1, with these
		w.nodes = []*corev1.Node{
			node("node1", 1, "172.30.0.11/24", "172.30.0.77/24", "fd00:172:30::11/64"), node("node2", 2, "172.30.0.12/24", "fd00:172:30::12/64"),
		}
		w.nodes[0].Labels = map[string]string{corev1.LabelTopologyZone: "zone1"}
	}
	return w
}

// add makes both sides see the same addresses of a pod: the controller reads its annotation, the
// agent its status.
func (w *world) add(obj runtime.Object) {
	switch o := obj.(type) {
	case *corev1.Node:
		w.nodes = append(w.nodes, o)
	case *corev1.Service:
		k := agent.Key{Namespace: o.Namespace, Name: o.Name}
		w.objects[k] = agent.Objects{Service: o, Slices: w.objects[k].Slices}
	case *discoveryv1.EndpointSlice:
		k := agent.Key{Namespace: o.Namespace, Name: o.Labels[discoveryv1.LabelServiceName]}
		w.objects[k] = agent.Objects{Service: w.objects[k].Service, Slices: append(w.objects[k].Slices, o)}
	case *corev1.Pod:
		network, err := annotation.ParsePod(o.Annotations)
		if err == nil {
			o.Status.PodIPs = nil
			for _, p := range network.Addresses {
				o.Status.PodIPs = append(o.Status.PodIPs, corev1.PodIP{IP: p.Addr().String()})
			}
		} else if o.Status.PodIP != "" {
			if len(o.Status.PodIPs) == 0 {
				o.Status.PodIPs = []corev1.PodIP{{IP: o.Status.PodIP}}
			}
			for _, ip := range o.Status.PodIPs {
				a := netip.MustParseAddr(ip.IP)
				network.Addresses = append(network.Addresses, netip.PrefixFrom(a, map[bool]int{true: 24, false: 64}[a.Is4()]))
			}
			network.MAC = plan.MAC(network.Addresses[0].Addr())
			metav1.SetMetaDataAnnotation(&o.ObjectMeta, annotation.PodNetworks, annotation.FormatPod(network))
		}
		w.objects[agent.Key{Kind: agent.KindPod, Namespace: o.Namespace, Name: o.Name}] = agent.Objects{Pod: o}
	}
}

func node(name string, n int, cidrs ...string) *corev1.Node {
	gateway := annotation.Gateway{Mode: annotation.GatewayModeShared, InterfaceID: "breth0_" + name, MAC: "02:00:00:00:00:01", NodePorts: true}
	gateway.Addresses = append(gateway.Addresses, prefixes(cidrs[0], cidrs[len(cidrs)-1])...)
	hosts, _ := json.Marshal(cidrs)
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{
		annotation.NodeSubnets:   fmt.Sprintf(`{"default":["10.244.%d.0/24","fd00:10:244:%d::/64"]}`, n, n),
		annotation.NodeJoin:      fmt.Sprintf(`{"default":{"ipv4":"100.64.0.%d/16","ipv6":"fd98::%d/64"}}`, n+1, n+1),
		annotation.GatewayConfig: annotation.FormatGateway(gateway), annotation.ChassisID: name, annotation.HostCIDRs: string(hosts),
	}}}
}

func prefixes(texts ...string) (out []netip.Prefix) {
	for _, s := range texts {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

func (w *world) loadBalancers(t *testing.T) []plan.LoadBalancer {
	t.Helper()
	var objects []runtime.Object
	for _, n := range w.nodes {
		objects = append(objects, n)
	}
	for _, o := range w.objects {
		if o.Service != nil {
			objects = append(objects, o.Service)
		}
		if o.Pod != nil {
			objects = append(objects, o.Pod)
		}
		for _, s := range o.Slices {
			objects = append(objects, s)
		}
	}
	c, err := reconcile.NewCluster(w.cfg, objects...)
	if err != nil {
		t.Fatal(err)
	}
	var out []plan.LoadBalancer
	for _, k := range c.Keys() {
		rows, _ := plan.Rows(c, k) // the error is what is not served
		for _, r := range rows {
			if lb, ok := r.(plan.LoadBalancer); ok {
				out = append(out, lb)
			}
		}
	}
	return out
}

// vipsOf returns what clients at the node's switch or router reach.
func vipsOf(all []plan.LoadBalancer, group, switchName, router string) map[frontend]string {
	out := map[frontend]string{}
	for _, lb := range all {
		if slices.Contains(lb.Groups, "clusterLBGroup") || slices.Contains(lb.Groups, group) ||
			slices.Contains(lb.Switches, switchName) || slices.Contains(lb.Routers, router) {
			for vip, to := range lb.VIPs {
				out[frontend{lb.Protocol, netip.MustParseAddrPort(vip)}] = to
			}
		}
	}
	return out
}

// compare compares one node's frontends and returns how many.
func (w *world) compare(t *testing.T, ovn []plan.LoadBalancer, obj *corev1.Node) int {
	t.Helper()
	gateway, _ := annotation.ParseGateway(obj.Annotations)
	join, _ := annotation.ParseJoin(obj.Annotations)
	hasRouter := len(gateway.Addresses) > 0 && gateway.Mode != annotation.GatewayModeDisabled && obj.Annotations[annotation.ChassisID] != "" && (join.IPv4.IsValid() || join.IPv6.IsValid())
	switches := vipsOf(ovn, "clusterSwitchLBGroup", obj.Name, "")
	routers := vipsOf(ovn, "clusterRouterLBGroup", "", "GR_"+obj.Name)
	others := map[netip.Addr]bool{}
	n := &agent.Node{
		Name: obj.Name, Zone: obj.Labels[corev1.LabelTopologyZone], NodePorts: gateway.NodePorts && hasRouter,
		Cluster: service.Config{Pods: w.cfg.ClusterCIDRs, Services: w.cfg.ServiceCIDRs, Join: w.cfg.JoinSubnets, ExternalIPs: w.cfg.ExternalIPs},
	}
	for _, o := range w.nodes {
		if addrs := annotation.HostAddresses(o); o.Name == obj.Name {
			n.Own, n.Addresses = addrs, slices.DeleteFunc(slices.Clone(addrs), func(a netip.Addr) bool { return within(w.cfg.ClusterCIDRs, a) })
		} else {
			n.Hosts = append(n.Hosts, addrs...)
			for _, a := range addrs {
				others[a] = true
			}
		}
	}
	slices.SortFunc(n.Hosts, netip.Addr.Compare)

	sockets, redirects, fronts := w.agentTables(n)
	count := 0
	// Frontends of the gateway. Those of another node's address are that node's.
	if hasRouter {
		want := map[frontend]bool{}
		for f := range routers {
			if !w.clusterIP(f.at.Addr()) && !others[f.at.Addr()] {
				want[f] = true
			}
		}
		got := map[frontend]bool{}
		for f := range fronts {
			if !others[f.at.Addr()] {
				got[f] = true
			}
		}
		if !maps.Equal(want, got) {
			t.Errorf("%s: OVN serves %v, the agent %v", obj.Name, list(want), list(got))
		}
		count += len(want)
	}
	// Endpoints of the host's sockets: those of a client on the node's switch.
	for f, to := range switches {
		svcIP := w.clusterIP(f.at.Addr())
		got, ok := sockets[f]
		switch {
		case f.proto == "sctp", others[f.at.Addr()], !svcIP && !hasRouter:
			continue // no sockets of SCTP; node ports of other nodes are their own
		case slices.Contains(n.Own, f.at.Addr()):
			continue // a node port: sockets have the unspecified address; its endpoints are compared below
		case !ok && w.ranged(f.at.Addr()):
			continue
		}
		if !ok || !w.ranged(f.at.Addr()) && text(got) != to {
			t.Errorf("%s: %v: the switch has %q, the agent %q (%t)", obj.Name, f, to, text(got), ok)
		}
		count++
	}
	// Local gateway mode: what arrives from outside goes where the router would send it.
	for f, to := range routers {
		got, ok := redirects[f]
		if !ok || w.clusterIP(f.at.Addr()) || others[f.at.Addr()] {
			continue
		}
		if len(got) == 1 && w.clusterIP(got[0].Addr()) {
			continue // to the cluster IP, compared above
		}
		for i, a := range got {
			if a4 := a.Addr(); slices.ContainsFunc(gateway.Addresses, func(p netip.Prefix) bool { return p.Addr() == a4 }) {
				got[i] = netip.AddrPortFrom(annotation.MasqueradeOf(a4.Is4()).Host, a.Port())
			}
		}
		slices.SortFunc(got, netip.AddrPort.Compare)
		if text(got) != to {
			t.Errorf("%s: %v: the router has %q, the agent redirects to %q", obj.Name, f, to, text(got))
		}
		count++
	}
	return count
}

// agentTables returns the endpoints of sockets' frontends, those to which local gateway mode
// redirects, and the gateway's frontends.
func (w *world) agentTables(n *agent.Node) (sockets, redirects map[frontend][]netip.AddrPort, fronts map[frontend]bool) {
	names := map[uint8]string{6: "tcp", 17: "udp", 132: "sctp"}
	sockets, redirects, fronts = map[frontend][]netip.AddrPort{}, map[frontend][]netip.AddrPort{}, map[frontend]bool{}
	for _, local := range []bool{false, true} {
		n.Local = local
		tables := agent.NewTables()
		for k, o := range w.objects {
			tables.Set(k, agent.New(o, n))
		}
		if local {
			for k, r := range tables.Redirects() {
				redirects[frontend{names[k.Proto], netip.AddrPortFrom(k.Addr, k.Port)}] = slices.Clone(r.To)
			}
			continue
		}
		for k := range tables.FrontEnds() {
			fronts[frontend{names[k.Proto], netip.AddrPortFrom(k.Addr, k.Port)}] = true
		}
		for _, s := range tables.Sockets() {
			for _, p := range s.Ports {
				for _, f := range p.FrontEnds {
					var to []netip.AddrPort
					for _, b := range p.Backends {
						if b.Addr().Is4() == f.Addr().Is4() {
							to = append(to, b)
						}
					}
					sockets[frontend{names[p.Proto], f}] = to
				}
			}
		}
	}
	return sockets, redirects, fronts
}

// clusterIP reports whether the address is a cluster IP of one of the Services.
func (w *world) clusterIP(a netip.Addr) bool {
	for _, o := range w.objects {
		if o.Service != nil && (slices.Contains(o.Service.Spec.ClusterIPs, a.String()) || o.Service.Spec.ClusterIP == a.String()) {
			return true
		}
	}
	return false
}

// ranged reports whether a load balancer announces the address for some clients alone: ACLs and
// the agent decide about those, each in its own way.
func (w *world) ranged(a netip.Addr) bool {
	for _, o := range w.objects {
		if o.Service == nil || len(o.Service.Spec.LoadBalancerSourceRanges) == 0 {
			continue
		}
		for _, i := range o.Service.Status.LoadBalancer.Ingress {
			if i.IP == a.String() {
				return true
			}
		}
	}
	return false
}

func within(prefixes []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(a) })
}

func text(addrs []netip.AddrPort) string {
	var out []string
	for _, a := range addrs {
		out = append(out, a.String())
	}
	return strings.Join(out, ",")
}

func list(m map[frontend]bool) []frontend {
	return slices.SortedFunc(maps.Keys(m), func(a, b frontend) int {
		return cmp.Or(a.at.Compare(b.at), strings.Compare(a.proto, b.proto))
	})
}
