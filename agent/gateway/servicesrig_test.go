package gateway

import (
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovn-ebpf/ovn-ebpf/agent/service"
	"github.com/ovn-ebpf/ovn-ebpf/bpf"
	"github.com/ovn-ebpf/ovn-ebpf/cluster"
	"github.com/ovn-ebpf/ovn-ebpf/loop"
	model "github.com/ovn-ebpf/ovn-ebpf/service"
	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// servingRig contains the kernel tables of Services, with programs that are not attached.
type servingRig struct {
	*Services
	node    service.Node
	objects map[service.Key]service.Objects
	listed  bool   // the keys are known
	dir     string // of the pins
	shares  model.Shares
}

func newServingRig(t testing.TB) *servingRig {
	t.Helper()
	r := &servingRig{objects: map[service.Key]service.Objects{}, listed: true, shares: model.Shares{Namespace: 200_000, FlowsPerNode: 200_000}, dir: filepath.Join(t.TempDir(), "bpf", "node")}
	t.Cleanup(func() { _ = syscall.Unmount(filepath.Dir(r.dir), 0) })

	r.node = service.Node{
		Name: "node1", NodePorts: true, Lookup: true,
		Addresses: []netip.Addr{netip.MustParseAddr("172.30.0.11"), netip.MustParseAddr("172.30.0.77"), netip.MustParseAddr("fd00:172:30::11")},
		Cluster: model.Config{
			Pods:        []netip.Prefix{netip.MustParsePrefix("10.240.0.0/12"), netip.MustParsePrefix("fd00:10:244::/48")},
			ExternalIPs: []netip.Prefix{netip.MustParsePrefix("198.51.0.0/16")},
		},
	}
	r.node.Own = r.node.Addresses
	t.Cleanup(r.close)
	r.renew()
	r.restart(t)

	return r
}

// restart replaces the agent over the same pins.
func (r *servingRig) restart(t testing.TB) {
	t.Helper()
	r.open(t)
	r.renew()
}

// renew replaces the agent's state. The open tables stay open.
func (r *servingRig) renew() {
	log, was := slog.New(slog.DiscardHandler), r.Services
	r.Services = newServices(parts{
		s:   Settings{Wiring: Wiring{Backend: EBPF}, Cluster: Cluster{Shares: r.shares}},
		log: log, record: newRecorder(log), wake: loop.NewSignal(),
	}, Options{Changed: func() {}, Source: Source{
		Node: "node1", Zone: func() string { return "" }, Nodes: func() int { return 1 }, Objects: func(k service.Key) service.Objects { return r.objects[k] },
		Keys: func() ([]service.Key, bool) {
			var out []service.Key
			for k := range r.objects {
				out = append(out, k)
			}

			return out, r.listed
		},
	}})

	if was != nil {
		r.programs.Store(was.programs.Load())
		r.sock, r.lookup = was.sock, was.lookup
	}
}

// close closes the tables.
func (r *servingRig) close() {
	if g := r.programs.Load(); g != nil {
		_ = g.Close()
	}

	r.Services.close()
}

func (r *servingRig) open(t testing.TB) {
	t.Helper()
	r.close()

	g, err := bpf.Open(bpf.Options{PinDir: r.dir, Config: bpf.Config{Config: verdict.Config{
		NodeMAC: verdict.MAC{2, 0, 0, 0, 0, 1}, Node4: r.node.Addresses[0], SNATPorts: cluster.PortRange{First: 49152, Last: 65535}, GenevePort: 6081,
	}}})
	if err != nil {
		t.Fatal(err)
	}

	r.programs.Store(g)

	if r.sock, err = bpf.OpenSock(bpf.CgroupOptions{PinDir: r.dir, CgroupPath: t.TempDir()}); err != nil {
		t.Fatal(err)
	}

	if r.lookup, err = bpf.OpenLookup(bpf.LookupOptions{PinDir: r.dir}); err != nil {
		t.Fatal(err)
	}
}

// set sets the objects of the key, as an informer would.
func (r *servingRig) set(k service.Key, o service.Objects) {
	if r.objects[k] = o; o.Service == nil {
		delete(r.objects, k)
	}

	r.Changed(k)
}

// sync is one round of the loop. It returns the number of written entries.
func (r *servingRig) sync(t testing.TB) int {
	t.Helper()

	before := r.writes
	if r.planChanges(r.node); !r.planned {
		t.Fatal("the cluster is not known")
	}

	if err := r.writeChanges(); err != nil {
		t.Fatal(err)
	}

	return r.writes - before
}

// entries returns the size of the gateway's service table.
func (r *servingRig) entries(t testing.TB) int {
	t.Helper()

	tables, err := bpf.Tables(r.dir)
	if err != nil {
		t.Fatal(err)
	}

	return tables["services"].Entries
}

func serviceKey(i int) service.Key {
	return service.Key{Namespace: "default", Name: "s" + strconv.Itoa(i)}
}

// numbered returns dual-stack Service i with the given number of pods. Every fourth, up to 2,500,
// has a node port. Every tenth, up to 1,000, has a load balancer address.
func numbered(i, pods int) service.Objects {
	svc := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "s" + strconv.Itoa(i)},
		Spec: corev1.ServiceSpec{
			ClusterIPs: []string{fmt.Sprintf("10.96.%d.%d", i>>8, i&255), fmt.Sprintf("fd00:10:96::%x", i+1)},
			Ports:      []corev1.ServicePort{{Port: 80, Protocol: corev1.ProtocolTCP}},
		},
	}
	if i%4 == 0 && i/4 < 2500 {
		svc.Spec.Type, svc.Spec.Ports[0].NodePort = corev1.ServiceTypeNodePort, int32(30000+i/4)
	}

	if i%10 == 0 {
		svc.Spec.Type = corev1.ServiceTypeLoadBalancer
		svc.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: fmt.Sprintf("198.18.%d.%d", i>>8, i&255)}}
	}

	number, name, node := int32(8080), "", "node2"

	out := service.Objects{Service: svc}
	for _, kind := range []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6} {
		s := &discoveryv1.EndpointSlice{
			ObjectMeta:  metav1.ObjectMeta{Namespace: "default", Name: svc.Name + string(kind), Labels: map[string]string{discoveryv1.LabelServiceName: svc.Name}},
			AddressType: kind, Ports: []discoveryv1.EndpointPort{{Name: &name, Port: &number}},
		}

		for p := range pods {
			n := i*8 + p

			a := fmt.Sprintf("10.%d.%d.%d", 240+n>>16, n>>8&255, n&255)
			if kind == discoveryv1.AddressTypeIPv6 {
				a = fmt.Sprintf("fd00:10:244::%x:%x", n>>16, n&0xffff)
			}

			s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{a}, NodeName: &node})
		}

		out.Slices = append(out.Slices, s)
	}

	return out
}

const (
	manyServices = 10_000
	podsEach     = 5
)

func (r *servingRig) fill() {
	for i := range manyServices {
		r.objects[serviceKey(i)] = numbered(i, podsEach)
	}
}
