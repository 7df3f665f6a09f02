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
// each device.
type Meter struct {
	Dir  string                                    // of the records
	Past func(ifindex int) (packets, bytes uint64) // received past the device's counters; nil: none
	Most int                                       // at most this many interfaces are read, the oldest first

	mu     sync.Mutex       // guards the following fields
	owners map[string]Owner // by host interface; the name is unique per container interface
}

// Read returns the traffic of at most m.Most interfaces, sorted by owner, and the number of omitted
// ones. It costs one dump of the kernel's devices, and one file read per device that is new since
// the last call.
func (m *Meter) Read() (traffic []Traffic, more int, err error) {
	devices, err := link.PodsTraffic()
	if err != nil {
		return nil, 0, err
	}

	if m.Past != nil {
		for i, d := range devices {
			packets, bytes := m.Past(d.Index)
			devices[i].Received.Packets += packets
			devices[i].Received.Bytes += bytes
		}
	}

	m.mu.Lock()
	was := m.owners // replaced, never modified
	m.mu.Unlock()
	traffic, owners, more := meter(devices, m.Most, func(host string) (Owner, bool) {
		if o, known := was[host]; known {
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

// meter takes the oldest devices that have an owner. If a pod has two sandboxes, because one is
// being removed, the later one counts.
func meter(
	devices []link.PodTraffic,
	most int,
	owner func(host string) (Owner, bool),
) (out []Traffic, owners map[string]Owner, more int) {
	devices = slices.SortedFunc(slices.Values(devices),
		func(a, b link.PodTraffic) int { return cmp.Compare(a.Index, b.Index) })

	owners, at := make(map[string]Owner, len(devices)), make(map[Owner]int, len(devices))
	for _, d := range devices {
		o, known := owner(d.Name)
		if !known {
			continue // created by an agent without records, or being removed
		}

		owners[d.Name] = o
		t := Traffic{o, d.Received, d.Sent}

		i, again := at[o]
		switch {
		case again && i < most:
			out[i] = t
		case again:
		case len(out) < most:
			at[o] = len(out)
			out = append(out, t)
		default:
			at[o] = most
			more++
		}
	}

	slices.SortFunc(out, func(a, b Traffic) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Pod, b.Pod),
			cmp.Compare(a.Interface, b.Interface))
	})

	return out, owners, more
}
