package gateway

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/agent/gateway/openflow"
	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/bpf"
	"github.com/ovn-ebpf/ovn-ebpf/cluster"
	"github.com/ovn-ebpf/ovn-ebpf/cluster/masquerade"
	model "github.com/ovn-ebpf/ovn-ebpf/service"
	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// facts are the inputs of a state beside host and settings. The first group is from other parts of
// the agent (see Inputs), the second from parts of the gateway.
type facts struct {
	inSync bool           // ovn-controller has the southbound database's contents
	peers  []netip.Addr   // addresses by which other nodes are known, sorted
	hosts  []netip.Addr   // all addresses of other nodes' hosts, sorted
	former []netip.Addr   // addresses that the host no longer has
	joins  []netip.Prefix // OVN's join networks, to which the gateway routers are connected
	pods   []netip.Prefix // this node's pod subnets

	vips         []netip.Addr      // Service addresses that OVN owns
	outsideRange []verdict.FlowKey // OVN's connections from before a takeover
	notTracked   bool              // conntrack was not read yet, so such connections may exist
	wasInPlace   bool              // a round has succeeded, so corrections count as repairs
}

// state is everything that decides the owner of a packet, for either backend, except Services and
// the host's sockets. newState computes it in each round.
type state struct {
	host   Host
	node   Node
	config bpf.Config
	addrs  map[netip.Addr]verdict.AddrKind

	outsideRange []verdict.FlowKey // OVN's connections with ports outside the SNAT range
	wasInPlace   bool              // see facts
}

// newState returns the state of a node. An address of several kinds gets the first of: host, VIP,
// peer, former. Until conntrack was read, Config.Takeover is set, so the programs use the
// connections that an earlier agent has left in their table.
func newState(h Host, n Node, s Settings, f facts) state {
	st := state{
		host:   h,
		node:   n,
		config: programConfig(h, n, s, f),
		addrs:  map[netip.Addr]verdict.AddrKind{},

		outsideRange: f.outsideRange,
		wasInPlace:   f.wasInPlace,
	}
	st.config.Takeover = f.notTracked || len(f.outsideRange) > 0

	addMissing := func(kind verdict.AddrKind, addrs []netip.Addr) {
		for _, a := range addrs {
			if _, exists := st.addrs[a]; !exists {
				st.addrs[a] = kind
			}
		}
	}
	addMissing(verdict.AddrHost, hostAddrs(h))
	addMissing(verdict.AddrVIP, f.vips)
	addMissing(verdict.AddrPeer, f.peers)
	addMissing(verdict.AddrFormer, f.former)

	return st
}

// programConfig returns the programs' settings. flowInput converts them for the OpenFlow backend.
// Without a bridge that is up, Bridge is 0 and every packet goes to the host.
func programConfig(h Host, n Node, s Settings, f facts) bpf.Config {
	const ipv4, ipv6 = true, false

	c := bpf.Config{Uplink: h.Uplink.Index, Layout: s.Layout, Config: verdict.Config{
		Node4: n.Address(ipv4), Node6: n.Address(ipv6),
		SNATPorts: s.SNATPorts, GenevePort: model.TunnelPort,
		ServiceCIDRs: s.ServiceCIDRs, PodCIDRs: s.PodCIDRs, PodTunnels: s.PodTunnels,
		Masquerade: masqueradeNetworks(), Internal: internalNetworks(s, f), External: externalNetworks(h, n, s, f),
		Mode: verdict.Mode{VLAN: s.VLAN, Local: s.Local, BFD: s.BFD, InSync: f.inSync},
	}}
	copy(c.NodeMAC[:], h.Uplink.MAC) // of the same length: see checkEthernet

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

// masqueradeNetworks returns the networks of the addresses by which host and OVN reach each other
// (see hairpin.go).
func masqueradeNetworks() []netip.Prefix {
	return []netip.Prefix{masquerade.Of(true).Subnet, masquerade.Of(false).Subnet}
}

// flowInput converts the state for the OpenFlow backend. Flows do not use the age of a connection,
// so it is 0.
func (st state) flowInput(
	ports openflow.Ports,
	services map[verdict.ServiceKey]verdict.ServiceOwner,
	sockets []link.Socket,
	protos []verdict.NSKey,
) openflow.Input {
	tables := &verdict.Tables{
		Addrs:      st.addrs,
		Services:   services,
		HostProtos: map[verdict.NSKey]bool{},
		Flows:      map[verdict.FlowKey]time.Duration{},
	}
	for _, k := range protos {
		tables.HostProtos[k] = true
	}

	for _, k := range st.outsideRange {
		tables.Flows[k] = 0
	}

	in := openflow.Input{
		Ports:   ports,
		Hairpin: st.hairpin(),
		Config:  st.config.Model(),
		Tables:  tables,
	}
	for _, s := range sockets {
		in.Sockets = append(in.Sockets, verdict.Socket{Proto: s.Proto, Local: s.Local, Remote: s.Remote})
	}

	return in
}

// hairpin returns the input of the flows that connect host and OVN on the node itself.
func (st state) hairpin() openflow.Hairpin {
	h := openflow.Hairpin{
		Node4: st.config.Node4, Node6: st.config.Node6, ServiceCIDRs: st.config.ServiceCIDRs,
		Masquerade: masqueradeNetworks(),
	}
	if h.Node4.IsValid() {
		h.OVN4, h.Host4 = masquerade.Of(true).OVN, masquerade.Of(true).Host
	}

	if h.Node6.IsValid() {
		h.OVN6, h.Host6 = masquerade.Of(false).OVN, masquerade.Of(false).Host
	}

	services := serviceAddrs(st.host, h.ServiceCIDRs)

	for _, a := range slices.SortedFunc(maps.Keys(st.addrs), netip.Addr.Compare) {
		isOwn := a == h.Node4 || a == h.Node6 || a == h.Host6 // which have their own flows
		if st.addrs[a] == verdict.AddrHost && !a.IsLinkLocalUnicast() && !isOwn && !services[a] {
			h.HostAddrs = append(h.HostAddrs, a)
		}
	}

	return h
}

// ipvsDevice is the device to which kube-proxy in IPVS mode assigns every Service address.
const ipvsDevice = "kube-ipvs0"

// serviceAddrs returns those host addresses that are only Service addresses. OVN sends no packets
// there: its load balancers translate them before. An address that another device has as well is
// the host's own.
func serviceAddrs(h Host, services []netip.Prefix) map[netip.Addr]bool {
	out := map[netip.Addr]bool{}
	isService := func(a link.Address) bool {
		return a.Device == ipvsDevice || cluster.Contains(services, a.Prefix.Addr())
	}

	for _, a := range h.Addresses {
		if isService(a) {
			out[a.Prefix.Addr()] = true
		}
	}

	for _, a := range h.Addresses {
		if !isService(a) {
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
