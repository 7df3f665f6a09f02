package gateway

import (
	"net/netip"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/bpf"
	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// VerdictConfig converts the programs' settings to the model's.
func VerdictConfig(c bpf.Config) *verdict.Config {
	return &verdict.Config{
		Connected:    c.Uplink != 0 && c.Bridge != 0,
		NodeMAC:      verdict.MAC(c.NodeMAC),
		Node4:        c.Node4,
		Node6:        c.Node6,
		SNATFirst:    c.SNATPorts.First,
		SNATLast:     c.SNATPorts.Last,
		GenevePort:   c.GenevePort,
		EncapIP:      c.EncapIP,
		ServiceCIDRs: c.ServiceCIDRs,
		PodCIDRs:     c.PodCIDRs,
		RoutablePods: c.RoutablePods,
		Masquerade:   c.Masquerade,
		PodTunnels:   c.PodTunnels,
		Internal:     c.Internal,
		External:     c.External,
		Mode: verdict.Mode{
			VLAN:     c.VLAN,
			Local:    c.Local,
			BFD:      c.BFD,
			InSync:   c.InSync,
			Takeover: c.Takeover,
			MTU:      c.MTU,
		},
	}
}

// VerdictTables converts entries of the programs' tables to the model's, except sockets.
func VerdictTables(e bpf.Entries) *verdict.Tables {
	t := &verdict.Tables{
		Addrs: map[netip.Addr]verdict.AddrKind{}, Services: map[verdict.ServiceKey]verdict.ServiceOwner{},
		NS: map[verdict.NSKey]time.Duration{}, Frags: map[verdict.FragKey]verdict.Fragmented{},
		Flows: map[verdict.FlowKey]time.Duration{}, HostProtos: map[verdict.NSKey]bool{},
	}
	for a, kind := range e.Addrs {
		t.Addrs[a] = verdict.AddrKind(kind)
	}

	for k, owner := range e.Services {
		t.Services[verdict.ServiceKey(k)] = verdict.ServiceOwner(owner)
	}

	for k, at := range e.Exchanges {
		t.NS[verdict.NSKey(k)] = at
	}

	for k, d := range e.Datagrams {
		t.Frags[verdict.FragKey(k)] = verdict.Fragmented{Owner: fragmentOwners[d.To], Seen: d.Seen}
	}

	for k := range e.Protos {
		t.HostProtos[verdict.NSKey{Remote: k.Remote, Proto: k.Proto}] = true
	}

	for k, at := range e.Takeover {
		t.Flows[verdict.FlowKey(k)] = at
	}

	return t
}

// fragmentOwners maps the owner of a first fragment to the model's verdict.
var fragmentOwners = map[bpf.FragmentOwner]verdict.Verdict{
	bpf.FragmentHost: verdict.Host, bpf.FragmentOVN: verdict.OVN, bpf.FragmentBoth: verdict.Both,
	bpf.FragmentDropped: verdict.Drop,
}
