package ipam

import (
	"fmt"
	"net/netip"
)

// firstPodOffset is where a subnet's pod addresses begin: .1 is the router's,
// .2 the management port's.
const firstPodOffset = 3

// Pod is an owner of addresses: a name, and which of the pods that had it.
type Pod struct{ Name, UID string }

// Pods hands out pods' addresses from nodes' subnets. In each subnet it goes
// on after the last one handed out, so that an address rests before it is used
// again.
type Pods struct {
	pools map[netip.Prefix]*pool
	held  map[string]map[string][]netip.Prefix // name → UID → addresses with their subnet's length
	owner map[netip.Addr]Pod
}

type pool struct {
	last netip.Addr // handed out last
	used int
}

// NewPods returns an empty book.
func NewPods() *Pods {
	return &Pods{
		pools: map[netip.Prefix]*pool{}, held: map[string]map[string][]netip.Prefix{}, owner: map[netip.Addr]Pod{},
	}
}

// Hold notes that the pod has the addresses, each with its subnet's length.
// It returns ErrTaken if another pod has one of them, and then holds none.
func (p *Pods) Hold(pod Pod, addresses []netip.Prefix) error {
	for _, a := range addresses {
		if owner, ok := p.owner[a.Addr()]; ok && owner != pod {
			return fmt.Errorf("hold address %s for pod %s: %w by pod %s", a.Addr(), pod.Name, ErrTaken, owner.Name)
		}
	}
	p.release(pod)
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

// Held returns what the pod has, nil if nothing.
func (p *Pods) Held(pod Pod) []netip.Prefix { return p.held[pod.Name][pod.UID] }

// Allocate returns an address in each subnet. Asked again for the same pod, it
// returns the same ones, unless the subnets have changed.
func (p *Pods) Allocate(pod Pod, subnets []netip.Prefix) ([]netip.Prefix, error) {
	if have := p.Held(pod); within(have, subnets) {
		return have, nil
	}
	var addresses []netip.Prefix
	for _, s := range subnets {
		a, err := p.free(s.Masked())
		if err != nil {
			return nil, fmt.Errorf("allocate address for pod %s: %w", pod.Name, err)
		}
		addresses = append(addresses, netip.PrefixFrom(a, s.Bits()))
	}
	if err := p.Hold(pod, addresses); err != nil {
		return nil, err
	}
	for _, a := range addresses {
		p.pool(a.Masked()).last = a.Addr()
	}
	return addresses, nil
}

// within says whether there is exactly one address for each subnet.
func within(addresses, subnets []netip.Prefix) bool {
	if len(addresses) != len(subnets) {
		return false
	}
	for i, s := range subnets {
		if addresses[i].Masked() != s.Masked() {
			return false
		}
	}
	return true
}

// free searches from the last address handed out to the end of the subnet,
// then from its beginning. IPv4's broadcast address is never handed out.
func (p *Pods) free(subnet netip.Prefix) (netip.Addr, error) {
	first := offset(subnet.Addr(), firstPodOffset)
	start := first
	if last := p.pool(subnet).last; last.IsValid() {
		start = last.Next()
	}
	for a := start; p.usable(a, subnet); a = a.Next() {
		if _, taken := p.owner[a]; !taken {
			return a, nil
		}
	}
	for a := first; a != start && p.usable(a, subnet); a = a.Next() {
		if _, taken := p.owner[a]; !taken {
			return a, nil
		}
	}
	return netip.Addr{}, fmt.Errorf("subnet %s, %d addresses in use: %w", subnet, p.pool(subnet).used, ErrExhausted)
}

func (p *Pods) usable(a netip.Addr, subnet netip.Prefix) bool {
	return a.IsValid() && subnet.Contains(a) && (a.Is6() || subnet.Contains(a.Next()))
}

func (p *Pods) pool(subnet netip.Prefix) *pool {
	if p.pools[subnet] == nil {
		p.pools[subnet] = &pool{}
	}
	return p.pools[subnet]
}

// Release forgets all pods of that name but the one with the UID to keep, ""
// for none.
func (p *Pods) Release(name, keepUID string) {
	for uid := range p.held[name] {
		if uid != keepUID {
			p.release(Pod{name, uid})
		}
	}
}

func (p *Pods) release(pod Pod) {
	for _, a := range p.Held(pod) {
		delete(p.owner, a.Addr())
		p.pool(a.Masked()).used--
	}
	delete(p.held[pod.Name], pod.UID)
	if len(p.held[pod.Name]) == 0 {
		delete(p.held, pod.Name)
	}
}

// Len is how many addresses are in use.
func (p *Pods) Len() int { return len(p.owner) }
