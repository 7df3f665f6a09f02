package service_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovn-ebpf/ovn-ebpf/agent/service"
	model "github.com/ovn-ebpf/ovn-ebpf/service"
	"github.com/ovn-ebpf/ovn-ebpf/test/randomtest"
)

// world holds random objects that conflict with each other.
type world struct {
	r       *rand.Rand
	node    *service.Node
	objects map[service.Key]model.Objects
}

func (w *world) pick(n int) int { return w.r.IntN(n) }

func (w *world) edit() service.Key {
	name := fmt.Sprintf("s%d", w.pick(6))
	if w.pick(8) == 0 {
		return w.editPod(name)
	}

	k := keyOf(name)
	if w.pick(5) == 0 {
		delete(w.objects, k)
		return k
	}

	svc := webService(name, fmt.Sprintf("10.96.0.%d", 1+w.pick(6)), w.pick(3))
	for i := range 1 + w.pick(2) {
		p := corev1.ServicePort{Name: fmt.Sprint(i), Port: int32(80 + w.pick(2)), Protocol: []corev1.Protocol{"TCP", "UDP", "SCTP"}[w.pick(3)]}
		if w.pick(2) == 0 {
			p.NodePort = int32(30000 + w.pick(3))
		}

		svc.Spec.Ports = append(svc.Spec.Ports, p)
	}

	if w.pick(3) == 0 {
		svc.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	}

	if w.pick(3) == 0 {
		local := corev1.ServiceInternalTrafficPolicyLocal
		svc.Spec.InternalTrafficPolicy = &local
	}

	if w.pick(3) == 0 {
		svc.Spec.ExternalIPs = []string{[]string{"172.30.0.77", "192.0.2.1", "192.0.2.2"}[w.pick(3)]}
	}

	w.objects[k] = model.Objects{Service: svc, Slices: []*discoveryv1.EndpointSlice{webSlice(svc, w.endpoints()...)}}

	return k
}

func (w *world) endpoints() []discoveryv1.Endpoint {
	var out []discoveryv1.Endpoint

	for range w.pick(4) {
		bit := func() *bool { b := w.pick(2) == 0; return &b }
		e := discoveryv1.Endpoint{Conditions: discoveryv1.EndpointConditions{Ready: bit(), Serving: bit(), Terminating: bit()}}

		name := "node2"
		if e.Addresses = []string{fmt.Sprintf("10.244.0.%d", w.pick(4))}; w.pick(3) == 0 {
			e.Addresses, name = []string{"172.30.0.11"}, "node1"
		}

		e.NodeName = &name
		out = append(out, e)
	}

	return out
}

func (w *world) editPod(name string) service.Key {
	k := service.Key{Kind: model.KindPod, Namespace: "default", Name: name}
	delete(w.objects, k)

	if w.pick(3) != 0 {
		w.objects[k] = model.Objects{Pod: &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, CreationTimestamp: metav1.NewTime(time.Unix(int64(w.pick(3)), 0))},
			Spec: corev1.PodSpec{NodeName: "node1", Containers: []corev1.Container{{
				Ports: []corev1.ContainerPort{{HostPort: int32(30000 + w.pick(3)), ContainerPort: 80, Protocol: corev1.ProtocolTCP}},
			}}},
			Status: corev1.PodStatus{PodIP: "10.244.0.9"},
		}}
	}

	return k
}

// renumber changes the addresses of the node.
func (w *world) renumber() {
	n := node1()
	all := n.Addresses
	n.Addresses = slices.DeleteFunc(slices.Clone(all), func(netip.Addr) bool { return w.pick(3) == 0 })
	n.Own = append([]netip.Addr(nil), n.Addresses...)
	n.Lookup, n.Local = w.pick(3) != 0, w.pick(2) == 0
	w.node = n
}

// Tables after a series of edits equal tables built from the result, and so does the sum of the
// changes.
func TestEditsEqualFreshTables(t *testing.T) {
	randomEdits(t, randomtest.Seed(t), 3000)
}

func FuzzEdits(f *testing.F) {
	f.Add(uint64(1))
	f.Fuzz(func(t *testing.T, seed uint64) { randomEdits(t, seed, 60) })
}

func randomEdits(t *testing.T, seed uint64, edits int) {
	w := &world{r: rand.New(rand.NewPCG(seed, 0)), node: node1(), objects: map[service.Key]model.Objects{}}
	tables, kernel := service.NewTables(), newWritten()
	answered := map[netip.AddrPort]bool{}

	for range edits {
		keys := []service.Key{w.edit()}
		if w.pick(20) == 0 {
			w.renumber()
			keys = append(slices.Collect(maps.Keys(w.objects)), tables.Keys()...)
		}

		for _, k := range keys {
			tables.Set(k, service.New(w.objects[k].Meaning(w.node.Cluster), w.node))
		}

		if w.pick(3) == 0 {
			continue // group several edits into one change
		}

		c := tables.Changes()
		kernel.apply(t, tables, c)
		kernel.holds(t, tables)

		fresh := service.NewTables()
		for k, o := range w.objects {
			fresh.Set(k, service.New(o.Meaning(w.node.Cluster), w.node))
		}

		kernel.holds(t, fresh)

		if diff := cmp.Diff(fresh.VIPs(), tables.VIPs(), equal); diff != "" {
			t.Fatalf("VIPs -fresh +followed:\n%s", diff)
		}

		now := udpOf(w)
		for a := range answered {
			if gone := slices.Contains(c.Gone, a); gone == now[a] {
				t.Fatalf("%s: reported gone %v, answers %v", a, gone, now[a])
			}
		}

		answered = now
	}

	if kernel.Writes == 0 && edits > 100 {
		t.Error("no change was written")
	}
}

func udpOf(w *world) map[netip.AddrPort]bool {
	out := map[netip.AddrPort]bool{}

	for _, o := range w.objects {
		if p := service.New(o.Meaning(w.node.Cluster), w.node); p != nil {
			for _, a := range p.UDP {
				out[a] = true
			}
		}
	}

	return out
}
