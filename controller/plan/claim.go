package plan

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"

	services "github.com/ovn-ebpf/ovn-ebpf/service"
)

// claimant is an object that requests frontends.
type claimant struct {
	services.Owner
	svc *corev1.Service // or
	pod *corev1.Pod
}

// claims decides which frontends an object gets.
type claims struct {
	cluster      *Cluster
	control      func() services.ControlPlane // read once, and only for frontends that it can keep
	self         services.Owner
	nodes        *servers
	shortfall    *shortfall
	older        map[string][]claimant // by index value, the claimants that precede self
	request      map[*corev1.Service]request
	hostRequests map[*corev1.Pod]hostRequest
}

// request lists the frontends that a service requests in addition to its cluster IPs.
type request struct {
	external map[netip.Addr]bool
	ports    map[requestedPort]bool
	is4, is6 bool // families of the service
}

type requestedPort struct {
	proto  corev1.Protocol
	number uint16
	node   bool // a node port
}

func newClaims(c *Cluster, self services.Owner, nodes *servers, u *shortfall) *claims {
	return &claims{
		cluster:      c,
		control:      sync.OnceValue(c.controlPlane),
		self:         self,
		nodes:        nodes,
		shortfall:    u,
		older:        map[string][]claimant{},
		request:      map[*corev1.Service]request{},
		hostRequests: map[*corev1.Pod]hostRequest{},
	}
}

// keepOwned returns the frontends that self gets and adds the reason for each of the others to the
// shortfall. It changes the slice.
func (c *claims) keepOwned(proto corev1.Protocol, fronts []frontend) []frontend {
	if !c.contested(proto, fronts) {
		return fronts
	}

	return slices.DeleteFunc(fronts, func(f frontend) bool {
		if !f.external {
			return false // the API server allocates cluster IPs
		}

		on := f.of
		if on == nil {
			on = c.nodes.byAddr[f.addr.Addr()]
		}

		why := ""

		isHost := func(a netip.Addr) bool { return f.of != nil || c.nodes.isHost(a) }
		if services.Keeps(proto, f.addr, isHost) {
			why = "it is the node's own"
		} else if kept := c.control().Keeps(proto, f.addr); kept != "" {
			why = kept
		} else if holder, ok := c.holder(proto, f, on); ok {
			kind := strings.ToLower(holder.Kind.String())
			why = kind + " " + holder.Namespace + "/" + holder.Name + " has it"
		}

		if why != "" {
			c.shortfall.add("%s port %d of %s: %s", proto, f.addr.Port(), f.addr.Addr(), why)
		}

		return why != ""
	})
}

// contested reports whether another owner, the nodes or the control plane may have one of the
// frontends of a port.
func (c *claims) contested(proto corev1.Protocol, fronts []frontend) bool {
	var nodePort, anyNodePort uint16 // already looked up: many frontends share one port

	for _, f := range fronts {
		port := f.addr.Port()
		switch {
		case !f.external:
			continue
		case services.IsKept(proto, port) || c.control().Keeps(proto, f.addr) != "":
			return true
		case f.of != nil && nodePort == port:
			continue
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

// holder returns the first claimant that requests the frontend and precedes self, if any. on is the
// node that has the address, or nil.
func (c *claims) holder(proto corev1.Protocol, f frontend, on *server) (claimant, bool) {
	port := f.addr.Port()

	found := c.preceding(frontValue(proto, f.addr.Addr().String(), port))
	if on != nil {
		found = append(slices.Clip(found), c.preceding(frontValue(proto, anyNode, port))...)
	}

	var first claimant

	ok := false
	for _, o := range found {
		if (!ok || o.Precedes(first.Owner)) && c.requests(o, proto, f.addr, on) {
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

// requests reports whether the claimant requests the frontend.
func (c *claims) requests(o claimant, proto corev1.Protocol, addr netip.AddrPort, on *server) bool {
	if o.pod != nil {
		if on == nil || o.pod.Spec.NodeName != on.name {
			return false
		}

		w, ok := c.hostRequests[o.pod]
		if !ok {
			if c.cluster.refused(o.Key) == nil {
				w = podRequest(o.pod)
			}

			c.hostRequests[o.pod] = w
		}

		return w.requests(proto, addr, on)
	}

	w, ok := c.request[o.svc]
	if !ok {
		w = c.serviceRequest(o.svc)
		c.request[o.svc] = w
	}

	a := addr.Addr()
	if has := a.Is4() && w.is4 || !a.Is4() && w.is6; !has {
		return false
	}

	number := addr.Port()

	return w.external[a] && w.ports[requestedPort{proto, number, false}] ||
		on != nil && w.ports[requestedPort{proto, number, true}] && slices.Contains(on.nodePorts, a)
}

// serviceRequest is called once per service, because two services may share thousands of frontends.
func (c *claims) serviceRequest(svc *corev1.Service) request {
	model := services.New(c.cluster.Config.services(), svc, nil)
	if model == nil || c.cluster.refused(model.Key) != nil {
		return request{}
	}

	w := request{
		external: map[netip.Addr]bool{},
		ports:    map[requestedPort]bool{},
		is4:      model.HasFamily(true),
		is6:      model.HasFamily(false),
	}
	for _, a := range model.External {
		w.external[a] = true
	}

	for _, p := range model.Ports {
		w.ports[requestedPort{p.Protocol, p.Number, false}] = true
		if p.NodePort != 0 {
			w.ports[requestedPort{p.Protocol, p.NodePort, true}] = true
		}
	}

	return w
}

// ByFront is the index of services and pods by the ports that they request outside of the service
// network, and of services by the external addresses that they request.
const ByFront = "front"

// Placeholders for an address in a value of ByFront.
const (
	anyNode     = "node"     // a node port or a host port
	anyExternal = "external" // any external address
)

func frontValue(proto corev1.Protocol, where string, port uint16) string {
	return string(proto) + "/" + where + "/" + strconv.Itoa(int(port))
}

// ServiceFronts is the index function of services for ByFront.
func ServiceFronts(obj any) ([]string, error) {
	svc, ok := obj.(*corev1.Service)
	if !ok {
		return nil, nil
	}

	external, ports := services.Asked(svc)

	var out []string
	for _, a := range external {
		out = append(out, a.String())
	}

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

// PodFronts is the index function of pods for ByFront.
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
