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

// arbiter decides which of the frontends that one owner claims it gets. Services claim external
// addresses and node ports, pods claim host ports. A claim fails if the frontend is reserved for
// the node or the control plane, or if another owner that precedes this one
// (services.Owner.Precedes) claims it, too.
//
// The arbiter finds other claimants in the index ByFrontend. These are only candidates: whether
// they claim the frontend also depends on the node that has its address, and on budgets (claims).
type arbiter struct {
	cluster   *Cluster
	owner     services.Owner
	nodes     *serviceNodes
	shortfall *shortfall // of the owner: gets the reason for each frontend that it does not get

	// controlPlane reads the cluster's control plane at most once, and only if the owner claims a
	// frontend outside of the Service network.
	controlPlane func() services.ControlPlane

	// Caches, because two Services may share thousands of frontends.
	preceding     map[string][]claimant // by value of ByFrontend, the claimants that precede the owner
	serviceClaims map[*corev1.Service]serviceClaim
	podClaims     map[*corev1.Pod]podClaim
}

func newArbiter(c *Cluster, owner services.Owner, nodes *serviceNodes, s *shortfall) *arbiter {
	return &arbiter{
		cluster:       c,
		owner:         owner,
		nodes:         nodes,
		shortfall:     s,
		controlPlane:  sync.OnceValue(c.controlPlane),
		preceding:     map[string][]claimant{},
		serviceClaims: map[*corev1.Service]serviceClaim{},
		podClaims:     map[*corev1.Pod]podClaim{},
	}
}

// grant returns the frontends of one port that the owner gets, and adds the reason for each of the
// others to the shortfall. It changes the slice.
func (a *arbiter) grant(proto corev1.Protocol, frontends []frontend) []frontend {
	if !a.contested(proto, frontends) {
		return frontends
	}

	return slices.DeleteFunc(frontends, func(f frontend) bool {
		reason := a.refusal(proto, f)
		if reason != "" {
			a.shortfall.add("%s port %d of %s: %s", proto, f.addr.Port(), f.addr.Addr(), reason)
		}

		return reason != ""
	})
}

// contested reports whether one of the frontends of a port may be reserved, or claimed by a
// preceding owner. If not, which is the common case, grant need not check each frontend.
func (a *arbiter) contested(proto corev1.Protocol, frontends []frontend) bool {
	// There may be a frontend for each of thousands of nodes, but they share at most two port
	// numbers. So the numbers are collected first, and each is looked up once.
	var ports, nodePorts []uint16

	for _, f := range frontends {
		if !f.external {
			continue
		}

		port := f.addr.Port()
		if services.IsKept(proto, port) || a.controlPlane().Keeps(proto, f.addr) != "" {
			return true
		}

		ports = appendNew(ports, port)

		if f.node != nil {
			nodePorts = appendNew(nodePorts, port)
		} else if a.precedingClaims(proto, f.addr.Addr().String(), port) {
			return true
		}
	}

	for _, port := range nodePorts { // a Service may claim it at an external IP that is a node's
		if a.precedingClaims(proto, anyExternal, port) {
			return true
		}
	}

	for _, port := range ports {
		if a.precedingClaims(proto, anyNode, port) {
			return true
		}
	}

	return false
}

// appendNew appends the number if it is not in the slice.
func appendNew(numbers []uint16, number uint16) []uint16 {
	if slices.Contains(numbers, number) {
		return numbers
	}

	return append(numbers, number)
}

// precedingClaims reports whether an owner that precedes this one may claim the port at the
// address, which may be a placeholder.
func (a *arbiter) precedingClaims(proto corev1.Protocol, address string, port uint16) bool {
	return len(a.precedingClaimants(frontendValue(proto, address, port))) > 0
}

// refusal returns the reason why the owner does not get the frontend, or "".
func (a *arbiter) refusal(proto corev1.Protocol, f frontend) string {
	if !f.external {
		return "" // the API server allocates each cluster IP to one Service
	}

	// An external IP may be the address of a node, too.
	node := f.node
	if node == nil {
		node = a.nodes.byAddr[f.addr.Addr()]
	}

	// The frontend of a node port is always at a host's address.
	isHost := func(addr netip.Addr) bool { return f.node != nil || a.nodes.isHost(addr) }
	if services.Keeps(proto, f.addr, isHost) {
		return "it is the node's own"
	}

	if reason := a.controlPlane().Keeps(proto, f.addr); reason != "" {
		return reason
	}

	if holder, ok := a.holder(proto, f.addr, node); ok {
		return strings.ToLower(holder.Kind.String()) + " " + holder.Namespace + "/" + holder.Name + " has it"
	}

	return ""
}

// holder returns the owner that gets the frontend instead: the first of the preceding claimants
// that claim it, if any. node is the node that has the address, or nil.
func (a *arbiter) holder(proto corev1.Protocol, addr netip.AddrPort, node *serviceNode) (claimant, bool) {
	candidates := a.precedingClaimants(frontendValue(proto, addr.Addr().String(), addr.Port()))
	if node != nil {
		atNodes := a.precedingClaimants(frontendValue(proto, anyNode, addr.Port()))
		candidates = slices.Concat(candidates, atNodes) // not append: candidates is in the cache
	}

	var (
		first claimant
		found bool
	)

	for _, o := range candidates {
		if (!found || o.Precedes(first.Owner)) && a.claims(o, proto, addr, node) {
			first, found = o, true
		}
	}

	return first, found
}

// claimant is an owner that claims frontends. Either svc or pod is set.
type claimant struct {
	services.Owner
	svc *corev1.Service
	pod *corev1.Pod
}

// precedingClaimants returns the claimants with the value in ByFrontend that precede the owner.
func (a *arbiter) precedingClaimants(value string) []claimant {
	if out, ok := a.preceding[value]; ok {
		return out
	}

	var out []claimant
	for _, svc := range index[corev1.Service](a.cluster, KindService, ByFrontend, value) {
		out = append(out, claimant{Owner: services.OwnerOfService(svc), svc: svc})
	}

	for _, pod := range index[corev1.Pod](a.cluster, KindPod, ByFrontend, value) {
		out = append(out, claimant{Owner: services.OwnerOfPod(pod), pod: pod})
	}

	out = slices.DeleteFunc(out, func(o claimant) bool { return !o.Precedes(a.owner) })
	a.preceding[value] = out

	return out
}

// claims reports whether the claimant claims the frontend. node is the node that has the address,
// or nil.
func (a *arbiter) claims(o claimant, proto corev1.Protocol, addr netip.AddrPort, node *serviceNode) bool {
	if o.pod != nil {
		return node != nil && o.pod.Spec.NodeName == node.name && a.podClaim(o.pod).has(proto, addr, node)
	}

	return a.serviceClaim(o.svc).has(proto, addr, node)
}

// serviceClaim has the addresses and ports of the frontends that a Service claims. The zero value
// has none.
type serviceClaim struct {
	external         map[netip.Addr]bool
	ports            map[claimedPort]bool
	hasIPv4, hasIPv6 bool // families of the Service
}

// claimedPort is a port at which a Service or a pod claims frontends.
type claimedPort struct {
	proto   corev1.Protocol
	number  uint16
	atNodes bool // at nodes' addresses: a node port or a host port; otherwise at external addresses
}

// serviceClaim returns the claim of a Service. A Service that is beyond its budget claims nothing.
func (a *arbiter) serviceClaim(svc *corev1.Service) serviceClaim {
	claim, ok := a.serviceClaims[svc]
	if ok {
		return claim
	}

	model := services.New(a.cluster.Config.services(), svc, nil)
	if model != nil && a.cluster.refused(model.Key) == nil {
		claim = newServiceClaim(model)
	}

	a.serviceClaims[svc] = claim

	return claim
}

func newServiceClaim(svc *services.Service) serviceClaim {
	claim := serviceClaim{
		external: map[netip.Addr]bool{},
		ports:    map[claimedPort]bool{},
		hasIPv4:  svc.HasFamily(true),
		hasIPv6:  svc.HasFamily(false),
	}
	for _, addr := range svc.External {
		claim.external[addr] = true
	}

	for _, p := range svc.Ports {
		claim.ports[claimedPort{proto: p.Protocol, number: p.Number}] = true
		if p.NodePort != 0 {
			claim.ports[claimedPort{proto: p.Protocol, number: p.NodePort, atNodes: true}] = true
		}
	}

	return claim
}

// has reports whether the Service claims the frontend. node is the node that has the address, or
// nil.
func (s serviceClaim) has(proto corev1.Protocol, frontend netip.AddrPort, node *serviceNode) bool {
	addr, number := frontend.Addr(), frontend.Port()

	hasFamily := s.hasIPv6
	if addr.Is4() {
		hasFamily = s.hasIPv4
	}

	if !hasFamily {
		return false
	}

	isExternal := s.external[addr] && s.ports[claimedPort{proto: proto, number: number}]
	isNodePort := node != nil && s.ports[claimedPort{proto: proto, number: number, atNodes: true}] &&
		slices.Contains(node.nodePortAddresses, addr)

	return isExternal || isNodePort
}

// podClaim has the host ports that a pod claims on its node. The zero value has none.
type podClaim struct {
	pod   *services.Pod
	ports map[claimedPort][]services.HostPort
}

// podClaim returns the claim of a pod. A pod that is beyond its budget claims nothing.
func (a *arbiter) podClaim(pod *corev1.Pod) podClaim {
	claim, ok := a.podClaims[pod]
	if ok {
		return claim
	}

	if a.cluster.refused(services.OwnerOfPod(pod).Key) == nil {
		claim = newPodClaim(hostPod(pod))
	}

	a.podClaims[pod] = claim

	return claim
}

// newPodClaim returns the claim of a pod, which may be nil.
func newPodClaim(pod *services.Pod) podClaim {
	if pod == nil {
		return podClaim{}
	}

	claim := podClaim{pod, map[claimedPort][]services.HostPort{}}
	for _, port := range pod.Ports {
		p := claimedPort{proto: port.Protocol, number: port.Number, atNodes: true}
		claim.ports[p] = append(claim.ports[p], port)
	}

	return claim
}

// has reports whether one of the host ports is this frontend of the pod's node.
func (p podClaim) has(proto corev1.Protocol, addr netip.AddrPort, node *serviceNode) bool {
	isIt := func(f frontend) bool { return f.addr == addr }

	return slices.ContainsFunc(p.ports[claimedPort{proto: proto, number: addr.Port(), atNodes: true}],
		func(port services.HostPort) bool {
			return slices.ContainsFunc(hostPortFrontends(p.pod, port, node), isIt)
		})
}

// ByFrontend is the index of the Services and pods that may claim a frontend. Its values are:
//
//	ADDRESS                   a Service has this external address
//	PROTOCOL/ADDRESS/PORT     a Service has this port, and this external address
//	PROTOCOL/external/PORT    a Service has this port, and an external address
//	PROTOCOL/node/PORT        a Service has this node port, or a pod has this host port
const ByFrontend = "front"

// Placeholders for an address in a value of ByFrontend.
const (
	anyNode     = "node"     // the address of a node, at a node port or a host port
	anyExternal = "external" // any external address
)

// frontendValue returns a value of ByFrontend. The address may be a placeholder.
func frontendValue(proto corev1.Protocol, address string, port uint16) string {
	return string(proto) + "/" + address + "/" + strconv.Itoa(int(port))
}

// ServiceFrontends is the index function of Services for ByFrontend.
func ServiceFrontends(obj any) ([]string, error) {
	svc, ok := obj.(*corev1.Service)
	if !ok {
		return nil, nil
	}

	external, ports := services.Asked(svc)

	var out []string
	for _, addr := range external {
		out = append(out, addr.String())
	}

	for _, p := range ports {
		for _, addr := range external {
			out = append(out, frontendValue(p.Protocol, addr.String(), p.Number))
		}

		if len(external) > 0 {
			out = append(out, frontendValue(p.Protocol, anyExternal, p.Number))
		}

		if p.NodePort != 0 {
			out = append(out, frontendValue(p.Protocol, anyNode, p.NodePort))
		}
	}

	return out, nil
}

// PodFrontends is the index function of pods for ByFrontend.
func PodFrontends(obj any) ([]string, error) {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return nil, nil
	}

	var out []string

	ports, _ := services.HostPorts(pod)
	for _, p := range ports {
		out = append(out, frontendValue(p.Protocol, anyNode, p.Number))
	}

	return out, nil
}
