package ipam

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
)

// firstPodOffset is the offset of a subnet's first pod address: .1 is the router's, .2 the
// management port's.
const firstPodOffset = 3

// Pod is an owner of addresses.
type Pod struct {
	Name string // namespace/name
	UID  string // distinguishes pods of the same name
}

// Pods allocates pods' addresses from nodes' subnets. In each subnet it continues after the last
// allocated address, so that a released address is not reused at once. MAC addresses are unique on
// each node. Its methods must not be called concurrently.
type Pods struct {
	pools     map[netip.Prefix]*pool               // by subnet, masked
	held      map[string]map[string][]netip.Prefix // name → UID → addresses with their subnet's length
	owner     map[netip.Addr]Pod
	macs      map[station]Pod
	stationOf map[Pod]station // the inverse of macs
	freed     []netip.Addr    // since TakeFreed was called
}

// station is a MAC address in the network of one node.
type station struct {
	subnet netip.Prefix // the node's first, which identifies the node
	mac    string       // the bytes of a net.HardwareAddr
}

// pool is the state of a node's subnet.
type pool struct {
	last netip.Addr // the address that was allocated last, except requested ones
	used int        // number of allocated addresses
}

// NewPods returns Pods without allocations.
func NewPods() *Pods {
	return &Pods{
		pools:     map[netip.Prefix]*pool{},
		held:      map[string]map[string][]netip.Prefix{},
		owner:     map[netip.Addr]Pod{},
		macs:      map[station]Pod{},
		stationOf: map[Pod]station{},
	}
}

// Hold allocates the addresses to the pod, in place of its former ones: each with its subnet's
// length, at most one per subnet. It returns ErrTaken (wrapped) if another pod has one of them, and
// ErrInvalid (wrapped) if one is not for pods, or two are in one subnet. After an error the pod's
// allocation is unchanged.
func (p *Pods) Hold(pod Pod, addresses []netip.Prefix) error {
	for i, a := range addresses {
		if !isUsable(a.Addr(), a.Masked()) {
			return fmt.Errorf("hold address %s for pod %s: %w: not for pods", a, pod.Name, ErrInvalid)
		}

		for _, other := range addresses[:i] {
			if other.Masked() == a.Masked() {
				return fmt.Errorf("hold addresses %s and %s for pod %s: %w: both in one subnet",
					other, a, pod.Name, ErrInvalid)
			}
		}

		if err := p.takenByOther(pod, a.Addr()); err != nil {
			return fmt.Errorf("hold address %s for pod %s: %w", a.Addr(), pod.Name, err)
		}
	}

	p.releaseAddresses(pod, addresses...)

	for _, a := range addresses {
		p.owner[a.Addr()] = pod
		p.pool(a.Masked()).used++
	}

	if p.held[pod.Name] == nil {
		p.held[pod.Name] = map[string][]netip.Prefix{}
	}

	p.held[pod.Name][pod.UID] = addresses

	return nil
}

// takenByOther returns ErrTaken (wrapped) if another pod has the address.
func (p *Pods) takenByOther(pod Pod, a netip.Addr) error {
	if owner, ok := p.owner[a]; ok && owner != pod {
		return &UnavailableError{
			netip.PrefixFrom(a, a.BitLen()),
			fmt.Errorf("%w by pod %s", ErrTaken, owner.Name),
		}
	}

	return nil
}

// HoldMAC allocates the MAC address to the pod, in place of its former one. subnet is the first one
// of the pod's node. A nil MAC means that it is derived from the IPv4 address. HoldMAC returns
// ErrTaken (wrapped) if another pod of the node has it.
func (p *Pods) HoldMAC(pod Pod, subnet netip.Prefix, mac net.HardwareAddr) error {
	if err := p.CheckMAC(pod, subnet, mac); err != nil {
		return err
	}

	p.releaseMAC(pod)

	if mac != nil {
		s := station{subnet.Masked(), string(mac)}
		p.macs[s], p.stationOf[pod] = pod, s
	}

	return nil
}

// CheckMAC returns the error that HoldMAC would.
func (p *Pods) CheckMAC(pod Pod, subnet netip.Prefix, mac net.HardwareAddr) error {
	s := station{subnet.Masked(), string(mac)}

	owner, ok := p.macs[s]
	if !ok || owner == pod {
		return nil
	}

	freedBy := s.subnet // the address whose release frees the MAC address, or any address of the subnet
	if held := p.Held(owner); len(held) > 0 {
		freedBy = netip.PrefixFrom(held[0].Addr(), held[0].Addr().BitLen())
	}

	return &UnavailableError{
		freedBy,
		fmt.Errorf("hold MAC address %s for pod %s: %w by pod %s", mac, pod.Name, ErrTaken, owner.Name),
	}
}

// MAC returns the MAC address that HoldMAC recorded for the pod, nil if none.
func (p *Pods) MAC(pod Pod) net.HardwareAddr {
	s, ok := p.stationOf[pod]
	if !ok {
		return nil
	}

	return net.HardwareAddr(s.mac)
}

// Held returns the pod's addresses, nil if it has none.
func (p *Pods) Held(pod Pod) []netip.Prefix { return p.held[pod.Name][pod.UID] }

// Allocate returns an address in each subnet: the one that the pod has, or else the wanted one,
// or else any free one. For the same pod it returns the same addresses again, unless the subnets
// have changed. After an error the pod's allocation is unchanged.
func (p *Pods) Allocate(pod Pod, subnets []netip.Prefix, want ...netip.Addr) ([]netip.Prefix, error) {
	held := p.Held(pod)
	if isOnePerSubnet(held, subnets) {
		return held, nil
	}

	if err := checkWanted(want, subnets); err != nil {
		return nil, fmt.Errorf("allocate address for pod %s: %w", pod.Name, err)
	}

	var (
		addresses []netip.Prefix
		chosen    []netip.Addr // by free
	)

	for _, s := range subnets {
		subnet := s.Masked()

		if i := slices.IndexFunc(held, func(h netip.Prefix) bool { return h.Masked() == subnet }); i >= 0 {
			addresses = append(addresses, held[i])
			continue
		}

		a, isWanted := firstIn(want, subnet)
		if !isWanted {
			var err error
			if a, err = p.free(subnet); err != nil {
				return nil, fmt.Errorf("allocate address for pod %s: %w", pod.Name, err)
			}

			chosen = append(chosen, a)
		}

		addresses = append(addresses, netip.PrefixFrom(a, s.Bits()))
	}

	if err := p.Hold(pod, addresses); err != nil {
		return nil, err
	}

	for _, a := range addresses {
		if slices.Contains(chosen, a.Addr()) {
			p.pool(a.Masked()).last = a.Addr()
		}
	}

	return addresses, nil
}

// checkWanted returns ErrInvalid unless each wanted address is for pods and in a subnet of its
// own.
func checkWanted(want []netip.Addr, subnets []netip.Prefix) error {
	taken := map[netip.Prefix]netip.Addr{}

	for _, a := range want {
		i := slices.IndexFunc(subnets, func(s netip.Prefix) bool { return s.Contains(a) })
		if i < 0 {
			return fmt.Errorf("%w: %s is outside of the node's subnets %v", ErrInvalid, a, subnets)
		}

		subnet := subnets[i].Masked()
		if !isUsable(a, subnet) {
			return fmt.Errorf("%w: %s of %s is not for pods", ErrInvalid, a, subnet)
		}

		if other, ok := taken[subnet]; ok {
			return fmt.Errorf("%w: %s and %s are both in %s", ErrInvalid, other, a, subnet)
		}

		taken[subnet] = a
	}

	return nil
}

// firstIn returns the first address in the subnet.
func firstIn(addrs []netip.Addr, subnet netip.Prefix) (netip.Addr, bool) {
	for _, a := range addrs {
		if subnet.Contains(a) {
			return a, true
		}
	}

	return netip.Addr{}, false
}

// isOnePerSubnet reports whether there is exactly one address per subnet, in the same order.
func isOnePerSubnet(addresses, subnets []netip.Prefix) bool {
	return slices.EqualFunc(addresses, subnets,
		func(a, s netip.Prefix) bool { return a.Masked() == s.Masked() })
}

// free returns a free address of the subnet, given masked. It searches from the last allocated
// address to the end of the subnet, then from its beginning.
func (p *Pods) free(subnet netip.Prefix) (netip.Addr, error) {
	first := offset(subnet.Addr(), firstPodOffset)

	start := first
	if last := p.pool(subnet).last; last.IsValid() {
		start = last.Next()
	}

	for a := start; isUsable(a, subnet); a = a.Next() {
		if _, taken := p.owner[a]; !taken {
			return a, nil
		}
	}

	for a := first; a != start && isUsable(a, subnet); a = a.Next() {
		if _, taken := p.owner[a]; !taken {
			return a, nil
		}
	}

	return netip.Addr{}, &UnavailableError{
		subnet,
		fmt.Errorf("subnet %s, %d addresses in use: %w", subnet, p.pool(subnet).used, ErrExhausted),
	}
}

// isUsable reports whether a pod may have the address in the subnet, given masked: neither one of
// the first addresses, which are the node's, nor the broadcast address of IPv4.
func isUsable(a netip.Addr, subnet netip.Prefix) bool {
	if !a.IsValid() || !subnet.Contains(a) || a.Less(offset(subnet.Addr(), firstPodOffset)) {
		return false
	}

	isLast := !subnet.Contains(a.Next())

	return a.Is6() || !isLast
}

// pool returns the state of a subnet, given masked.
func (p *Pods) pool(subnet netip.Prefix) *pool {
	if p.pools[subnet] == nil {
		p.pools[subnet] = &pool{}
	}

	return p.pools[subnet]
}

// Release releases all pods of that name except those with the UIDs to keep.
func (p *Pods) Release(name string, keep ...string) {
	for uid := range p.held[name] {
		if !slices.Contains(keep, uid) {
			p.ReleaseOne(Pod{name, uid})
		}
	}
}

// ReleaseOne releases one pod's allocation.
func (p *Pods) ReleaseOne(pod Pod) {
	p.releaseAddresses(pod)
	p.releaseMAC(pod)
}

func (p *Pods) releaseMAC(pod Pod) {
	if s, ok := p.stationOf[pod]; ok {
		delete(p.macs, s)
		delete(p.stationOf, pod)
	}
}

// releaseAddresses releases the pod's addresses. Those in keep do not count as freed, because the
// caller allocates them to the pod again.
func (p *Pods) releaseAddresses(pod Pod, keep ...netip.Prefix) {
	for _, a := range p.Held(pod) {
		delete(p.owner, a.Addr())

		p.pool(a.Masked()).used--
		if !slices.Contains(keep, a) {
			p.freed = append(p.freed, a.Addr())
		}
	}

	delete(p.held[pod.Name], pod.UID)

	if len(p.held[pod.Name]) == 0 {
		delete(p.held, pod.Name)
	}
}

// TakeFreed returns the addresses that were released since the last call.
func (p *Pods) TakeFreed() []netip.Addr {
	freed := p.freed
	p.freed = nil

	return freed
}

// All returns the pods with addresses, in no order.
func (p *Pods) All() []Pod {
	var out []Pod

	for name, byUID := range p.held {
		for uid := range byUID {
			out = append(out, Pod{name, uid})
		}
	}

	return out
}

// Len returns the number of addresses in use.
func (p *Pods) Len() int { return len(p.owner) }

// Used returns how many addresses of a node's subnet are in use.
func (p *Pods) Used(subnet netip.Prefix) int {
	if pool := p.pools[subnet.Masked()]; pool != nil {
		return pool.used
	}

	return 0
}

// Capacity returns the number of pod addresses in a node's subnet, at most 1<<30.
func Capacity(subnet netip.Prefix) int {
	bits := subnet.Addr().BitLen() - subnet.Bits()
	if bits > 30 { // 1<<bits might not fit an int of 32 bits
		return 1 << 30
	}

	room := 1<<bits - firstPodOffset
	if subnet.Addr().Is4() {
		room-- // the broadcast address
	}

	return max(room, 0)
}
