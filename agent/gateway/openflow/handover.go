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

// The zone and the mark in which ovn-kubernetes' flows know a connection of OVN's, and
// how long one that is silent has a flow of its own.
const (
	handoverZone  = 64000
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
			handoverQuiet, m, handoverZone, handoverMark, ports.Patch))
	}
	return out
}
