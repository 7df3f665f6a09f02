package corpus

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// Node is a configuration and tables. Its maps hold ages where the model's hold times, including
// Fragmented.Seen.
type Node struct {
	Name       string
	Config     verdict.Config
	Addrs      map[netip.Addr]verdict.AddrKind
	Services   map[verdict.ServiceKey]verdict.ServiceOwner
	NS         map[verdict.NSKey]time.Duration
	Frags      map[verdict.FragKey]verdict.Fragmented
	Flows      map[verdict.FlowKey]time.Duration
	HostProtos map[verdict.NSKey]bool // Remote may be verdict.AnyRemote
	Sockets    []verdict.Socket       // in the SNAT range, or at frontends; the ports of all are gated
	Gates      []Gate                 // further gated ports, of sockets that own no packets
}

// Gate is a port that a host socket may use.
type Gate struct {
	Proto uint8
	Port  uint16
}

// Tables returns a copy of the model's tables at time now.
func (n *Node) Tables(now time.Duration) *verdict.Tables {
	t := &verdict.Tables{
		Addrs: maps.Clone(n.Addrs), Services: maps.Clone(n.Services), HostProtos: maps.Clone(n.HostProtos),
		NS:         make(map[verdict.NSKey]time.Duration),
		Frags:      make(map[verdict.FragKey]verdict.Fragmented),
		Flows:      make(map[verdict.FlowKey]time.Duration),
		HostSocket: n.hostSocket, HostConnection: n.hostConnection,
	}
	for k, age := range n.NS {
		t.NS[k] = now - age
	}

	for k, first := range n.Frags {
		t.Frags[k] = verdict.Fragmented{Owner: first.Owner, Seen: now - first.Seen}
	}

	for k, age := range n.Flows {
		t.Flows[k] = now - age
	}

	return t
}

// Model returns the model for n at time now.
func (n *Node) Model(now time.Duration) verdict.Model {
	return verdict.Model{Config: &n.Config, Tables: n.Tables(now)}
}

// hostConnection is Tables.HostConnection: it knows no TIME_WAIT.
func (n *Node) hostConnection(k verdict.Socket) verdict.ConnectionState {
	if slices.Contains(n.Sockets, verdict.Socket{Proto: k.Proto, Local: k.Local, Remote: k.Remote}) {
		return verdict.Connected
	}

	return verdict.NotConnected
}

// hostSocket is Tables.HostSocket. A TCP listener owns no packet, because none answers a SYN
// cookie.
func (n *Node) hostSocket(k verdict.Socket) bool {
	return slices.ContainsFunc(n.Sockets, func(s verdict.Socket) bool {
		if s.Proto != k.Proto || s.Local != k.Local {
			return false
		}

		return s.Remote == k.Remote || s.Proto == ProtoUDP && !s.Remote.IsValid()
	})
}
