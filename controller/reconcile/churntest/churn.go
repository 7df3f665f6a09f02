package churntest

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
)

// Churn changes a cluster at random. It makes changes that an API server accepts, and of which some
// make objects that cannot be planned. The same Rand, in a cluster with the same objects, makes the
// same changes.
//
// Its methods put, change and remove objects. A method putX creates an object, or gives the
// existing one of this name new values. An existing pod stays as it is. Services, EndpointSlices,
// Namespaces and NetworkPolicies are in services.go.
type Churn struct {
	Rand  *rand.Rand
	API   API
	Names int // number of names of a kind; fewer names are reused more often
	Nodes int // number of names of Nodes

	wrong map[string]bool // resource/key of objects that cannot be planned; see Heal
}

// Step makes one change. It draws the changes one after another, with the probability weight/95
// each. If none of them is drawn, which happens in a third of the steps, it puts a pod.
func (c *Churn) Step() {
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
		if c.Rand.IntN(95) < o.weight {
			o.do()
			return
		}
	}

	c.putPod()
}

// mark records that an object cannot be planned, until Heal repairs it.
func (c *Churn) mark(resource, key string) {
	if c.wrong == nil {
		c.wrong = map[string]bool{}
	}

	c.wrong[resource+"/"+key] = true
}

// maybe returns true with a probability in percent.
func (c *Churn) maybe(percent int) bool { return c.Rand.IntN(100) < percent }

// pick returns a random element. A value that is listed twice is drawn twice as often.
func pick[T any](c *Churn, list ...T) T { return list[c.Rand.IntN(len(list))] }

// Names of objects, which need not exist.
func (c *Churn) node() string      { return fmt.Sprint("node", c.Rand.IntN(c.Nodes)) }
func (c *Churn) namespace() string { return fmt.Sprint("ns", c.Rand.IntN(5)) }
func (c *Churn) name(kind string) string {
	return fmt.Sprint(kind, c.Rand.IntN(c.Names))
}

// labels returns labels that the selectors of NetworkPolicies can match (selector).
func (c *Churn) labels() map[string]string {
	out := map[string]string{}

	for _, k := range []string{"app", "tier"} {
		if c.maybe(70) {
			out[k] = pick(c, "a", "b", "c")
		}
	}

	return out
}

// exists returns the key of a random object of the resource, or "" if there is none.
func (c *Churn) exists(resource string) string {
	all := c.API.All(resource)
	if len(all) == 0 {
		return ""
	}

	return Key(all[c.Rand.IntN(len(all))])
}

func (c *Churn) putNode() {
	i := c.Rand.IntN(c.Nodes)
	name := fmt.Sprint("node", i)
	edited := false

	Edit(c.API, Nodes, name, func(n *corev1.Node) {
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

		c.mark(Nodes, name)
	}

	c.API.Put(n)
}

// describe writes the annotations of the agent of node i.
func (c *Churn) describe(n *corev1.Node, i int) {
	addrs := []netip.Prefix{
		netip.MustParsePrefix(fmt.Sprintf("172.30.%d.%d/16", c.Rand.IntN(2), 10+i)),
		netip.MustParsePrefix(fmt.Sprintf("fd00:172:30::%x/64", 10+i)),
	}
	mac := net.HardwareAddr{2, 0, 0, 0, 0, byte(i)}

	gateway := annotation.Gateway{Mode: annotation.GatewayModeDisabled}
	if c.maybe(75) {
		gateway = annotation.Gateway{
			Mode: pick(c, annotation.GatewayModeShared, annotation.GatewayModeShared,
				annotation.GatewayModeLocal),
			InterfaceID: "breth0_" + n.Name,
			MAC:         mac.String(),
			Addresses:   addrs,
			NodePorts:   c.maybe(90),
			NextHops: []netip.Addr{
				netip.MustParseAddr("172.30.0.1"),
				netip.MustParseAddr("fd00:172:30::1"),
			},
		}
	}

	n.Annotations[annotation.ChassisID] = n.Name
	n.Annotations[annotation.GatewayConfig] = annotation.FormatGateway(gateway)
	n.Annotations[annotation.HostCIDRs] = annotation.FormatHostCIDRs(addrs)
	n.Annotations[annotation.ManagementMACs] = annotation.FormatManagementMAC(mac)
}

// changeNode breaks or removes an annotation of a Node, also of those that the controller writes.
func (c *Churn) changeNode() {
	key := c.exists(Nodes)
	Edit(c.API, Nodes, key, func(n *corev1.Node) {
		name := pick(c, annotation.GatewayConfig, annotation.HostCIDRs, annotation.ManagementMACs,
			annotation.PodMTU, annotation.SNATPortRange, annotation.RoutablePods, annotation.GatewayRoutes,
			annotation.NodeID, annotation.NodeSubnets, annotation.NodeJoin)
		if c.maybe(40) {
			n.Annotations[name] = pick(c, "nonsense", `{"default":[]}`, `{"default":["10.128.0.0/26"]}`,
				`["10.9.9.9"]`, "1")
			c.mark(Nodes, key)
		} else {
			delete(n.Annotations, name)
		}
	})
}

func (c *Churn) removeNode() { c.API.Remove(Nodes, c.exists(Nodes)) }

// putPod creates a pod, unless it exists.
func (c *Churn) putPod() {
	namespace, name := c.namespace(), c.name("pod")
	if c.podExists(namespace + "/" + name) {
		return
	}

	c.API.Put(c.newPod(namespace, name))
}

func (c *Churn) podExists(key string) bool {
	found := false

	Edit(c.API, Pods, key, func(*corev1.Pod) { found = true })

	return found
}

// newPod returns a pod on any node. Some pods request an address or a MAC, and a few of these
// requests are invalid.
func (c *Churn) newPod(namespace, name string) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:   namespace,
			Name:        name,
			Labels:      c.labels(),
			Annotations: map[string]string{},
		},
		Spec: corev1.PodSpec{
			NodeName:    c.node(),
			HostNetwork: c.maybe(5),
			Containers:  []corev1.Container{{Name: "c", Image: "none"}},
		},
		Status: corev1.PodStatus{Phase: pick(c, corev1.PodPending, corev1.PodRunning)},
	}
	if c.maybe(10) {
		p.Spec.NodeName = "" // not scheduled yet
	}

	ports := &p.Spec.Containers[0].Ports
	*ports = append(*ports, corev1.ContainerPort{
		Name:          "http",
		ContainerPort: pick(c, int32(80), 8080),
		Protocol:      corev1.ProtocolTCP,
	})

	if c.maybe(4) {
		(*ports)[0].HostPort = pick(c, int32(8080), 8081, 9090, 30001)
	}

	switch {
	case c.maybe(3):
		p.Annotations[annotation.DefaultNetwork] = pick(c, `{"ips":["10.128.0.300"]}`,
			`{"ips":["192.168.1.1"]}`, `[{"mac":"01:00:5e:00:00:01"}]`, `{`)
		c.mark(Pods, namespace+"/"+name)
	case c.maybe(4):
		a := netip.AddrFrom4([4]byte{10, 128, byte(c.Rand.IntN(2)), byte(c.Rand.IntN(256))})
		p.Annotations[annotation.DefaultNetwork] = annotation.FormatRequest(annotation.Request{
			Addresses: []netip.Addr{a}, MAC: net.HardwareAddr{2, 1, 0, 0, 0, byte(c.Rand.IntN(20))},
		})
	}

	return p
}

func (c *Churn) removePod() { c.API.Remove(Pods, c.exists(Pods)) }

// recreatePod replaces a pod by one of the same name on any node, as a StatefulSet does.
func (c *Churn) recreatePod() {
	if key := c.exists(Pods); key != "" {
		c.API.Remove(Pods, key)
		namespace, name := SplitKey(key)
		delete(c.wrong, Pods+"/"+key)
		c.API.Put(c.newPod(namespace, name))
	}
}

// endPod schedules a pod that is not scheduled yet, and changes the phase of another one.
func (c *Churn) endPod() {
	Edit(c.API, Pods, c.exists(Pods), func(p *corev1.Pod) {
		if p.Spec.NodeName == "" {
			p.Spec.NodeName = c.node() // scheduled
			return
		}

		p.Status.Phase = pick(c, corev1.PodSucceeded, corev1.PodFailed, corev1.PodRunning)
	})
}

func (c *Churn) relabelPod() {
	Edit(c.API, Pods, c.exists(Pods), func(p *corev1.Pod) { p.Labels = c.labels() })
}

// meddle changes the controller's annotation of a pod, as another client might.
func (c *Churn) meddle() {
	key, other := c.exists(Pods), c.exists(Pods)
	stolen := ""

	Edit(c.API, Pods, other, func(p *corev1.Pod) { stolen = p.Annotations[annotation.PodNetworks] })
	Edit(c.API, Pods, key, func(p *corev1.Pod) {
		switch c.Rand.IntN(3) {
		case 0:
			delete(p.Annotations, annotation.PodNetworks)
		case 1:
			p.Annotations[annotation.PodNetworks] = "nonsense"
		default:
			p.Annotations[annotation.PodNetworks] = stolen
		}
	})
}

// Heal makes all objects plannable, before a test compares the database with that of a cold start.
// The controller keeps the rows of an object that cannot be planned, and a cold start does not know
// them.
func (c *Churn) Heal() {
	for _, obj := range c.API.All(Nodes) {
		key := Key(obj)
		Edit(c.API, Nodes, key, func(n *corev1.Node) {
			delete(n.Annotations, annotation.PodMTU)
			delete(n.Annotations, annotation.SNATPortRange)
			delete(n.Annotations, annotation.RoutablePods)
			delete(n.Annotations, annotation.GatewayRoutes)

			var i int

			_, _ = fmt.Sscanf(key, "node%d", &i)
			if c.wrong[Nodes+"/"+key] {
				delete(n.Annotations, annotation.NodeSubnets)
				c.describe(n, i)
			}
		})
	}

	for _, obj := range c.API.All(Pods) {
		key := Key(obj)
		if c.wrong[Pods+"/"+key] {
			Edit(c.API, Pods, key, func(p *corev1.Pod) { delete(p.Annotations, annotation.DefaultNetwork) })
		}
	}
}
