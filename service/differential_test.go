package service_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"

	agent "github.com/ovn-ebpf/ovn-ebpf/agent/service"
	"github.com/ovn-ebpf/ovn-ebpf/cluster"
	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
	"github.com/ovn-ebpf/ovn-ebpf/cluster/masquerade"
	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
	"github.com/ovn-ebpf/ovn-ebpf/service"
)

// TestMeaning_renderersAgree gives the objects of every golden about Services and host ports, the
// controller's and the agent's, to both renderers: on each node, the agent's frontends must be
// those of the node's load balancers in OVN, with the same endpoints.
func TestMeaning_renderersAgree(t *testing.T) {
	compared := 0

	for _, file := range goldens(t) {
		t.Run(filepath.Base(filepath.Dir(filepath.Dir(file)))+"/"+strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			c := readCase(t, file)
			for _, trust := range []bool{false, true} {
				c.cfg.TrustSlices = trust

				ovn := c.northbound(t)
				for _, n := range c.nodes {
					compared += c.compare(t, ovn, n)
				}
			}
		})
	}

	if compared < 600 {
		t.Errorf("only %d frontends were compared", compared)
	}
}

// TestMeaning_renderersAgreeOnBudgets is the same with budgets so small that many objects are not
// served.
func TestMeaning_renderersAgreeOnBudgets(t *testing.T) {
	refused := 0

	for _, file := range goldens(t) {
		for _, budget := range []int{3, 6, 12, 20, 30} {
			c := readCase(t, file)
			c.cfg.Shares = service.Shares{Namespace: budget}

			ovn := c.northbound(t)
			for _, n := range c.nodes {
				c.compare(t, ovn, n)
			}

			a := c.accounts()
			for k := range c.objects {
				if err := a.Refused(k); err != nil {
					refused++

					var said *plan.Unserved
					if _, planErr := plan.Rows(c.cluster(t), planKey(k)); !errors.As(planErr, &said) || !slices.Contains(said.Parts, err.Error()) {
						t.Errorf("%s, budget %d: %s is refused for %q, the controller says %v", file, budget, k, err, planErr)
					}
				}
			}
		}
	}

	if refused < 100 {
		t.Errorf("only %d objects were refused", refused)
	}
}

// TestMeaning_renderersAgreeOnManyEndpoints is the same with 1,500 endpoints in each slice, so that
// both sides must choose the same ones.
func TestMeaning_renderersAgreeOnManyEndpoints(t *testing.T) {
	for _, name := range []string{"cluster-ip", "dual-stack", "node-port", "hints-zone", "hints-node", "internal-local", "external-local"} {
		t.Run(name, func(t *testing.T) {
			c := readCase(t, "../controller/plan/testdata/service-"+name+".txtar")
			for _, o := range c.objects {
				for _, slice := range o.Slices {
					multiply(slice, 1500)
				}
			}

			ovn, longest := c.northbound(t), 0
			for _, balancer := range ovn.balancers {
				for _, backends := range balancer.VIPs {
					longest = max(longest, 1+strings.Count(backends, ","))
				}
			}

			if longest != service.MaxFrontendBackends {
				t.Errorf("the longest list has %d backends, want %d", longest, service.MaxFrontendBackends)
			}

			for _, n := range c.nodes {
				c.compare(t, ovn, n)
			}
		})
	}
}

// multiply repeats the endpoints of the slice with other addresses of pods, until it has n.
func multiply(slice *discoveryv1.EndpointSlice, n int) {
	some := len(slice.Endpoints)
	for i := some; some > 0 && i < n; i++ {
		e := *slice.Endpoints[i%some].DeepCopy()

		e.Addresses = []string{fmt.Sprintf("10.244.%d.%d", 100+i/250, 1+i%250)}
		if slice.AddressType == discoveryv1.AddressTypeIPv6 {
			e.Addresses = []string{fmt.Sprintf("fd00:10:244:99::%x", 1+i)}
		}

		slice.Endpoints = append(slice.Endpoints, e)
	}
}

func planKey(k service.Key) plan.Key {
	if k.Kind == service.KindPod {
		return plan.PodKey(k.Namespace, k.Name)
	}

	return plan.ServiceKey(k.Namespace, k.Name)
}

// accounts are those of an agent on every node.
func (w *world) accounts() *service.Accounts {
	a := service.NewAccounts(w.cfg.Shares)
	for k, o := range w.objects {
		a.Set(k, o.Meaning(w.config()), w.config())
	}

	a.Settle()

	return a
}

// goldens are the files of both renderers about Services and host ports.
func goldens(t *testing.T) []string {
	t.Helper()

	var out []string

	for _, pattern := range []string{"../controller/plan/testdata/service-*.txtar", "../controller/plan/testdata/pod-host-ports*.txtar", "../agent/service/testdata/*.txtar"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("no goldens %s: %v", pattern, err)
		}

		out = append(out, files...)
	}

	return out
}

// world is the cluster of one golden.
type world struct {
	cfg     plan.Config
	nodes   []*corev1.Node
	objects map[service.Key]service.Objects
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

	w := &world{objects: map[service.Key]service.Objects{}, cfg: plan.Config{
		Hosts:     annotation.TrustAll(),
		SNATPorts: cluster.PortRange{First: 49152, Last: 65535}, MTU: 1400, JoinSubnets: prefixes("100.64.0.0/16", "fd98::/64"),
	}}
	w.cfg.ClusterCIDRs, w.cfg.ServiceCIDRs = prefixes("10.244.0.0/16", "fd00:10:244::/48"), prefixes("10.96.0.0/16", "fd00:10:96::/112")

	w.cfg.ExternalIPs = prefixes("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "2001:db8::/32")
	if text := sections["config"]; text != "" {
		into := map[string]*[]netip.Prefix{"cluster": &w.cfg.ClusterCIDRs, "service": &w.cfg.ServiceCIDRs, "join": &w.cfg.JoinSubnets, "allowed": &w.cfg.ExternalIPs}
		for _, list := range into {
			*list = nil
		}

		if strings.Contains(text, "hosts ") { // otherwise all are trusted, as in the plan's own test
			into["hosts"], w.cfg.Hosts.Networks = &w.cfg.Hosts.Networks, nil
		}

		for line := range strings.Lines(text) {
			switch what, prefix, ok := strings.Cut(strings.TrimSpace(line), " "); {
			case what == "namespace-frontends":
				w.cfg.Shares.Namespace, _ = strconv.Atoi(prefix)
			case ok:
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

func (w *world) config() service.Config {
	servers := service.APIServers(w.objects[service.Key{Namespace: "default", Name: "kubernetes"}].Slices, w.cfg.ServiceCIDRs)

	return service.Config{
		Pods: w.cfg.ClusterCIDRs, Services: w.cfg.ServiceCIDRs, Join: w.cfg.JoinSubnets, ExternalIPs: w.cfg.ExternalIPs,
		TrustEndpointSlices: w.cfg.TrustSlices,
		ControlPlane:        database().With(servers),
	}
}

// database is a server in the settings of every golden.
func database() service.ControlPlane {
	return service.NewControlPlane(service.Database, []netip.AddrPort{netip.MustParseAddrPort("203.0.113.7:16641")}, nil)
}

// add makes both sides see the same addresses of a pod: the controller reads its annotation, the
// agent its status.
func (w *world) add(obj runtime.Object) {
	switch o := obj.(type) {
	case *corev1.Node:
		w.nodes = append(w.nodes, o)
	case *corev1.Service:
		k := service.Key{Namespace: o.Namespace, Name: o.Name}
		w.objects[k] = service.Objects{Service: o, Slices: w.objects[k].Slices}
	case *discoveryv1.EndpointSlice:
		k := service.Key{Namespace: o.Namespace, Name: o.Labels[discoveryv1.LabelServiceName]}
		w.objects[k] = service.Objects{Service: w.objects[k].Service, Slices: append(w.objects[k].Slices, o)}
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

			network.MAC = annotation.DerivedMAC(network.Addresses[0].Addr())
			metav1.SetMetaDataAnnotation(&o.ObjectMeta, annotation.PodNetworks, annotation.FormatPod(network))
		}

		w.objects[service.Key{Kind: service.KindPod, Namespace: o.Namespace, Name: o.Name}] = service.Objects{Pod: o}
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

// clients are addresses outside the cluster, in and out of the source ranges of goldens.
var clients = []netip.Addr{
	netip.MustParseAddr("198.51.100.7"), netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.200"),
	netip.MustParseAddr("203.0.113.99"), netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("2001:db8::77"), netip.MustParseAddr("2001:db8:1::1"),
}

// compare compares one node's frontends and returns how many.
func (w *world) compare(t *testing.T, ovn northbound, obj *corev1.Node) int {
	t.Helper()

	gateway, _ := annotation.ParseGateway(obj.Annotations)
	join, _ := annotation.ParseJoin(obj.Annotations)
	hasRouter := len(gateway.Addresses) > 0 && gateway.Mode != annotation.GatewayModeDisabled && obj.Annotations[annotation.ChassisID] != "" && (join.IPv4.IsValid() || join.IPv6.IsValid())
	switches := vipsOf(ovn.balancers, "clusterSwitchLBGroup", obj.Name, "")
	routers := vipsOf(ovn.balancers, "clusterRouterLBGroup", "", "GR_"+obj.Name)
	others := map[netip.Addr]bool{}

	n := &agent.Node{
		Name: obj.Name, Zone: obj.Labels[corev1.LabelTopologyZone], NodePorts: gateway.NodePorts && hasRouter,
		Cluster: w.config(),
	}
	for _, o := range w.nodes {
		if addrs := w.cfg.Hosts.HostAddresses(o); o.Name == obj.Name {
			n.Own, n.Addresses = addrs, slices.DeleteFunc(slices.Clone(addrs), func(a netip.Addr) bool { return cluster.Contains(w.cfg.ClusterCIDRs, a) })
		} else {
			n.Hosts = append(n.Hosts, addrs...)
			for _, a := range addrs {
				others[a] = true
			}
		}
	}

	slices.SortFunc(n.Hosts, netip.Addr.Compare)

	sockets, redirects, fronts := w.agentTables(t, n)
	ownAdmitted := func(f frontend) bool {
		return len(ovn.drops) == 0 || slices.ContainsFunc(n.Addresses, func(a netip.Addr) bool { return a.Is4() == f.at.Addr().Is4() && ovn.admits(f, a) })
	}
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
		case !svcIP && !ownAdmitted(f):
			to = "" // ACLs drop what the node itself sends
		}

		if !ok || text(got) != to {
			t.Errorf("%s: %v: the switch has %q, the agent %q (%t)", obj.Name, f, to, text(got), ok)
		}

		count++
	}
	// Local gateway mode: what arrives from outside goes where the router would send it.
	for f, to := range routers {
		r, ok := redirects[f]
		if !ok || w.clusterIP(f.at.Addr()) || others[f.at.Addr()] {
			continue
		}

		for _, client := range slices.Concat(n.Addresses, clients) {
			got := len(r.From) == 0 || cluster.Contains(r.From, client)
			if want := ovn.admits(f, client); client.Is4() == f.at.Addr().Is4() && got != want {
				t.Errorf("%s: %v: OVN admits %s: %t, the agent %t", obj.Name, f, client, want, got)
			}
		}

		got := slices.Clone(r.To)
		if len(got) == 1 && w.clusterIP(got[0].Addr()) {
			continue // to the cluster IP, compared above
		}

		for i, a := range got {
			if a4 := a.Addr(); slices.ContainsFunc(gateway.Addresses, func(p netip.Prefix) bool { return p.Addr() == a4 }) {
				got[i] = netip.AddrPortFrom(masquerade.Of(a4.Is4()).Host, a.Port())
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
func (w *world) agentTables(t *testing.T, n *agent.Node) (sockets map[frontend][]netip.AddrPort, redirects map[frontend]agent.Redirect, fronts map[frontend]bool) {
	names := map[uint8]string{6: "tcp", 17: "udp", 132: "sctp"}
	sockets, redirects, fronts = map[frontend][]netip.AddrPort{}, map[frontend]agent.Redirect{}, map[frontend]bool{}

	for _, local := range []bool{false, true} {
		n.Local = local
		tables := agent.NewTables()

		accounts := w.accounts()
		for k, o := range w.objects {
			if accounts.Refused(k) != nil {
				continue
			}

			m := o.Meaning(n.Cluster)
			p := agent.New(m, n)
			checkUnits(t, k, m, n, p)
			tables.Set(k, p)
		}

		if local {
			for k, r := range tables.Redirects() {
				redirects[frontend{names[k.Proto], netip.AddrPortFrom(k.Addr, k.Port)}] = r
			}

			continue
		}

		for k := range tables.Frontends() {
			fronts[frontend{names[k.Proto], netip.AddrPortFrom(k.Addr, k.Port)}] = true
		}

		for _, s := range tables.Sockets() {
			for _, p := range s.Ports {
				for _, f := range p.Frontends {
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

// checkUnits checks that the units of an object are not less than the entries of its plan.
func checkUnits(t *testing.T, k service.Key, m service.Meaning, n *agent.Node, p *agent.Plan) {
	t.Helper()

	if p == nil {
		return
	}

	var got, units service.Units
	for _, g := range p.Groups {
		got.Backends += len(g.Backends)
	}

	for _, f := range p.Frontends {
		if f.Socket {
			got.Frontends++
		}
	}

	got.Addresses = len(p.VIPs)
	if units = m.Units(n.Cluster); got.Backends > units.Backends || got.Frontends > units.Frontends || got.Addresses > units.Addresses {
		t.Errorf("%s on %s: %s are planned, its units are %s", k, n.Name, got, units)
	}
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
