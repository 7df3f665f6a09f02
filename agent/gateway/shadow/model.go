package shadow

import (
	"net/netip"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/agent/gateway/verdict"
	"github.com/ovn-ebpf/ovn-ebpf/bpf"
)

// seen is what the programs have to decide by.
type seen struct {
	config  bpf.Config
	entries bpf.Entries
}

// node is what the programs know of the node, as the model has it.
func (s *seen) node() *verdict.Config {
	c := &s.config
	return &verdict.Config{
		Connected: c.Uplink != 0 && c.Bridge != 0, NodeMAC: verdict.MAC(c.NodeMAC), Node4: c.Node4, Node6: c.Node6,
		SNATFirst: c.SNATPorts.First, SNATLast: c.SNATPorts.Last, GenevePort: c.GenevePort, EncapIP: c.EncapIP,
		ServiceCIDRs: c.ServiceCIDRs, PodCIDRs: c.PodCIDRs, RoutablePods: c.RoutablePods, Masquerade: c.Masquerade,
		Internal: c.Internal, External: c.External,
		Mode: verdict.Mode{VLAN: c.VLAN, Local: c.Local, BFD: c.BFD, InSync: c.InSync, Takeover: c.Takeover, MTU: c.MTU},
	}
}

// tables are the entries, as the model has them. owns says whether a socket of the
// host has the packet to a gated port.
func (s *seen) tables(owns func() bool) *verdict.Tables {
	t := &verdict.Tables{
		Addrs: map[netip.Addr]verdict.AddrKind{}, Services: map[verdict.ServiceKey]verdict.ServiceOwner{},
		NS: map[verdict.NSKey]time.Duration{}, Frags: map[verdict.FragKey]verdict.Fragmented{},
		Flows: map[verdict.FlowKey]time.Duration{}, HostProtos: map[verdict.NSKey]bool{},
		HostSocket: func(k verdict.Socket) bool {
			return s.entries.Gated[bpf.SocketKey{Proto: k.Proto, Port: k.Local.Port()}] && owns()
		},
	}
	for a, kind := range s.entries.Addrs {
		t.Addrs[a] = verdict.AddrKind(kind)
	}
	for k, owner := range s.entries.Services {
		t.Services[verdict.ServiceKey(k)] = verdict.ServiceOwner(owner)
	}
	for k, at := range s.entries.Exchanges {
		t.NS[verdict.NSKey(k)] = at
	}
	for k, d := range s.entries.Datagrams {
		t.Frags[verdict.FragKey(k)] = verdict.Fragmented{Owner: owners[d.To], Seen: d.Seen}
	}
	for k := range s.entries.Protos {
		t.HostProtos[verdict.NSKey{Remote: k.Remote, Proto: k.Proto}] = true
	}
	for k, at := range s.entries.Takeover {
		t.Flows[verdict.FlowKey(k)] = at
	}
	return t
}

// owners are who got a first fragment, as the model has it.
var owners = map[bpf.FragmentOwner]verdict.Verdict{
	bpf.FragmentHost: verdict.Host, bpf.FragmentOVN: verdict.OVN, bpf.FragmentBoth: verdict.Both,
	bpf.FragmentDropped: verdict.Drop,
}
