package corpus

import (
	"net/netip"
	"slices"

	"github.com/ovn-ebpf/ovn-ebpf/cluster"
	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

var both = []Family{V4, V6}

// sets returns all rows and the nodes they apply to.
func sets() []set {
	untagged, tagged := modes("", nil), modes("vlan", func(n *Node) { n.Config.VLAN = vlan })
	common := slices.Concat(untagged, tagged)

	return append([]set{
		{name: "frame", rows: frameRows, families: both, nodes: common},
		{name: "address", rows: addressRows, families: both, nodes: common},
		{name: "internal", rows: internalRows, families: both, nodes: common},
		{name: "internal arp", rows: internalARPRows, families: []Family{V4}, nodes: common},
		{name: "internal nd", rows: internalNDRows, families: []Family{V6}, nodes: common},
		{name: "port", rows: portRows, families: both, nodes: common},
		{name: "socket", rows: socketRows, families: both, nodes: common},
		{name: "service", rows: serviceRows, families: both, nodes: common},
		{name: "takeover", rows: takeoverRows, families: both, nodes: common},
		{name: "protocol", rows: protoRows, families: both, nodes: common},
		{name: "bfd", rows: bfdRows, families: both, nodes: common},
		{name: "echo", rows: echoRows, families: both, nodes: common},
		{name: "error", rows: errorRows, families: both, nodes: common},
		{name: "too big", rows: vipRows, families: both, nodes: common},
		{name: "fragment", rows: fragmentRows, families: both, nodes: common},
		{name: "arp", rows: arpRows, families: []Family{V4}, nodes: common},
		{name: "nd", rows: ndRows, families: []Family{V6}, nodes: common},
		{name: "ovn", rows: ovnRows, families: both, nodes: common},
		{name: "oversized", rows: oversizedRows, families: both, nodes: common},
		{name: "host", rows: hostRows, families: both, nodes: common},
		{name: "tag", rows: vlanRows, families: both, nodes: untagged, raw: true},
		{name: "tag", rows: ownVLANRows, families: both, nodes: tagged, raw: true},
	}, special()...)
}

// special returns the sets of nodes with special configurations.
func special() []set {
	// without optional features
	plain := func(n *Node) {
		n.Config.Mode = verdict.Mode{InSync: true, Local: n.Config.Local}
		n.Config.RoutablePods, n.Config.Masquerade, n.Config.External = nil, nil, nil
		n.Config.PodTunnels = nil
	}
	open := func(n *Node) { n.Config.Internal = nil }
	disconnected := func(n *Node) { n.Config.Connected = false }
	otherRange := func(n *Node) { n.Config.SNATPorts = cluster.PortRange{First: 32768, Last: 40959} }
	notInSync := func(n *Node) { n.Config.InSync = false }
	tunnel := func(f Family) func(*Node) { return func(n *Node) { n.Config.EncapIP = f.Encap } }
	only4 := func(n *Node) { n.Config.Node6 = netip.Addr{} }
	only6 := func(n *Node) { n.Config.Node4 = netip.Addr{} }
	v4, v6 := []Family{V4}, []Family{V6}

	return []set{
		{name: "off", rows: plainRows, families: both, nodes: modes("plain", plain)},
		{name: "no interface", rows: apartRows, families: both, nodes: modes("apart", disconnected)},
		{name: "open", rows: openRows, families: both, nodes: modes("open", open)},
		{name: "range", rows: rangeRows, families: both, nodes: modes("other range", otherRange)},
		{name: "guard", rows: guardRows, families: both, nodes: modes("not in sync", notInSync)},
		{name: "tunnel", rows: tunnelRows, families: v4, nodes: modes("tunnel v4", tunnel(V4))},
		{name: "tunnel", rows: tunnelRows, families: v6, nodes: modes("tunnel v6", tunnel(V6))},
		{name: "one family", rows: oneFamilyRows, families: v6, nodes: modes("only v4", only4)},
		{name: "one family", rows: oneFamilyRows, families: v4, nodes: modes("only v6", only6)},
	}
}

// modes returns the same node in shared and in local gateway mode.
func modes(name string, change func(*Node)) []*Node {
	if name != "" {
		name = " " + name
	}

	shared := func(n *Node) {
		n.Config.MTU = mtu // used in local gateway mode
		if change != nil {
			change(n)
		}
	}
	local := func(n *Node) {
		n.Config.Local = true
		shared(n)
	}

	return []*Node{newNode("shared"+name, shared), newNode("local"+name, local)}
}
