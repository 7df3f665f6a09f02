package openflow

import (
	"fmt"

	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// PredecessorZone is the conntrack zone in which flow-based gateways distinguish host and pod
// connections: the helper of the first generation, and current ovn-kubernetes.
const PredecessorZone = 64000

// The mark of OVN's connections in that zone, and the idle timeout of the flow for a connection.
const (
	handoverMark  = 1
	handoverQuiet = 3600 // seconds
)

// Handover returns flows for a bridge that is handed back to ovn-kubernetes. ovn-kubernetes assigns
// a packet from the wire to the host unless its zone lists the connection as OVN's. Connections
// made under this agent are not in the zone. Each gets a flow that commits it to the zone with its
// next packet, and that expires when no packets arrive.
func Handover(ports Ports, connections []verdict.FlowKey) []string {
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
		out = append(out, fmt.Sprintf("priority=65000,idle_timeout=%d,%s,"+
			"actions=ct(commit,zone=%d,exec(load:%d->NXM_NX_CT_MARK[])),output:%d",
			handoverQuiet, m, PredecessorZone, handoverMark, ports.Patch))
	}

	return out
}
