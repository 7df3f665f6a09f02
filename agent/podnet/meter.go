package podnet

import (
	"cmp"
	"slices"
	"strings"
	"sync"

	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
)

// Owner identifies the pod interface that owns a device.
type Owner struct{ Namespace, Pod, Interface string }

// Traffic counts what an interface has received and sent, as seen from its pod.
type Traffic struct {
	Owner
	Received, Sent link.Traffic
}

// Meter reads the pods' traffic from the kernel's device statistics. It caches only the owner of
// each device. It is safe for concurrent use.
type Meter struct {
	Dir string // of the records
	Max int    // the most interfaces to return; the oldest ones have precedence
	// Uncounted returns what a pod has received past its device's counters, by a shortcut of the
	// BPF programs. It may be nil.
	Uncounted func(ifindex int) (packets, bytes uint64)

	mu     sync.Mutex       // guards the following fields
	owners map[string]Owner // by host interface; the name is unique per container interface
}

// Read returns the traffic of at most m.Max interfaces, sorted by owner, and the number of omitted
// ones. It costs one dump of the kernel's devices, and one file read per device that is new since
// the last call.
func (m *Meter) Read() (traffic []Traffic, more int, err error) {
	devices, err := link.PodsTraffic()
	if err != nil {
		return nil, 0, err
	}

	if m.Uncounted != nil {
		for i, d := range devices {
			packets, bytes := m.Uncounted(d.Index)
			devices[i].Received.Packets += packets
			devices[i].Received.Bytes += bytes
		}
	}

	m.mu.Lock()
	lastOwners := m.owners // replaced, never modified
	m.mu.Unlock()

	traffic, owners, more := meter(devices, m.Max, func(host string) (Owner, bool) {
		if o, known := lastOwners[host]; known {
			return o, true
		}

		p, known := readRecord(m.Dir, host)
		namespace, name, _ := strings.Cut(p.LogicalPort, "_")

		return Owner{namespace, name, p.Interface}, known
	})

	m.mu.Lock()
	m.owners = owners
	m.mu.Unlock()

	return traffic, more, nil
}

// meter returns the traffic of at most maxOwners owners, those of the oldest devices, sorted; all
// owners by device; and the number of owners that it left out. owner returns the owner of a device,
// if it is known. If an owner has two devices, because the pod's earlier sandbox is being removed,
// the later one counts.
func meter(
	devices []link.PodTraffic,
	maxOwners int,
	owner func(host string) (Owner, bool),
) (out []Traffic, owners map[string]Owner, more int) {
	// The kernel increments interface indexes, so this is the order of age.
	devices = slices.SortedFunc(slices.Values(devices),
		func(a, b link.PodTraffic) int { return cmp.Compare(a.Index, b.Index) })

	owners = make(map[string]Owner, len(devices))
	indexes := make(map[Owner]int, len(devices)) // in out; maxOwners for an owner that is left out

	for _, d := range devices {
		o, known := owner(d.Name)
		if !known {
			continue // created by an agent without records, or being removed
		}

		owners[d.Name] = o
		t := Traffic{o, d.Received, d.Sent}

		i, seen := indexes[o]
		switch {
		case seen && i < maxOwners:
			out[i] = t
		case seen:
		case len(out) < maxOwners:
			indexes[o] = len(out)
			out = append(out, t)
		default:
			indexes[o] = maxOwners
			more++
		}
	}

	slices.SortFunc(out, func(a, b Traffic) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Pod, b.Pod),
			cmp.Compare(a.Interface, b.Interface))
	})

	return out, owners, more
}
