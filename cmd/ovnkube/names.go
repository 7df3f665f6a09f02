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
	at       agentInfo
	interval time.Duration

	read     time.Time
	pods     map[netip.Addr]string
	services map[status.Frontend]string
	tracked  map[tuple]netip.Addr // pod address by each direction of a translated connection
}

// tuple identifies packets of one direction of a connection outside.
type tuple struct {
	proto    uint8
	src, dst netip.AddrPort
}

func newNames(at agentInfo) *names { return &names{at: at, interval: time.Second} }

// name fills in the pod and Service of a packet, if they are known.
func (n *names) name(ctx context.Context, side string, f *packetFields, p verdict.Packet) {
	if !p.Src.IsValid() || n.at.errRecord != nil {
		return
	}

	if !n.find(side, f, p) && time.Since(n.read) >= n.interval {
		n.refresh(ctx)
		n.find(side, f, p)
	}
}

// find searches the last state, and reports whether the pod was found.
func (n *names) find(side string, f *packetFields, p verdict.Packet) bool {
	front := status.Frontend{Address: p.Dst, Protocol: p.Proto, Port: p.DstPort}

	inside := p.Dst
	if side != "wire" {
		front.Address, front.Port, inside = p.Src, p.SrcPort, p.Src
	}

	f.Service = n.services[front]
	if _, is := n.pods[inside]; is {
		f.PodAddress = inside
	} else {
		src, dst := netip.AddrPortFrom(p.Src, p.SrcPort), netip.AddrPortFrom(p.Dst, p.DstPort)
		f.PodAddress = n.tracked[tuple{p.Proto, src, dst}]
	}

	f.Pod = n.pods[f.PodAddress]

	return f.PodAddress.IsValid()
}

func (n *names) refresh(ctx context.Context) {
	paths := n.at.record.Paths
	n.pods, _ = podnet.Names(filepath.Join(n.at.runDir, podnet.RecordDir)) // unknown on error
	n.services, _ = status.Frontends(ctx, paths)
	list, _ := ovs.Conntrack(ctx, paths.OVSRunDir)
	n.tracked = trackedPods(list)
	n.read = time.Now()
}

// trackedPods returns the pod address of every connection that OVN translates: connections from a
// pod, which leave under the node's address, and connections to a Service, which arrive at an
// address of the node or of the Service. Ambiguous tuples of two pods, such as those of pings, are
// omitted.
func trackedPods(list []ovs.TrackedConnection) map[tuple]netip.Addr {
	out := map[tuple]netip.Addr{}
	put := func(t tuple, pod netip.Addr) {
		if was, there := out[t]; there && was != pod {
			pod = netip.Addr{}
		}

		out[t] = pod
	}

	for _, c := range list {
		o, r := c.Original, c.Reply
		switch {
		case o.Src != r.Dst && o.Dst == r.Src: // source translated
			put(tuple{c.Proto, r.Src, r.Dst}, o.Src.Addr())
			put(tuple{c.Proto, r.Dst, r.Src}, o.Src.Addr())
		case o.Dst != r.Src: // destination translated, and maybe the source as well
			put(tuple{c.Proto, o.Src, o.Dst}, r.Src.Addr())
			put(tuple{c.Proto, o.Dst, o.Src}, r.Src.Addr())
		}
	}

	return out
}
