package reconcile

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovn-ebpf/ovn-ebpf/controller/annotation"
)

// churn changes a cluster at random, with everything that an API server would
// take, right or wrong.
type churn struct {
	rng   *rand.Rand
	api   *standinAPI
	names int // how many names of a kind there are: the fewer, the more often one is used again
	nodes int
	wrong map[string]bool // resource/key of objects that say what cannot be planned
}

// step makes one change.
func (c *churn) step() {
	for _, o := range []struct {
		weight int
		do     func()
	}{
		{4, c.putNode},
		{3, c.changeNode},
		{1, c.removeNode},
		{22, c.putPod},
		{14, c.removePod},
		{4, c.recreatePod},
		{5, c.endPod},
		{5, c.relabelPod},
		{2, c.meddle},
		{6, c.putService},
		{2, c.removeService},
		{12, c.putSlice},
		{3, c.removeSlice},
		{2, c.putNamespace},
		{1, c.removeNamespace},
		{6, c.putPolicy},
		{3, c.removePolicy},
	} {
		// The weights' sum is 95.
		if c.rng.IntN(95) < o.weight {
			o.do()
			return
		}
	}
	c.putPod()
}

func (c *churn) maybe(percent int) bool { return c.rng.IntN(100) < percent }

func pick[T any](c *churn, list ...T) T { return list[c.rng.IntN(len(list))] }

func (c *churn) node() string      { return fmt.Sprint("node", c.rng.IntN(c.nodes)) }
func (c *churn) namespace() string { return fmt.Sprint("ns", c.rng.IntN(5)) }
func (c *churn) name(kind string) string {
	return fmt.Sprint(kind, c.rng.IntN(c.names))
}

func (c *churn) labels() map[string]string {
	out := map[string]string{}
	for _, k := range []string{"app", "tier"} {
		if c.maybe(70) {
			out[k] = pick(c, "a", "b", "c")
		}
	}
	return out
}

// exists returns a random object of the resource, "" if there is none.
func (c *churn) exists(resource string) string {
	all := c.api.all(resource)
	if len(all) == 0 {
		return ""
	}
	return keyOf(all[c.rng.IntN(len(all))])
}

func (c *churn) putNode() {
	i := c.rng.IntN(c.nodes)
	name := fmt.Sprint("node", i)
	edited := false
	edit(c.api, nodesResource, name, func(n *corev1.Node) {
		edited = true
		c.describe(n, i)
	})
	if edited {
		return
	}
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{}}}
	if c.maybe(80) {
		c.describe(n, i)
	}
	if c.maybe(5) {
		n.Annotations[annotation.NodeSubnets] = `{"default":["192.168.7.0/24"]}`
		c.wrong[nodesResource+"/"+name] = true
	}
	c.api.put(n)
}

// describe writes what the node's agent would.
func (c *churn) describe(n *corev1.Node, i int) {
	addrs := []netip.Prefix{
		netip.MustParsePrefix(fmt.Sprintf("172.30.%d.%d/16", c.rng.IntN(2), 10+i)),
		netip.MustParsePrefix(fmt.Sprintf("fd00:172:30::%x/64", 10+i)),
	}
	mac := net.HardwareAddr{2, 0, 0, 0, 0, byte(i)}
	gateway := annotation.Gateway{Mode: annotation.GatewayModeDisabled}
	if c.maybe(75) {
		gateway = annotation.Gateway{
			Mode: pick(c, annotation.GatewayModeShared, annotation.GatewayModeShared, annotation.GatewayModeLocal), InterfaceID: "breth0_" + n.Name,
			MAC: mac.String(), Addresses: addrs, NodePorts: c.maybe(90),
			NextHops: []netip.Addr{netip.MustParseAddr("172.30.0.1"), netip.MustParseAddr("fd00:172:30::1")},
		}
	}
	n.Annotations[annotation.ChassisID] = n.Name
	n.Annotations[annotation.GatewayConfig] = annotation.FormatGateway(gateway)
	n.Annotations[annotation.HostCIDRs] = annotation.FormatHostCIDRs(addrs)
	n.Annotations[annotation.ManagementMACs] = annotation.FormatManagementMAC(mac)
}

func (c *churn) changeNode() {
	key := c.exists(nodesResource)
	edit(c.api, nodesResource, key, func(n *corev1.Node) {
		name := pick(c, annotation.GatewayConfig, annotation.HostCIDRs, annotation.ManagementMACs, annotation.PodMTU,
			annotation.SNATPortRange, annotation.RoutablePods, annotation.NodeID, annotation.NodeSubnets, annotation.NodeJoin)
		if c.maybe(40) {
			n.Annotations[name] = pick(c, "nonsense", `{"default":[]}`, `{"default":["10.128.0.0/26"]}`, `["10.9.9.9"]`, "1")
			c.wrong[nodesResource+"/"+key] = true
		} else {
			delete(n.Annotations, name)
		}
	})
}

func (c *churn) removeNode() { c.api.remove(nodesResource, c.exists(nodesResource)) }

func (c *churn) putPod() {
	namespace, name := c.namespace(), c.name("pod")
	if c.pod(namespace + "/" + name) {
		return
	}
	c.api.put(c.newPod(namespace, name))
}

func (c *churn) pod(key string) bool {
	found := false
	edit(c.api, podsResource, key, func(*corev1.Pod) { found = true })
	return found
}

func (c *churn) newPod(namespace, name string) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: c.labels(), Annotations: map[string]string{}},
		Spec:       corev1.PodSpec{NodeName: c.node(), HostNetwork: c.maybe(5), Containers: []corev1.Container{{Name: "c"}}},
		Status:     corev1.PodStatus{Phase: pick(c, corev1.PodPending, corev1.PodRunning)},
	}
	if c.maybe(10) {
		p.Spec.NodeName = "" // not scheduled yet
	}
	ports := &p.Spec.Containers[0].Ports
	*ports = append(*ports, corev1.ContainerPort{Name: "http", ContainerPort: pick(c, int32(80), 8080), Protocol: corev1.ProtocolTCP})
	if c.maybe(4) {
		(*ports)[0].HostPort = pick(c, int32(8080), 8081, 9090, 30001)
	}
	switch {
	case c.maybe(3):
		p.Annotations[annotation.DefaultNetwork] = pick(c, `{"ips":["10.128.0.300"]}`, `{"ips":["192.168.1.1"]}`, `[{"mac":"01:00:5e:00:00:01"}]`, `{`)
		c.wrong[podsResource+"/"+namespace+"/"+name] = true
	case c.maybe(4):
		a := netip.AddrFrom4([4]byte{10, 128, byte(c.rng.IntN(2)), byte(c.rng.IntN(256))})
		p.Annotations[annotation.DefaultNetwork] = annotation.FormatRequest(annotation.Request{
			Addresses: []netip.Addr{a}, MAC: net.HardwareAddr{2, 1, 0, 0, 0, byte(c.rng.IntN(20))},
		})
	}
	return p
}

func (c *churn) removePod() { c.api.remove(podsResource, c.exists(podsResource)) }

// recreatePod: a StatefulSet's pod, on whatever node.
func (c *churn) recreatePod() {
	if key := c.exists(podsResource); key != "" {
		c.api.remove(podsResource, key)
		namespace, name := splitKey(key)
		delete(c.wrong, podsResource+"/"+key)
		c.api.put(c.newPod(namespace, name))
	}
}

func (c *churn) endPod() {
	edit(c.api, podsResource, c.exists(podsResource), func(p *corev1.Pod) {
		if p.Spec.NodeName == "" {
			p.Spec.NodeName = c.node() // scheduled
			return
		}
		p.Status.Phase = pick(c, corev1.PodSucceeded, corev1.PodFailed, corev1.PodRunning)
	})
}

func (c *churn) relabelPod() {
	edit(c.api, podsResource, c.exists(podsResource), func(p *corev1.Pod) { p.Labels = c.labels() })
}

// meddle: somebody else writes the controller's annotation of a pod.
func (c *churn) meddle() {
	key, other := c.exists(podsResource), c.exists(podsResource)
	stolen := ""
	edit(c.api, podsResource, other, func(p *corev1.Pod) { stolen = p.Annotations[annotation.PodNetworks] })
	edit(c.api, podsResource, key, func(p *corev1.Pod) {
		switch c.rng.IntN(3) {
		case 0:
			delete(p.Annotations, annotation.PodNetworks)
		case 1:
			p.Annotations[annotation.PodNetworks] = "nonsense"
		default:
			p.Annotations[annotation.PodNetworks] = stolen
		}
	})
}

// heal corrects or removes what cannot be planned: the rows of such objects are
// left as they were, which a cold start does not know.
func (c *churn) heal() {
	for _, obj := range c.api.all(nodesResource) {
		key := keyOf(obj)
		edit(c.api, nodesResource, key, func(n *corev1.Node) {
			for _, name := range []string{annotation.PodMTU, annotation.SNATPortRange, annotation.RoutablePods} {
				delete(n.Annotations, name)
			}
			var i int
			_, _ = fmt.Sscanf(key, "node%d", &i)
			if c.wrong[nodesResource+"/"+key] {
				delete(n.Annotations, annotation.NodeSubnets)
				c.describe(n, i)
			}
		})
	}
	for _, obj := range c.api.all(podsResource) {
		key := keyOf(obj)
		if c.wrong[podsResource+"/"+key] {
			edit(c.api, podsResource, key, func(p *corev1.Pod) { delete(p.Annotations, annotation.DefaultNetwork) })
		}
	}
}
