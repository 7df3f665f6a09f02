package link

import (
	"fmt"

	"github.com/vishvananda/netlink"
)

// Traffic counts the packets of a device in one direction since its creation. A packet that the
// stack has merged, or leaves to be segmented, counts as one. Bytes include the Ethernet header.
type Traffic struct{ Packets, Bytes, Dropped uint64 }

// PodTraffic is the traffic of one pod, from the host's end of its pair.
type PodTraffic struct {
	Name           string
	Index          int
	Received, Sent Traffic // by the pod
}

// PodsTraffic returns the traffic of all pairs of SyncPodInterface, from one dump.
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
			// The pod receives the packets that the host's end sends.
			Received: Traffic{s.TxPackets, s.TxBytes, s.TxDropped}, Sent: Traffic{s.RxPackets, s.RxBytes, s.RxDropped},
		})
	}
	return out, nil
}
