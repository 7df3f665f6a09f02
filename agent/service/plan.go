package service

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/bpf"
	model "github.com/ovn-ebpf/ovn-ebpf/service"
)

// Plan is what one object asks for. Everything in it is sorted.
type Plan struct {
	Created   time.Time // of the object: the older one gets a front end that two ask for
	FrontEnds []FrontEnd
	Groups    []Group
	VIPs      []netip.Addr // external and load balancer addresses the gateway serves
	// UDP are the endpoints that still answer, also those that get no new
	// clients. A socket connected to one that has left here is connected to
	// nobody.
	UDP []netip.AddrPort
}

// FrontEnd is an (address, protocol, port) to which clients connect. The
// unspecified address of a family stands for every address of the host and
// loopback; only sockets have it.
type FrontEnd struct {
	Key    bpf.ServiceKey
	Owner  bpf.ServiceOwner // of packets that arrive at the gateway; 0: it does not serve this
	Socket bool             // the host's sockets are translated here
	Group  int              // whose backends are behind it, an index of Plan.Groups
	Port   uint16           // of a Service: its own number; 0: of a pod
}

// Group is the backends that several front ends share.
type Group struct {
	Proto    uint8
	Backends []netip.AddrPort // none: clients are refused
	Affinity time.Duration    // how long a client stays with its backend; 0: not at all
	// Local is the socket on this host behind the front ends of bpf.ServiceHost.
	Local netip.AddrPort
	// Redirect is, in local gateway mode, to whom the host sends what arrives:
	// to the cluster IP, so through OVN; to one of the endpoints here where
	// the client's address is to be kept. None: it is refused.
	Redirect []netip.AddrPort
	// From are, in local gateway mode, the clients whose packets are redirected, as
	// loadBalancerSourceRanges say; none: all. The others' are dropped.
	From []netip.Prefix
}

// Redirect is a front end's in local gateway mode.
type Redirect struct {
	To   []netip.AddrPort // to one of them
	From []netip.Prefix   // see Group.From
}

// Equal says whether they are the same.
func (r Redirect) Equal(o Redirect) bool {
	return slices.Equal(r.To, o.To) && slices.Equal(r.From, o.From)
}

// New returns what an object asks for on node n, nil for nothing.
func New(m model.Meaning, n *Node) *Plan {
	var p *Plan
	switch {
	case m.Service != nil:
		p = planService(m.Service, n)
	case m.Pod != nil:
		p = planPod(m.Pod, n)
	}
	if p == nil {
		return nil
	}
	p.FrontEnds = slices.DeleteFunc(p.FrontEnds, func(f FrontEnd) bool { return n.keeps(f.Key) })
	if len(p.FrontEnds) == 0 {
		return nil
	}
	p.sort()
	return p
}

// add puts front ends before a group.
func (p *Plan) add(g Group, fronts []FrontEnd) {
	if len(fronts) == 0 {
		return
	}
	i := slices.IndexFunc(p.Groups, g.equal)
	if i < 0 {
		i = len(p.Groups)
		p.Groups = append(p.Groups, g)
	}
	for _, f := range fronts {
		f.Group = i
		p.FrontEnds = append(p.FrontEnds, f)
	}
}

// sort also leaves out what is there twice; the first front end wins.
func (p *Plan) sort() {
	slices.SortStableFunc(p.FrontEnds, func(a, b FrontEnd) int { return compareKeys(a.Key, b.Key) })
	p.FrontEnds = slices.CompactFunc(p.FrontEnds, func(a, b FrontEnd) bool { return a.Key == b.Key })
	p.FrontEnds = slices.Clip(p.FrontEnds)
	slices.SortFunc(p.VIPs, netip.Addr.Compare)
	p.VIPs = slices.Compact(p.VIPs)
	slices.SortFunc(p.UDP, netip.AddrPort.Compare)
	p.UDP = slices.Compact(p.UDP)
}

// frontEnd returns the plan's front end of that key.
func (p *Plan) frontEnd(k bpf.ServiceKey) (FrontEnd, bool) {
	i, ok := slices.BinarySearchFunc(p.FrontEnds, k, func(f FrontEnd, k bpf.ServiceKey) int { return compareKeys(f.Key, k) })
	if !ok {
		return FrontEnd{}, false
	}
	return p.FrontEnds[i], true
}

func (p *Plan) equal(o *Plan) bool {
	return p.Created.Equal(o.Created) && slices.Equal(p.FrontEnds, o.FrontEnds) && slices.EqualFunc(p.Groups, o.Groups, Group.equal) &&
		slices.Equal(p.VIPs, o.VIPs) && slices.Equal(p.UDP, o.UDP)
}

func (g Group) equal(o Group) bool {
	return g.Proto == o.Proto && g.Affinity == o.Affinity && g.Local == o.Local && slices.Equal(g.Backends, o.Backends) && slices.Equal(g.Redirect, o.Redirect) &&
		slices.Equal(g.From, o.From)
}

func compareKeys(a, b bpf.ServiceKey) int {
	return cmp.Or(a.Addr.Compare(b.Addr), cmp.Compare(a.Proto, b.Proto), cmp.Compare(a.Port, b.Port))
}
