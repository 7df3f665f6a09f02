package plan

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	services "github.com/ovn-ebpf/ovn-ebpf/service"
)

// claimant is an object that asks for fronts.
type claimant struct {
	services.Owner
	svc *corev1.Service // or
	pod *corev1.Pod
}

// claims settles which fronts an object gets.
type claims struct {
	cluster   *Cluster
	self      services.Owner
	nodes     *servers
	shortfall *shortfall
	older     map[string][]claimant // by index value, those that precede self
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
	number uint16
	node   bool // a node port
}

func newClaims(c *Cluster, self services.Owner, nodes *servers, u *shortfall) *claims {
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
		isHost := func(a netip.Addr) bool { return f.of != nil || c.nodes.isHost(a) }
		if services.Keeps(proto, f.addr, isHost) {
			why = "it is the node's own"
		} else if holder, ok := c.holder(proto, f, on); ok {
			why = strings.ToLower(holder.Kind.String()) + " " + holder.Namespace + "/" + holder.Name + " has it"
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
		case services.IsKept(proto, port):
			return true
		case f.of != nil:
			nodePort = port
			if len(c.preceding(frontValue(proto, anyExternal, port))) > 0 {
				return true
			}
		case len(c.preceding(frontValue(proto, f.addr.Addr().String(), port))) > 0:
			return true
		}
		if anyNodePort != port && len(c.preceding(frontValue(proto, anyNode, port))) > 0 {
			return true
		}
		anyNodePort = port
	}
	return false
}

// holder is who asks for the front and precedes self, if anyone. on is the
// node whose address it is, or nil.
func (c *claims) holder(proto corev1.Protocol, f front, on *server) (claimant, bool) {
	port := f.addr.Port()
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
		if (!ok || o.Precedes(first.Owner)) && c.asks(o, proto, f.addr, on) {
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
	for _, svc := range index[corev1.Service](c.cluster, KindService, ByFront, value) {
		out = append(out, claimant{Owner: services.OwnerOfService(svc), svc: svc})
	}
	for _, pod := range index[corev1.Pod](c.cluster, KindPod, ByFront, value) {
		out = append(out, claimant{Owner: services.OwnerOfPod(pod), pod: pod})
	}
	out = slices.DeleteFunc(out, func(o claimant) bool { return !o.Precedes(c.self) })
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
	number := addr.Port()
	return w.external[a] && w.ports[askedPort{proto, number, false}] ||
		on != nil && w.ports[askedPort{proto, number, true}] && slices.Contains(on.nodePorts, a)
}

// whatAsks is read once: two services may have all of thousands of fronts in common.
func (c *claims) whatAsks(svc *corev1.Service) asked {
	model := services.New(c.cluster.Config.services(), svc, nil)
	if model == nil {
		return asked{}
	}
	w := asked{external: map[netip.Addr]bool{}, ports: map[askedPort]bool{}, is4: model.HasFamily(true), is6: model.HasFamily(false)}
	for _, a := range model.External {
		w.external[a] = true
	}
	for _, p := range model.Ports {
		w.ports[askedPort{p.Protocol, p.Number, false}] = true
		if p.NodePort != 0 {
			w.ports[askedPort{p.Protocol, p.NodePort, true}] = true
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

func frontValue(proto corev1.Protocol, where string, port uint16) string {
	return string(proto) + "/" + where + "/" + strconv.Itoa(int(port))
}

// ServiceFronts is the index function for ByFront of services.
func ServiceFronts(obj any) ([]string, error) {
	svc, ok := obj.(*corev1.Service)
	if !ok {
		return nil, nil
	}
	external, ports := services.Asked(svc)
	var out []string
	for _, p := range ports {
		for _, a := range external {
			out = append(out, frontValue(p.Protocol, a.String(), p.Number))
		}
		if len(external) > 0 {
			out = append(out, frontValue(p.Protocol, anyExternal, p.Number))
		}
		if p.NodePort != 0 {
			out = append(out, frontValue(p.Protocol, anyNode, p.NodePort))
		}
	}
	return out, nil
}

// PodFronts is the index function for ByFront of pods.
func PodFronts(obj any) ([]string, error) {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return nil, nil
	}
	var out []string
	ports, _ := services.HostPorts(pod)
	for _, p := range ports {
		out = append(out, frontValue(p.Protocol, anyNode, p.Number))
	}
	return out, nil
}
