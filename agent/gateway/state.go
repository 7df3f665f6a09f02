package gateway

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/agent/gateway/openflow"
	"github.com/ovn-ebpf/ovn-ebpf/agent/gateway/verdict"
	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/bpf"
	"github.com/ovn-ebpf/ovn-ebpf/controller/annotation"
)

// facts are what the gateway is told by others.
type facts struct {
	inSync bool           // ovn-controller knows what the southbound database says
	peers  []netip.Addr   // other nodes' addresses
	former []netip.Addr   // that were the host's, and are not any more
	hosts  []netip.Addr   // all that are known of other nodes' hosts, sorted
	joins  []netip.Prefix // the networks of the gateway routers
	pods   []netip.Prefix // this node's pod subnets
}

// state is all that decides whose a packet is, for either backend.
type state struct {
	host   Host
	node   Node
	config bpf.Config
	addrs  map[netip.Addr]bpf.AddrKind
	flows  []bpf.FlowKey // OVN's, with ports outside the SNAT range
}

func newState(h Host, n Node, s Settings, f facts) state {
	return state{host: h, node: n, config: programConfig(h, n, s, f), addrs: map[netip.Addr]bpf.AddrKind{}}
}

// setAddrs enters whose each address is. One that would be of several kinds is
// of the first: host, VIP, peer, former.
func (st *state) setAddrs(f facts, vips []netip.Addr) {
	enter := func(kind bpf.AddrKind, addrs []netip.Addr) {
		for _, a := range addrs {
			if _, taken := st.addrs[a]; !taken {
				st.addrs[a] = kind
			}
		}
	}
	enter(bpf.AddrHost, hostAddrs(st.host))
	enter(bpf.AddrVIP, vips)
	enter(bpf.AddrPeer, f.peers)
	enter(bpf.AddrFormer, f.former)
}

// programConfig returns the programs' settings. Without a bridge that is up,
// Bridge is 0 and everything is passed to the host.
func programConfig(h Host, n Node, s Settings, f facts) bpf.Config {
	c := bpf.Config{
		Uplink: h.Uplink.Index, NodeMAC: h.Uplink.MAC,
		Node4: n.Address(true), Node6: n.Address(false),
		SNATPorts: s.SNATPorts, GenevePort: genevePort,
		ServiceCIDRs: s.ServiceCIDRs, PodCIDRs: s.PodCIDRs,
		Masquerade: masquerade(), Layout: layouts[s.Layout], VLAN: s.VLAN,
		Internal: internal(s, f), External: external(h, n, s, f),
		Local: s.Local, BFD: s.BFD, InSync: f.inSync,
	}
	if s.Routable {
		c.RoutablePods = f.pods
	}
	if s.Local {
		c.MTU = h.Uplink.MTU
	}
	if s.Userspace() {
		c.EncapIP = s.Encap.Addr()
	}
	if h.Bridge != nil && h.Bridge.Up {
		c.Bridge = h.Bridge.Index
	}
	return c
}

var layouts = map[Layout]bpf.Layout{"": bpf.Direct, Direct: bpf.Direct, Bridged: bpf.Bridged, Dedicated: bpf.Dedicated}

func masquerade() []netip.Prefix {
	return []netip.Prefix{annotation.MasqueradeOf(true).Subnet, annotation.MasqueradeOf(false).Subnet}
}

// input is the state as the OpenFlow backend wants it.
func (st state) input(ports openflow.Ports, services map[bpf.ServiceKey]bpf.ServiceOwner, sockets []link.Socket, protos []bpf.NSKey) openflow.Input {
	c := st.config
	in := openflow.Input{
		Ports: ports, Hairpin: st.hairpin(),
		Config: &verdict.Config{
			Connected: c.Uplink != 0 && c.Bridge != 0, NodeMAC: verdict.MAC(c.NodeMAC), Node4: c.Node4, Node6: c.Node6,
			SNATFirst: c.SNATPorts.First, SNATLast: c.SNATPorts.Last, GenevePort: c.GenevePort, EncapIP: c.EncapIP,
			ServiceCIDRs: c.ServiceCIDRs, PodCIDRs: c.PodCIDRs, RoutablePods: c.RoutablePods, Masquerade: c.Masquerade,
			Internal: c.Internal, External: c.External,
			Mode: verdict.Mode{VLAN: c.VLAN, Local: c.Local, BFD: c.BFD, InSync: c.InSync, Takeover: c.Takeover, MTU: c.MTU},
		},
		Tables: &verdict.Tables{
			Addrs: map[netip.Addr]verdict.AddrKind{}, Services: map[verdict.ServiceKey]verdict.ServiceOwner{},
			HostProtos: map[verdict.NSKey]bool{}, Flows: map[verdict.FlowKey]time.Duration{},
		},
	}
	for a, k := range st.addrs {
		in.Tables.Addrs[a] = addrKinds[k]
	}
	for k, o := range services {
		in.Tables.Services[verdict.ServiceKey(k)] = serviceOwners[o]
	}
	for _, k := range protos {
		in.Tables.HostProtos[verdict.NSKey{Remote: k.Remote, Proto: k.Proto}] = true
	}
	for _, k := range st.flows {
		in.Tables.Flows[verdict.FlowKey(k)] = 0
	}
	for _, s := range sockets {
		in.Sockets = append(in.Sockets, openflow.Socket{Proto: s.Proto, Local: s.Local, Remote: s.Remote})
	}
	return in
}

var addrKinds = map[bpf.AddrKind]verdict.AddrKind{
	bpf.AddrHost: verdict.AddrHost, bpf.AddrVIP: verdict.AddrVIP, bpf.AddrOVN: verdict.AddrOVN, bpf.AddrPeer: verdict.AddrPeer,
	bpf.AddrFormer: verdict.AddrFormer,
}

var serviceOwners = map[bpf.ServiceOwner]verdict.ServiceOwner{bpf.ServiceOVN: verdict.ServiceOVN, bpf.ServiceHost: verdict.ServiceHost}

// hairpin is what connects host and OVN on the node itself.
func (st state) hairpin() openflow.Hairpin {
	h := openflow.Hairpin{
		Node4: st.config.Node4, Node6: st.config.Node6, ServiceCIDRs: st.config.ServiceCIDRs,
		Masquerade: masquerade(),
	}
	if h.Node4.IsValid() {
		h.OVN4, h.Host4 = annotation.MasqueradeOf(true).OVN, annotation.MasqueradeOf(true).Host
	}
	if h.Node6.IsValid() {
		h.OVN6, h.Host6 = annotation.MasqueradeOf(false).OVN, annotation.MasqueradeOf(false).Host
	}
	services := serviceAddrs(st.host, h.ServiceCIDRs)
	for _, a := range slices.SortedFunc(maps.Keys(st.addrs), netip.Addr.Compare) {
		if st.addrs[a] == bpf.AddrHost && !a.IsLinkLocalUnicast() && a != h.Host6 && a != h.Node4 && a != h.Node6 && !services[a] {
			h.HostAddrs = append(h.HostAddrs, a)
		}
	}
	return h
}

// ipvsDevice has every address of every Service where kube-proxy uses IPVS.
const ipvsDevice = "kube-ipvs0"

// serviceAddrs returns the host's addresses that are Services' alone. OVN sends
// nothing there: its load balancers have translated it before.
func serviceAddrs(h Host, services []netip.Prefix) map[netip.Addr]bool {
	out := map[netip.Addr]bool{}
	for _, a := range h.Addresses {
		if a.Device == ipvsDevice || within(services, a.Prefix.Addr()) {
			out[a.Prefix.Addr()] = true
		}
	}
	for _, a := range h.Addresses { // one that another device has, too, is the host's own
		if a.Device != ipvsDevice && !within(services, a.Prefix.Addr()) {
			delete(out, a.Prefix.Addr())
		}
	}
	return out
}

func addrsOf(prefixes []netip.Prefix) []netip.Addr {
	var out []netip.Addr
	for _, p := range prefixes {
		out = append(out, p.Addr())
	}
	return out
}
