package main

import (
	"context"
	"net/netip"
	"path/filepath"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
	"github.com/ovn-ebpf/ovn-ebpf/agent/podnet"
	"github.com/ovn-ebpf/ovn-ebpf/agent/status"
	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// names finds the pod and the Service of a packet at the gateway. It reads the connection tracker
// from Open vSwitch and the frontends from the agent, at most once per interval, because a monitor
// may see thousands of packets per second. Unavailable names are omitted.
type names struct {
	agent    agentInfo
	interval time.Duration // minimum time between two refreshes

	// The state at the last refresh.
	refreshed time.Time
	pods      map[netip.Addr]string // namespace/name
	services  map[status.Frontend]string
	tracked   map[tuple]netip.Addr // pod address by each direction of a translated connection
}

// tuple identifies the packets of one direction of a connection, with the addresses that they have
// at the uplink.
type tuple struct {
	proto    uint8
	src, dst netip.AddrPort
}

func newNames(agent agentInfo) *names { return &names{agent: agent, interval: time.Second} }

// fill sets the pod and the Service in the fields of a packet, if they are known. from is the
// packet's origin, as in outcome.From.
func (n *names) fill(ctx context.Context, from string, f *packetFields, p verdict.Packet) {
	if !p.Src.IsValid() || n.agent.errRecord != nil {
		return
	}

	if isFound := n.fillKnown(from, f, p); !isFound && time.Since(n.refreshed) >= n.interval {
		n.refresh(ctx)
		n.fillKnown(from, f, p)
	}
}

// fillKnown sets the names as of the last refresh. It reports whether the pod was found.
func (n *names) fillKnown(from string, f *packetFields, p verdict.Packet) bool {
	// The address on this side of the uplink: of the receiver, or of the sender.
	local, port := p.Dst, p.DstPort
	if from != "wire" {
		local, port = p.Src, p.SrcPort
	}

	f.Service = n.services[status.Frontend{Address: local, Protocol: p.Proto, Port: port}]

	// A pod's own address is at the uplink only if it is not translated.
	if _, isPod := n.pods[local]; isPod {
		f.PodAddress = local
	} else {
		src, dst := netip.AddrPortFrom(p.Src, p.SrcPort), netip.AddrPortFrom(p.Dst, p.DstPort)
		f.PodAddress = n.tracked[tuple{p.Proto, src, dst}]
	}

	f.Pod = n.pods[f.PodAddress]

	return f.PodAddress.IsValid()
}

// refresh reads the state. It ignores errors: packets without names are better than none.
func (n *names) refresh(ctx context.Context) {
	paths := n.agent.record.Paths
	n.pods, _ = podnet.Names(filepath.Join(n.agent.runDir, podnet.RecordDir))
	n.services, _ = status.Frontends(ctx, paths)
	connections, _ := ovs.Conntrack(ctx, paths.OVSRunDir)
	n.tracked = trackedPods(connections)
	n.refreshed = time.Now()
}

// trackedPods returns the pod address of every connection that OVN translates: connections from a
// pod, which leave under the node's address, and connections to a Service, which arrive at an
// address of the node or of the Service. If two pods have connections with the same tuple, as with
// pings, the address is invalid.
func trackedPods(connections []ovs.TrackedConnection) map[tuple]netip.Addr {
	out := map[tuple]netip.Addr{}

	put := func(proto uint8, a, b netip.AddrPort, pod netip.Addr) {
		for _, t := range []tuple{{proto, a, b}, {proto, b, a}} { // both directions
			if other, isKnown := out[t]; isKnown && other != pod {
				out[t] = netip.Addr{} // ambiguous
			} else {
				out[t] = pod
			}
		}
	}

	for _, c := range connections {
		original, reply := c.Original, c.Reply
		switch {
		case original.Src != reply.Dst && original.Dst == reply.Src:
			// Only the source is translated: replies arrive at the translated address.
			put(c.Proto, reply.Src, reply.Dst, original.Src.Addr())
		case original.Dst != reply.Src:
			// The destination is translated, and maybe the source as well: the pod sends the replies.
			put(c.Proto, original.Src, original.Dst, reply.Src.Addr())
		}
	}

	return out
}
