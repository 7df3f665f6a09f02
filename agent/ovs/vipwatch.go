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
// backends, until ctx ends. After the connection to the bridge was lost, all VIPs are new. added
// must not block. Without ovs-vswitchd, WatchVIPs tries again every second. It calls failed with
// the error each time, and with nil once the flows are followed.
func WatchVIPs(ctx context.Context, rundir string, added func(VIP), failed func(error)) error {
	for ctx.Err() == nil {
		// Each VIP has flows for every logical switch and router, so the flows are kept as hashes.
		seed, flows, count := maphash.MakeSeed(), map[uint64]VIP{}, map[VIP]int{}
		err := monitorFlows(ctx, rundir, IntegrationBridge, translations(), func(line string) {
			if !strings.HasPrefix(line, eventPrefix) {
				failed(nil)
				return
			}
			text, vip, has := parseVIPEvent(line)
			flow := maphash.String(seed, text)
			was, had := flows[flow]
			if text == "" || has && had {
				return
			}
			if had {
				delete(flows, flow)
				if count[was]--; count[was] == 0 {
					delete(count, was)
				}
			}
			if has {
				flows[flow] = vip
				if count[vip]++; count[vip] == 1 {
					added(vip)
				}
			}
		})
		if ctx.Err() == nil {
			failed(err)
		}
		loop.Pause(ctx, time.Second)
	}
	return nil
}

// translations match the flows that translate the first packet of a connection.
func translations() []string {
	return []string{"ip," + newConnections, "ipv6," + newConnections}
}

// parseVIPEvent reads an event of a flow, like
//
//	event=ADDED table=21 cookie=0x1 ct_state=+new+trk,udp,metadata=0x5,nw_dst=10.96.0.9,tp_dst=53 actions=group:4
//
// flow identifies the flow, or is "" if it is not one of a VIP. has reports whether it has backends
// now: OVN selects one by a group.
func parseVIPEvent(line string) (flow string, vip VIP, has bool) {
	head, actions, _ := strings.Cut(line, " actions=")
	words := strings.FieldsFunc(head, func(r rune) bool { return r == ' ' || r == ',' })
	if len(words) == 0 {
		return "", VIP{}, false
	}
	var addr netip.Addr
	var port uint16
	for _, w := range words[1:] {
		key, value, _ := strings.Cut(w, "=")
		switch key {
		case "udp", "udp6":
			vip.Proto = unix.IPPROTO_UDP
		case "tcp", "tcp6":
			vip.Proto = unix.IPPROTO_TCP
		case "nw_dst", "ipv6_dst":
			addr, _ = netip.ParseAddr(value) // a prefix is not a VIP
		case "tp_dst":
			n, _ := strconv.ParseUint(value, 0, 16)
			port = uint16(n)
		case "cookie", "reason":
			continue
		}
		flow += w + " "
	}
	if vip.Proto == 0 || !addr.IsValid() || port == 0 {
		return "", VIP{}, false
	}
	vip.At = netip.AddrPortFrom(addr, port)
	return flow, vip, words[0] != "event=DELETED" && strings.Contains(actions, "group:")
}
