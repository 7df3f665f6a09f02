package metrics

import (
	"fmt"
	"sync"

	"github.com/ovn-ebpf/ovn-ebpf/bpf"
)

// Derived is the reason that what the host sends has where no program sees it.
const Derived = "derived"

// HostSent tells what the host itself has sent since the first look, in the layout direct,
// where nothing of ours runs then: what the uplink says, less OVN's.
type HostSent struct {
	Device func() (packets, bytes uint64, err error) // the uplink's

	mu             sync.Mutex // guards what follows
	looks          uint64
	packets, bytes derived
}

// Append reads the programs' counters and adds the host's. If the device cannot be
// read the others are there, too.
func (h *HostSent) Append(read func() ([]bpf.Counter, error)) ([]bpf.Counter, error) {
	h.mu.Lock()
	looks := h.looks
	h.mu.Unlock()
	counters, err := read()
	if err != nil {
		return nil, err
	}
	packets, bytes, err := h.Device()
	if err != nil {
		return counters, fmt.Errorf("derive what the host sends: %w", err)
	}
	var out bpf.Counter
	for _, n := range counters {
		if n.Port == "ovn" && n.Verdict == "out" {
			out.Packets += n.Packets
			out.Bytes += n.Bytes
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.looks == looks { // else another has looked meanwhile, and may have seen later figures
		h.packets.look(packets, out.Packets, looks == 0)
		h.bytes.look(bytes, out.Bytes, looks == 0)
		h.looks++
	}
	return append(counters, bpf.Counter{
		Port: "host", Direction: "tx", Verdict: "out", Reason: Derived, Packets: uint64(h.packets.shown), Bytes: uint64(h.bytes.shown),
	}), nil
}

// derived is the uplink's own counter less what OVN has sent. The two are not
// read at one moment, so it may be a little late, but it never goes back.
type derived struct {
	device, ovn uint64 // at the last look
	sum         int64
	shown       int64
}

func (d *derived) look(device, ovn uint64, first bool) {
	if !first {
		more := int64(device - d.device)
		if device < d.device { // another device of that name
			more = int64(device)
		}
		d.sum += more - int64(ovn-d.ovn)
	}
	d.device, d.ovn = device, ovn
	d.shown = max(d.shown, d.sum)
}
