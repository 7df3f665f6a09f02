package ovs

import (
	"context"
	"hash/maphash"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ovn-ebpf/ovn-ebpf/loop"
)

// VIP is an address, protocol and port of OVN's load balancers.
type VIP struct {
	Proto uint8 // unix.IPPROTO_TCP or unix.IPPROTO_UDP
	At    netip.AddrPort
}

// WatchVIPs calls added with each VIP for which the integration bridge gets its first flow with
// backends, until ctx ends, and then returns nil. After the connection to the bridge was lost, all
// VIPs are new. Without ovs-vswitchd, WatchVIPs tries again every second. It calls failed with the
// error each time, and with nil once the flows are followed. added and failed must not block.
func WatchVIPs(ctx context.Context, rundir string, added func(VIP), failed func(error)) error {
	for ctx.Err() == nil {
		flows := newVIPFlows()

		err := monitorFlows(ctx, rundir, IntegrationBridge, newConnections, func(line string) {
			if !strings.HasPrefix(line, eventPrefix) {
				failed(nil)
				return
			}

			if vip, isFirst := flows.event(line); isFirst {
				added(vip)
			}
		})
		if ctx.Err() == nil {
			failed(err)
		}

		loop.Pause(ctx, time.Second)
	}

	return nil
}

// vipFlows are the flows with backends of all VIPs. Each VIP has flows for every logical switch and
// router, so vipFlows stores only a hash of each flow.
type vipFlows struct {
	seed  maphash.Seed
	flows map[uint64]VIP // by the hash of table and match
	count map[VIP]int    // number of flows
}

func newVIPFlows() vipFlows {
	return vipFlows{seed: maphash.MakeSeed(), flows: map[uint64]VIP{}, count: map[VIP]int{}}
}

// event notes an event of the monitor, and reports whether a VIP has got its first flow with
// backends.
func (v vipFlows) event(line string) (vip VIP, isFirst bool) {
	kind, key, actions := parseEvent(line)

	vip, isVIP := parseVIP(key)
	hasBackends := kind != "DELETED" && strings.Contains(actions, "group:") // OVN selects a backend by a group
	hash := maphash.String(v.seed, key)

	before, hadBackends := v.flows[hash]

	switch {
	case !isVIP || hasBackends == hadBackends:
		return VIP{}, false
	case hasBackends:
		v.flows[hash] = vip
		v.count[vip]++

		return vip, v.count[vip] == 1
	}

	delete(v.flows, hash)

	v.count[before]--
	if v.count[before] == 0 {
		delete(v.count, before)
	}

	return VIP{}, false
}

// parseVIP returns the VIP of a flow with this table and match, such as
//
//	21 ct_state=+new+trk,udp,metadata=0x5,nw_dst=10.96.0.9,tp_dst=53
func parseVIP(key string) (vip VIP, isVIP bool) {
	_, match, _ := strings.Cut(key, " ")

	var (
		addr netip.Addr
		port uint16
	)

	for field := range strings.SplitSeq(match, ",") {
		name, value, _ := strings.Cut(field, "=")
		switch name {
		case "udp", "udp6":
			vip.Proto = unix.IPPROTO_UDP
		case "tcp", "tcp6":
			vip.Proto = unix.IPPROTO_TCP
		case "nw_dst", "ipv6_dst":
			addr, _ = netip.ParseAddr(value) // a prefix is not a VIP
		case "tp_dst":
			n, _ := strconv.ParseUint(value, 0, 16)
			port = uint16(n)
		}
	}

	vip.At = netip.AddrPortFrom(addr, port)

	return vip, vip.Proto != 0 && addr.IsValid() && port != 0
}
