package service_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovn-ebpf/ovn-ebpf/agent/service"
	"github.com/ovn-ebpf/ovn-ebpf/bpf"
	model "github.com/ovn-ebpf/ovn-ebpf/service"
	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

var equal = cmp.Options{cmpopts.EquateComparable(netip.Addr{}, netip.AddrPort{}, verdict.ServiceKey{}), cmpopts.EquateEmpty()}

// written is the state of the kernel's tables, maintained from Changes alone.
type written struct {
	Frontends map[verdict.ServiceKey]verdict.ServiceOwner
	Lookups   map[verdict.ServiceKey]netip.AddrPort
	Sockets   map[string]bpf.SockService
	Redirects map[verdict.ServiceKey]service.Redirect
	Counts    map[verdict.ServiceKey]bpf.ServicePort
	Writes    int
}

func newWritten() *written {
	return &written{Counts: map[verdict.ServiceKey]bpf.ServicePort{}, Frontends: map[verdict.ServiceKey]verdict.ServiceOwner{}, Lookups: map[verdict.ServiceKey]netip.AddrPort{}, Sockets: map[string]bpf.SockService{}}
}

// apply fails the test if a change has no effect.
func (w *written) apply(t testing.TB, tables *service.Tables, c service.Changes) {
	t.Helper()

	if all := tables.Redirects(); c.Redirects == cmp.Equal(w.Redirects, all, equal) {
		t.Errorf("redirects reported as changed: %v, want the opposite", c.Redirects)
	} else if c.Redirects {
		w.Redirects = all
	}

	for k, o := range c.Set {
		if w.Frontends[k] == o {
			t.Errorf("%v is set without a change", k)
		}

		w.Frontends[k] = o
	}

	for _, k := range c.Unset {
		if w.Frontends[k] == 0 {
			t.Errorf("%v is unset twice", k)
		}

		delete(w.Frontends, k)
	}

	for k, p := range c.Counts {
		if w.Counts[k] == p {
			t.Errorf("the count of %v is set without a change", k)
		}

		if w.Counts[k] = p; p == (bpf.ServicePort{}) {
			delete(w.Counts, k)
		}
	}

	for k, a := range c.Lookups {
		if w.Lookups[k] == a {
			t.Errorf("lookup %v is set without a change", k)
		}

		w.Lookups[k] = a
	}

	for _, k := range c.Unlookups {
		if !w.Lookups[k].IsValid() {
			t.Errorf("lookup %v is unset twice", k)
		}

		delete(w.Lookups, k)
	}

	for _, s := range c.Sockets {
		if cmp.Equal(w.Sockets[s.Key].Ports, s.Ports, equal) {
			t.Errorf("sockets of %s are set without a change", s.Key)
		}

		if w.Sockets[s.Key] = s; len(s.Ports) == 0 {
			delete(w.Sockets, s.Key)
		}
	}

	w.Writes += len(c.Set) + len(c.Unset) + len(c.Lookups) + len(c.Unlookups) + len(c.Sockets)
}

// holds compares the state with the complete tables.
func (w *written) holds(t testing.TB, tables *service.Tables) {
	t.Helper()

	sockets := map[string]bpf.SockService{}
	for _, s := range tables.Sockets() {
		sockets[s.Key] = s
	}

	want := written{Counts: tables.Counts(), Frontends: tables.Frontends(), Lookups: tables.Lookups(), Sockets: sockets, Redirects: tables.Redirects(), Writes: w.Writes}
	if diff := cmp.Diff(want, *w, equal); diff != "" {
		t.Fatalf("-everything +changes applied:\n%s", diff)
	}
}

func webService(name, clusterIP string, created int, ports ...corev1.ServicePort) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, CreationTimestamp: metav1.NewTime(time.Unix(int64(created), 0))},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, ClusterIPs: []string{clusterIP}, Ports: ports},
	}
}

func webSlice(svc *corev1.Service, endpoints ...discoveryv1.Endpoint) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: svc.Namespace, Name: svc.Name + "-1", Labels: map[string]string{discoveryv1.LabelServiceName: svc.Name}},
		AddressType: discoveryv1.AddressTypeIPv4, Endpoints: endpoints,
	}
	for _, p := range svc.Spec.Ports {
		number := p.Port + 8000
		s.Ports = append(s.Ports, discoveryv1.EndpointPort{Name: &p.Name, Protocol: &p.Protocol, Port: &number})
	}

	return s
}

func keyOf(name string) service.Key { return service.Key{Namespace: "default", Name: name} }

func TestOlderObjectHoldsFrontend(t *testing.T) {
	n := node1()
	port := corev1.ServicePort{Port: 80, NodePort: 30080, Protocol: corev1.ProtocolTCP}
	plan := func(name, clusterIP string, created int, endpoint string) *service.Plan {
		svc := webService(name, clusterIP, created, port)
		return service.New(model.Objects{Service: svc, Slices: []*discoveryv1.EndpointSlice{webSlice(svc, discoveryv1.Endpoint{Addresses: []string{endpoint}})}}.Meaning(n.Cluster), n)
	}
	tables, w := service.NewTables(), newWritten()
	// The backend identifies the holder of node port 30080.
	has := func(want string) {
		t.Helper()
		w.apply(t, tables, tables.Changes())
		w.holds(t, tables)

		got := ""

		for _, s := range w.Sockets {
			for _, p := range s.Ports {
				if slices.Contains(p.Frontends, netip.MustParseAddrPort("0.0.0.0:30080")) {
					got += s.Key + " " + p.Backends[0].String()
				}
			}
		}

		if got != want {
			t.Errorf("node port 30080 is held by %q, want %q", got, want)
		}

		if owners := len(w.Frontends); want != "" && owners != 2 {
			t.Errorf("%d frontends of the gateway, want one per address", owners)
		}
	}

	tables.Set(keyOf("young"), plan("young", "10.96.0.2", 20, "10.244.0.2"))
	has("Service default/young 10.244.0.2:8080")
	tables.Set(keyOf("old"), plan("old", "10.96.0.1", 10, "10.244.0.1"))
	has("Service default/old 10.244.0.1:8080")
	tables.Set(keyOf("a"), plan("a", "10.96.0.3", 20, "10.244.0.3"))
	has("Service default/old 10.244.0.1:8080")
	tables.Set(keyOf("old"), plan("old", "10.96.0.1", 10, "10.244.0.9"))
	has("Service default/old 10.244.0.9:8080")
	tables.Set(keyOf("old"), nil)
	has("Service default/a 10.244.0.3:8080") // the same age as young, but a smaller name
	tables.Set(keyOf("a"), plan("a", "10.96.0.3", 30, "10.244.0.3"))
	has("Service default/young 10.244.0.2:8080") // deleted and recreated
	tables.Set(keyOf("young"), nil)
	has("Service default/a 10.244.0.3:8080")
	tables.Set(keyOf("a"), nil)
	has("")

	if tables.Len() != 0 || len(w.Frontends)+len(w.Sockets) != 0 {
		t.Errorf("%d plans, %d frontends and %d sockets are left", tables.Len(), len(w.Frontends), len(w.Sockets))
	}
}

func TestChanges(t *testing.T) {
	n := node1()
	yes, no := true, false
	ready := discoveryv1.Endpoint{Addresses: []string{"10.244.0.1"}}
	ending := discoveryv1.Endpoint{Addresses: []string{"10.244.0.1"}, Conditions: discoveryv1.EndpointConditions{Ready: &no, Serving: &yes, Terminating: &yes}}
	second := discoveryv1.Endpoint{Addresses: []string{"10.244.0.2"}}
	here := discoveryv1.Endpoint{Addresses: []string{"172.30.0.11"}, NodeName: &n.Name}
	svc := webService("dns", "10.96.0.9", 1, corev1.ServicePort{Port: 53, Protocol: corev1.ProtocolUDP, NodePort: 30053})
	web := webService("web", "10.96.0.10", 1, corev1.ServicePort{Port: 80, Protocol: corev1.ProtocolTCP, NodePort: 30080})
	web.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	tables := service.NewTables()

	for _, step := range []struct {
		name      string
		service   *corev1.Service
		endpoints []discoveryv1.Endpoint
		want      string
	}{
		{"new", svc, []discoveryv1.Endpoint{ready}, "set 2 unset 0 sockets 1 lookups 0 unlookups 0 new 4 gone []"},
		{"again", svc, []discoveryv1.Endpoint{ready}, "set 0 unset 0 sockets 0 lookups 0 unlookups 0 new 0 gone []"},
		{"another endpoint", svc, []discoveryv1.Endpoint{ready, second}, "set 0 unset 0 sockets 1 lookups 0 unlookups 0 new 0 gone []"},
		{"terminating: no new clients, the old ones stay", svc, []discoveryv1.Endpoint{ending, second}, "set 0 unset 0 sockets 1 lookups 0 unlookups 0 new 0 gone []"},
		{"gone", svc, []discoveryv1.Endpoint{second}, "set 0 unset 0 sockets 0 lookups 0 unlookups 0 new 0 gone [10.244.0.1:8053]"},
		{"none", svc, nil, "set 0 unset 0 sockets 1 lookups 0 unlookups 0 new 0 gone [10.244.0.2:8053]"},
		{"deleted", nil, nil, "set 0 unset 2 sockets 1 lookups 0 unlookups 0 new 0 gone []"},
		{"pod endpoint", web, []discoveryv1.Endpoint{ready}, "set 2 unset 0 sockets 1 lookups 0 unlookups 0 new 4 gone []"},
		{"host-network endpoint", web, []discoveryv1.Endpoint{here}, "set 2 unset 0 sockets 1 lookups 2 unlookups 0 new 0 gone []"},
		{"pod endpoint again", web, []discoveryv1.Endpoint{ready}, "set 2 unset 0 sockets 1 lookups 0 unlookups 2 new 0 gone []"},
	} {
		o := model.Objects{Service: step.service}
		if step.service != nil {
			o.Slices = []*discoveryv1.EndpointSlice{webSlice(step.service, step.endpoints...)}
		}

		key := keyOf("dns")
		if step.service == web {
			key = keyOf("web")
		}

		tables.Set(key, service.New(o.Meaning(n.Cluster), n))
		c := tables.Changes()

		got := fmt.Sprintf("set %d unset %d sockets %d lookups %d unlookups %d new %d gone %v",
			len(c.Set), len(c.Unset), len(c.Sockets), len(c.Lookups), len(c.Unlookups), len(c.New), c.Gone)
		if got != step.want {
			t.Errorf("%s:\n got %s\nwant %s", step.name, got, step.want)
		}
	}
}

// An endpoint of two Services is gone when both have lost it. A change that is reverted before the
// next call is not reported.
func TestChangesAcross(t *testing.T) {
	n := node1()
	tables := service.NewTables()
	set := func(name string, endpoints ...discoveryv1.Endpoint) {
		svc := webService(name, "10.96.0."+name, 1, corev1.ServicePort{Port: 53, Protocol: corev1.ProtocolUDP})
		svc.Spec.ExternalIPs = []string{"192.0.2.1"}
		tables.Set(keyOf(name), service.New(model.Objects{Service: svc, Slices: []*discoveryv1.EndpointSlice{webSlice(svc, endpoints...)}}.Meaning(n.Cluster), n))
	}
	e := discoveryv1.Endpoint{Addresses: []string{"10.244.0.1"}}
	set("1", e)
	set("2", e)

	if c := tables.Changes(); !c.VIPs || !cmp.Equal(tables.VIPs(), addrs("192.0.2.1"), equal) {
		t.Errorf("VIPs %v, changed %v", tables.VIPs(), c.VIPs)
	}

	set("1")

	if c := tables.Changes(); len(c.Gone) != 0 || c.VIPs {
		t.Errorf("gone %v, VIPs changed %v, but another Service still has both", c.Gone, c.VIPs)
	}

	set("2")
	set("2", e)

	if c := tables.Changes(); len(c.Gone)+len(c.Sockets)+len(c.Set)+len(c.Unset) != 0 || c.VIPs {
		t.Errorf("a reverted change is reported: %+v", c)
	}

	set("2")

	if c := tables.Changes(); len(c.Gone) != 1 || tables.Answers(c.Gone[0]) {
		t.Errorf("gone %v, want the endpoint", c.Gone)
	}

	set("2", e)
	set("2")

	if c := tables.Changes(); len(c.Gone) != 0 {
		t.Errorf("gone %v: it was never reported as present", c.Gone)
	}

	tables.Set(keyOf("1"), nil)

	if c := tables.Changes(); len(c.New) != 1 || c.New[0].Addr != netip.MustParseAddr("192.0.2.1") {
		t.Errorf("new %v, want the address that the other Service has now", c.New)
	}

	tables.Set(keyOf("2"), nil)

	if c := tables.Changes(); !c.VIPs || len(tables.VIPs()) != 0 {
		t.Errorf("VIPs %v, changed %v", tables.VIPs(), c.VIPs)
	}
}

// TestServed states the expected values of a frontend explicitly: holder, counted Service port,
// backend for host sockets, and redirect in local gateway mode.
func TestServed(t *testing.T) {
	n := node1()
	n.Local = true
	web := webService("web", "10.96.0.10", 1, corev1.ServicePort{Port: 80, Protocol: corev1.ProtocolTCP, NodePort: 30080})
	web.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	policy := corev1.ServiceInternalTrafficPolicyLocal
	web.Spec.InternalTrafficPolicy = &policy // the cluster IP and the node port get different backends
	here, away := discoveryv1.Endpoint{Addresses: []string{"172.30.0.11"}, NodeName: &n.Name}, discoveryv1.Endpoint{Addresses: []string{"10.244.2.5"}}
	tables := service.NewTables()
	tables.Set(keyOf("web"), service.New(model.Objects{Service: web, Slices: []*discoveryv1.EndpointSlice{webSlice(web, here, away)}}.Meaning(n.Cluster), n))

	at := func(node string) verdict.ServiceKey {
		return verdict.ServiceKey{Addr: netip.MustParseAddr(node), Proto: 6, Port: 30080}
	}
	one, other, local := at("172.30.0.11"), at("172.30.0.77"), netip.MustParseAddrPort("172.30.0.11:8080")
	both := func(what string, got, want any) {
		t.Helper()

		if diff := cmp.Diff(want, got, equal); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	both("owners", tables.Frontends(), map[verdict.ServiceKey]verdict.ServiceOwner{one: verdict.ServiceHost, other: verdict.ServiceHost})

	port := bpf.ServicePort{Namespace: "default", Name: "web", Proto: 6, Port: 80}
	both("counts", tables.Counts(), map[verdict.ServiceKey]bpf.ServicePort{one: port, other: port})
	both("lookups", tables.Lookups(), map[verdict.ServiceKey]netip.AddrPort{one: local, other: local})
	to := service.Redirect{To: []netip.AddrPort{local}}
	both("redirects", tables.Redirects(), map[verdict.ServiceKey]service.Redirect{one: to, other: to})

	contender := webService("rival", "10.96.0.10", 1, corev1.ServicePort{Port: 80, Protocol: corev1.ProtocolTCP}) // the names decide
	tables.Set(keyOf("rival"), service.New(model.Objects{Service: contender, Slices: []*discoveryv1.EndpointSlice{webSlice(contender, here)}}.Meaning(n.Cluster), n))

	if all := tables.Sockets(); len(all) != 2 {
		t.Errorf("sockets of %d Services, want 2", len(all))
	}

	for _, have := range tables.Sockets() { // one has the cluster IP, the other the node port
		if len(have.Ports) != 1 || len(have.Ports[0].Frontends) != 1 {
			t.Errorf("sockets of %s: %v, want one port with one frontend", have.Key, have.Ports)
		}
	}
}

// TestEqualPlanCostsNothing checks that setting the plan that an object already has does no work:
// most events of an EndpointSlice change nothing.
func TestEqualPlanCostsNothing(t *testing.T) {
	n := node1()
	web := webService("web", "10.96.0.10", 1, corev1.ServicePort{Port: 80, Protocol: corev1.ProtocolTCP, NodePort: 30080})
	plan := func() *service.Plan {
		return service.New(model.Objects{Service: web, Slices: []*discoveryv1.EndpointSlice{webSlice(web, discoveryv1.Endpoint{Addresses: []string{"10.244.0.1"}})}}.Meaning(n.Cluster), n)
	}
	tables := service.NewTables()
	tables.Set(keyOf("web"), plan())
	again := plan()

	if n := testing.AllocsPerRun(10, func() { tables.Set(keyOf("web"), again) }); n > 0 {
		t.Errorf("%v allocations for an equal plan", n)
	}

	if n := testing.AllocsPerRun(10, func() { tables.Set(keyOf("absent"), nil) }); n > 0 {
		t.Errorf("%v allocations for an object that never had a plan", n)
	}
}

// TestTables_Set_returnsEntries checks the number of entries of a change, and Preceding.
func TestTables_Set_returnsEntries(t *testing.T) {
	tables := service.NewTables()
	tcp := corev1.ServicePort{Port: 80, Protocol: corev1.ProtocolTCP, NodePort: 30080}
	planOf := func(name string, created, endpoints int) *service.Plan {
		svc := webService(name, "10.96.0.10", created, tcp)
		slice := webSlice(svc)

		for i := range endpoints {
			slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.244.2.%d", 5+i)}})
		}

		o := model.Objects{Service: svc, Slices: []*discoveryv1.EndpointSlice{slice}}

		return service.New(o.Meaning(node1().Cluster), node1())
	}

	frontends := len(planOf("a", 1, 0).Frontends)
	if frontends < 3 {
		t.Fatalf("%d frontends, want a cluster IP and node ports", frontends)
	}

	for _, step := range []struct {
		name string
		p    *service.Plan
		want int
	}{
		{"no plan", nil, 0},
		{"a new one", planOf("a", 1, 2), frontends + 2},
		{"an equal one", planOf("a", 1, 2), 0},
		{"more endpoints", planOf("a", 1, 5), frontends + 5},
		{"fewer endpoints", planOf("a", 1, 1), frontends + 5},
		{"created again", planOf("a", 2, 1), frontends + 1},
		{"deleted", nil, frontends + 1},
	} {
		if got := tables.Set(keyOf("a"), step.p); got != step.want {
			t.Errorf("%s: %d entries, want %d", step.name, got, step.want)
		}
	}

	tables.Set(keyOf("younger"), planOf("younger", 9, 1))
	tables.Set(keyOf("older"), planOf("older", 3, 1))

	got := tables.Preceding(keyOf("younger"))
	if len(got) != 1 || len(got[keyOf("older")]) != frontends {
		t.Errorf("%v precede the younger Service, want all frontends of the older one", got)
	}

	if p := planOf("older", 3, 1); !p.HasAll(got[keyOf("older")]) || (*service.Plan)(nil).HasAll(got[keyOf("older")]) {
		t.Error("the older Service has all of them, and no plan has none")
	}

	for _, name := range []string{"older", "none"} {
		if got := tables.Preceding(keyOf(name)); len(got) > 0 {
			t.Errorf("%v precede %s", got, name)
		}
	}
}
