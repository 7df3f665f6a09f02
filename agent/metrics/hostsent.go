package metrics

import (
	"fmt"
	"sync"

	"github.com/ovn-ebpf/ovn-ebpf/bpf"
)

// Derived is the reason in the counter of HostSent.
const Derived = "derived"

// HostSent counts the packets that the host itself has sent since the first call of Append. It is
// for layout direct, where no program sees them: it subtracts the packets from OVN, which programs
// count, from all packets that the uplink has sent. Its methods are safe for concurrent use.
type HostSent struct {
	Device func() (packets, bytes uint64, err error) // reads the uplink's counters of sent packets

	mu             sync.Mutex // guards the following fields
	calls          uint64     // number of calls of Append that have updated packets and bytes
	packets, bytes derived
}

// Append calls read for the programs' counters, and adds a counter of the host's packets. If the
// device cannot be read, it returns the programs' counters and an error.
func (h *HostSent) Append(read func() ([]bpf.Counter, error)) ([]bpf.Counter, error) {
	h.mu.Lock()
	calls := h.calls
	h.mu.Unlock()

	// The device comes first: a packet of OVN is counted by the programs before it is sent. In the
	// other order, packets of OVN sent meanwhile would be counted as the host's.
	packets, bytes, deviceErr := h.Device()

	counters, err := read()
	if err != nil {
		return nil, err
	}

	if deviceErr != nil {
		return counters, fmt.Errorf("derive what the host sends: %w", deviceErr)
	}

	var ovn bpf.Counter // what OVN has sent

	for _, n := range counters {
		if n.Port == "ovn" && n.Verdict == "out" {
			ovn.Packets += n.Packets
			ovn.Bytes += n.Bytes
		}
	}

	h.mu.Lock()
	defer h.mu.Unlock()

	if h.calls == calls { // otherwise a concurrent call was faster, perhaps with later figures
		isFirst := calls == 0
		h.packets.update(packets, ovn.Packets, isFirst)
		h.bytes.update(bytes, ovn.Bytes, isFirst)
		h.calls++
	}

	return append(counters, bpf.Counter{
		Port:      "host",
		Direction: "tx",
		Verdict:   "out",
		Reason:    Derived,
		Packets:   uint64(h.packets.shown),
		Bytes:     uint64(h.bytes.shown),
	}), nil
}

// derived is a counter: the uplink's minus OVN's since the first update. The two are not read
// atomically, so the difference may decrease for a while. shown is the largest one so far, so it
// may lag, but never decreases.
type derived struct {
	device, ovn uint64 // at the last update
	sum         int64  // the present difference
	shown       int64  // the value of the counter
}

// update takes the present counters.
func (d *derived) update(device, ovn uint64, isFirst bool) {
	if !isFirst {
		more := int64(device - d.device)
		if device < d.device { // a new device of the same name
			more = int64(device)
		}

		d.sum += more - int64(ovn-d.ovn)
	}

	d.device, d.ovn = device, ovn
	d.shown = max(d.shown, d.sum)
}
