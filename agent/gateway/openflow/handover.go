package openflow

import (
	"fmt"
	"net/netip"
)

// Connection is one of OVN's with the world outside.
type Connection struct {
	Proto         uint8
	Local, Remote netip.AddrPort
}

// PredecessorZone is the conntrack zone in which gateways made of flows tell host and
// pods apart: the first generation's helper and today's ovn-kubernetes.
const PredecessorZone = 64000

// The mark by which ovn-kubernetes' flows know a connection of OVN's there, and how
// long one that is silent has a flow of its own.
const (
	handoverMark  = 1
	handoverQuiet = 3600 // seconds
)

// Handover returns flows for a bridge that is given back to ovn-kubernetes: it takes a
// packet from the wire for the host's unless its zone knows the connection as OVN's, and
// those made under us it does not know. Each has a flow that says so with the next
// packet, and goes when there are none.
func Handover(ports Ports, connections []Connection) []string {
	var out []string
	if ports.Uplink == 0 || ports.Patch == 0 {
		return nil
	}
	for _, c := range connections {
		word, ok := words[c.Proto]
		if !ok {
			continue
		}
		m := connection(word, c.Local, c.Remote).with("in_port", ports.Uplink)
		out = append(out, fmt.Sprintf("priority=65000,idle_timeout=%d,%s,actions=ct(commit,zone=%d,exec(load:%d->NXM_NX_CT_MARK[])),output:%d",
			handoverQuiet, m, PredecessorZone, handoverMark, ports.Patch))
	}
	return out
}
