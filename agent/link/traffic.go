package link

import (
	"fmt"

	"github.com/vishvananda/netlink"
)

// Traffic is what has passed a device in one direction since it was made. What the
// stack has put together, or leaves to be cut, is one packet. Bytes have the
// Ethernet header.
type Traffic struct{ Packets, Bytes, Dropped uint64 }

// PodTraffic is one pod's, by the host's end of its pair.
type PodTraffic struct {
	Name           string
	Index          int
	Received, Sent Traffic // by the pod
}

// PodsTraffic returns that of all pairs that SyncPodInterface has made, in one dump.
func PodsTraffic() ([]PodTraffic, error) {
	links, err := retry(netlink.LinkList)
	if err != nil {
		return nil, fmt.Errorf("list devices: %w", err)
	}
	out := make([]PodTraffic, 0, len(links))
	for _, l := range links {
		a := l.Attrs()
		s := a.Statistics
		if l.Type() != "veth" || a.Group != podGroup || s == nil {
			continue
		}
		out = append(out, PodTraffic{
			Name: a.Name, Index: a.Index,
			// What the host's end sends is what the pod receives.
			Received: Traffic{s.TxPackets, s.TxBytes, s.TxDropped}, Sent: Traffic{s.RxPackets, s.RxBytes, s.RxDropped},
		})
	}
	return out, nil
}
