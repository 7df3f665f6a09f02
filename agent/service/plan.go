package service

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"time"

	model "github.com/ovn-ebpf/ovn-ebpf/service"
	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// Plan is what one object requests: frontends, and the groups of backends behind them. All its
// lists except Groups are sorted. Two objects may request the same frontend; Tables decides between
// them.
type Plan struct {
	Created   time.Time // of the object; the older object wins a conflict
	Frontends []Frontend
	Groups    []Group
	VIPs      []netip.Addr // external and load balancer addresses the gateway serves
	// UDP lists the endpoints that still answer, including those that get no new clients. A socket
	// that a frontend connected to an endpoint that has left this list has no peer.
	UDP []netip.AddrPort
	// Refused describes the frontends that this node does not serve, with the reason. Refusals that
	// the controller reports are not among them.
	Refused []string
}

// Frontend is an (address, protocol, port) to which clients connect. The unspecified address of a
// family stands for all addresses of the host, see also Group.NotLoopback. Only frontends for
// sockets use it.
type Frontend struct {
	Key    verdict.ServiceKey
	Owner  verdict.ServiceOwner // of packets that arrive at the gateway; 0: not served there
	Socket bool                 // the host's sockets are translated here
	Group  int                  // index in Plan.Groups of the backends
	Port   uint16               // port number of the Service; 0 for a host port
}

// Group is the backends that several frontends share, and how traffic reaches them. Backends,
// Affinity and NotLoopback are for sockets of the host. Local, Redirect and From are for packets at
// the gateway.
type Group struct {
	Proto    uint8
	Backends []netip.AddrPort // none: clients are refused
	Affinity time.Duration    // how long a client keeps its backend; 0: no affinity
	// NotLoopback restricts the frontends at an unspecified address to the addresses of the host's
	// interfaces. Otherwise they also stand for loopback.
	NotLoopback bool
	// Local is the socket on this host behind the frontends of verdict.ServiceHost.
	Local netip.AddrPort
	// Redirect lists the destinations of arriving traffic in local gateway mode. It is the cluster
	// IP, and so OVN; or the local endpoints, if the client's address must be preserved. Without
	// destinations, traffic is rejected.
	Redirect []netip.AddrPort
	// From lists, in local gateway mode, the clients to redirect, from loadBalancerSourceRanges. If
	// empty, all are; otherwise packets of other clients are dropped.
	From []netip.Prefix
}

// Redirect is how the host redirects packets that arrive for a frontend in local gateway mode. With
// the zero value, the host redirects nothing.
type Redirect struct {
	To   []netip.AddrPort // each connection goes to one of them
	From []netip.Prefix   // see Group.From
}

// Equal reports whether both are the same.
func (r Redirect) Equal(o Redirect) bool {
	return slices.Equal(r.To, o.To) && slices.Equal(r.From, o.From)
}

// New returns the plan of an object on node n, or nil if it serves nothing.
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

	p.Frontends = slices.DeleteFunc(p.Frontends, func(f Frontend) bool {
		why, refused := n.refuses(f, m)
		if why != "" {
			p.Refused = append(p.Refused, refusal(f, why))
		}

		return refused
	})
	if len(p.Frontends)+len(p.Refused) == 0 {
		return nil
	}

	p.sort()

	return p
}

// refuses reports whether the node does not serve a frontend of the object, and why. why is "" if
// the controller reports the refusal.
func (n *Node) refuses(f Frontend, m model.Meaning) (why string, refused bool) {
	var clusterIPs []netip.Addr
	if m.Service != nil {
		clusterIPs = m.Service.ClusterIPs
	}

	if n.reserves(f.Key, clusterIPs) {
		// The controller does not report host ports at an address at which only the agent serves
		// them.
		onlyHere := !f.Key.Addr.IsUnspecified() && !n.Cluster.ServesNodePorts(f.Key.Addr)
		if m.Pod != nil && onlyHere {
			return "it is the node's own", true
		}

		return "", true
	}

	isChosen := m.Pod != nil || m.Service.HasExternalIP(f.Key.Addr) && f.Key.Port == f.Port
	why = n.takenByHost(f.Key, isChosen)

	return why, why != ""
}

// refusal returns the text of Plan.Refused about a frontend.
func refusal(f Frontend, why string) string {
	what := f.Key.Addr.String()
	if f.Key.Addr.IsUnspecified() {
		what = "every address of the node"
	}

	return fmt.Sprintf("%s port %d of %s: %s", model.ProtocolName(f.Key.Proto), f.Key.Port, what, why)
}

// add adds frontends with the backends of group g.
func (p *Plan) add(g Group, fronts []Frontend) {
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
		p.Frontends = append(p.Frontends, f)
	}
}

// sort sorts the lists and removes duplicates. If two frontends have the same key, the first one
// stays.
func (p *Plan) sort() {
	slices.SortStableFunc(p.Frontends, func(a, b Frontend) int { return compareKeys(a.Key, b.Key) })
	p.Frontends = slices.CompactFunc(p.Frontends, func(a, b Frontend) bool { return a.Key == b.Key })
	p.Frontends = slices.Clip(p.Frontends)
	slices.SortFunc(p.VIPs, netip.Addr.Compare)
	p.VIPs = slices.Compact(p.VIPs)
	slices.SortFunc(p.UDP, netip.AddrPort.Compare)
	p.UDP = slices.Compact(p.UDP)
	slices.Sort(p.Refused)
	p.Refused = slices.Compact(p.Refused)
}

// Entries returns the number of frontends and backends, with which the time for writing the plan
// grows. It is 0 without a plan.
func (p *Plan) Entries() int {
	if p == nil {
		return 0
	}

	n := len(p.Frontends)
	for i := range p.Groups {
		n += len(p.Groups[i].Backends)
	}

	return n
}

// HasAll reports whether the plan has these frontends. Without a plan, it has none.
func (p *Plan) HasAll(keys []verdict.ServiceKey) bool {
	return p != nil && !slices.ContainsFunc(keys, func(k verdict.ServiceKey) bool {
		_, has := p.frontend(k)
		return !has
	})
}

// frontend returns the plan's frontend with that key.
func (p *Plan) frontend(k verdict.ServiceKey) (Frontend, bool) {
	i, ok := slices.BinarySearchFunc(p.Frontends, k,
		func(f Frontend, k verdict.ServiceKey) int { return compareKeys(f.Key, k) })
	if !ok {
		return Frontend{}, false
	}

	return p.Frontends[i], true
}

// addresses returns the addresses for which the frontend stands. own are the addresses of the host,
// and notLoopback is that of the frontend's Group.
func (f Frontend) addresses(own []netip.Addr, notLoopback bool) []netip.Addr {
	if !f.Key.Addr.IsUnspecified() {
		return []netip.Addr{f.Key.Addr}
	}

	is4 := f.Key.Addr.Is4()

	out := model.OfFamily(own, is4)
	switch {
	case notLoopback:
	case is4:
		out = append(out, netip.AddrFrom4([4]byte{127, 0, 0, 1}))
	default:
		out = append(out, netip.IPv6Loopback())
	}

	return out
}

// equal reports whether two plans are the same.
func (p *Plan) equal(o *Plan) bool {
	return p.Created.Equal(o.Created) &&
		slices.Equal(p.Frontends, o.Frontends) &&
		slices.EqualFunc(p.Groups, o.Groups, Group.equal) &&
		slices.Equal(p.VIPs, o.VIPs) &&
		slices.Equal(p.UDP, o.UDP) &&
		slices.Equal(p.Refused, o.Refused)
}

// equal reports whether frontends of both can share one group.
func (g Group) equal(o Group) bool {
	return g.Proto == o.Proto && g.Affinity == o.Affinity &&
		g.NotLoopback == o.NotLoopback && g.Local == o.Local &&
		slices.Equal(g.Backends, o.Backends) &&
		slices.Equal(g.Redirect, o.Redirect) &&
		slices.Equal(g.From, o.From)
}

// compareKeys defines the order of frontends.
func compareKeys(a, b verdict.ServiceKey) int {
	return cmp.Or(a.Addr.Compare(b.Addr), cmp.Compare(a.Proto, b.Proto), cmp.Compare(a.Port, b.Port))
}
