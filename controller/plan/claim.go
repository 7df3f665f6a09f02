package plan

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/ovn-ebpf/ovn-ebpf/controller/annotation"
)

// claimant is who asks for fronts. The older one gets what two ask for, of the
// same age that with the smaller key; node agents (agent/service) decide the same.
type claimant struct {
	key     Key
	created time.Time
	svc     *corev1.Service // or
	pod     *corev1.Pod
}

func (c claimant) precedes(o claimant) bool {
	return cmp.Or(c.created.Compare(o.created), c.key.Compare(o.key)) < 0
}

func (c claimant) text() string {
	return c.key.Kind.String() + " " + c.key.Namespace + "/" + c.key.Name
}

// claims settles which fronts an object gets.
type claims struct {
	cluster   *Cluster
	self      claimant
	nodes     *servers
	shortfall *shortfall
	older     map[string][]claimant // by index value, who precedes self
	asked     map[*corev1.Service]asked
	askedPods map[*corev1.Pod]askedHost
}

// asked are the fronts that a service asks for, beside its cluster IPs.
type asked struct {
	external map[netip.Addr]bool
	ports    map[askedPort]bool
	is4, is6 bool // families that it has
}

type askedPort struct {
	proto  corev1.Protocol
	number int32
	node   bool // a node port
}

func newClaims(c *Cluster, self claimant, nodes *servers, u *shortfall) *claims {
	return &claims{
		cluster: c, self: self, nodes: nodes, shortfall: u, older: map[string][]claimant{},
		asked: map[*corev1.Service]asked{}, askedPods: map[*corev1.Pod]askedHost{},
	}
}

// keep returns the fronts that self gets; for the others it says why not. It
// changes the slice.
func (c *claims) keep(proto corev1.Protocol, fronts []front) []front {
	if len(fronts) == 0 || !c.contested(proto, fronts) {
		return fronts
	}
	return slices.DeleteFunc(fronts, func(f front) bool {
		if !f.external {
			return false // a cluster IP is the API server's to give
		}
		on := f.of
		if on == nil {
			on = c.nodes.byAddr[f.addr.Addr()]
		}
		why := ""
		if annotation.IsKept(proto, f.addr.Port()) && (f.of != nil || c.nodes.isHost(f.addr.Addr())) {
			why = "it is the node's own"
		} else if holder, ok := c.holder(proto, f, on); ok {
			why = holder.text() + " has it"
		}
		if why != "" {
			c.shortfall.add("%s port %d of %s: %s", proto, f.addr.Port(), f.addr.Addr(), why)
		}
		return why != ""
	})
}

// contested says whether one of the fronts of a port may not be self's to get.
func (c *claims) contested(proto corev1.Protocol, fronts []front) bool {
	var nodePort, anyNodePort uint16 // already looked up: they are many, and one port
	for _, f := range fronts {
		port := f.addr.Port()
		switch {
		case !f.external || f.of != nil && nodePort == port:
			continue
		case annotation.IsKept(proto, port):
			return true
		case f.of != nil:
			nodePort = port
			if len(c.preceding(frontValue(proto, anyExternal, int32(port)))) > 0 {
				return true
			}
		case len(c.preceding(frontValue(proto, f.addr.Addr().String(), int32(port)))) > 0:
			return true
		}
		if anyNodePort != port && len(c.preceding(frontValue(proto, anyNode, int32(port)))) > 0 {
			return true
		}
		anyNodePort = port
	}
	return false
}

// holder is who asks for the front and precedes self, if anyone. on is the
// node whose address it is, or nil.
func (c *claims) holder(proto corev1.Protocol, f front, on *server) (claimant, bool) {
	port := int32(f.addr.Port())
	var found []claimant
	if f.of == nil {
		found = c.preceding(frontValue(proto, f.addr.Addr().String(), port))
	} else {
		found = c.preceding(frontValue(proto, anyExternal, port))
	}
	if on != nil {
		found = append(slices.Clip(found), c.preceding(frontValue(proto, anyNode, port))...)
	}
	var first claimant
	ok := false
	for _, o := range found {
		if (!ok || o.precedes(first)) && c.asks(o, proto, f.addr, on) {
			first, ok = o, true
		}
	}
	return first, ok
}

// preceding returns the objects under the index value that precede self.
func (c *claims) preceding(value string) []claimant {
	if out, ok := c.older[value]; ok {
		return out
	}
	var out []claimant
	for _, svc := range index[corev1.Service](c.cluster.Services, ByFront, value) {
		out = append(out, claimant{key: ServiceKey(svc.Namespace, svc.Name), created: svc.CreationTimestamp.Time, svc: svc})
	}
	for _, pod := range index[corev1.Pod](c.cluster.Pods, ByFront, value) {
		out = append(out, claimant{key: PodKey(pod.Namespace, pod.Name), created: pod.CreationTimestamp.Time, pod: pod})
	}
	out = slices.DeleteFunc(out, func(o claimant) bool { return !o.precedes(c.self) })
	c.older[value] = out
	return out
}

// asks says whether the object asks for the front.
func (c *claims) asks(o claimant, proto corev1.Protocol, addr netip.AddrPort, on *server) bool {
	if o.pod != nil {
		if on == nil || o.pod.Spec.NodeName != on.name {
			return false
		}
		w, ok := c.askedPods[o.pod]
		if !ok {
			w = whatPodAsks(o.pod)
			c.askedPods[o.pod] = w
		}
		return w.asks(proto, addr, on)
	}
	w, ok := c.asked[o.svc]
	if !ok {
		w = c.whatAsks(o.svc)
		c.asked[o.svc] = w
	}
	a := addr.Addr()
	if has := a.Is4() && w.is4 || !a.Is4() && w.is6; !has {
		return false
	}
	number := int32(addr.Port())
	return w.external[a] && w.ports[askedPort{proto, number, false}] ||
		on != nil && w.ports[askedPort{proto, number, true}] && slices.Contains(on.nodePorts, a)
}

// whatAsks is read once: two services may have all of thousands of fronts in common.
func (c *claims) whatAsks(svc *corev1.Service) asked {
	if !served(svc) {
		return asked{}
	}
	own := clusterAddresses(svc)
	w := asked{
		external: map[netip.Addr]bool{}, ports: map[askedPort]bool{}, is4: len(ofFamily(own, true)) > 0, is6: len(ofFamily(own, false)) > 0,
	}
	for _, a := range c.cluster.Config.externalAddresses(svc, nil) {
		w.external[a] = true
	}
	for _, p := range annotation.ServicePorts(svc, nil) {
		proto := annotation.Protocol(p.Protocol)
		w.ports[askedPort{proto, p.Port, false}] = true
		if p.NodePort != 0 {
			w.ports[askedPort{proto, p.NodePort, true}] = true
		}
	}
	return w
}

// ByFront is the index of services and pods by the ports that they ask for
// outside of the service network.
const ByFront = "front"

// Instead of an address in a value of ByFront.
const (
	anyNode     = "node"     // a node port or a host port
	anyExternal = "external" // an external address, whichever
)

func frontValue(proto corev1.Protocol, where string, port int32) string {
	return string(proto) + "/" + where + "/" + strconv.Itoa(int(port))
}

// ServiceFronts is the index function for ByFront of services.
func ServiceFronts(obj any) ([]string, error) {
	svc, ok := obj.(*corev1.Service)
	if !ok {
		return nil, nil
	}
	var external []string
	for _, text := range slices.Concat(annotation.ExternalIPs(svc), ingressAddresses(svc)) {
		if a, err := netip.ParseAddr(text); err == nil {
			external = append(external, a.Unmap().String())
		}
	}
	var out []string
	for _, p := range annotation.ServicePorts(svc, nil) {
		proto := annotation.Protocol(p.Protocol)
		for _, a := range external {
			out = append(out, frontValue(proto, a, p.Port))
		}
		if len(external) > 0 {
			out = append(out, frontValue(proto, anyExternal, p.Port))
		}
		if p.NodePort != 0 {
			out = append(out, frontValue(proto, anyNode, p.NodePort))
		}
	}
	return out, nil
}

// PodFronts is the index function for ByFront of pods.
func PodFronts(obj any) ([]string, error) {
	pod, ok := obj.(*corev1.Pod)
	if !ok || pod.Spec.HostNetwork {
		return nil, nil
	}
	var out []string
	for _, p := range hostPorts(pod) {
		out = append(out, frontValue(annotation.Protocol(p.Protocol), anyNode, p.HostPort))
	}
	return out, nil
}
