package podnet

import (
	"cmp"
	"slices"
	"strings"
	"sync"

	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
)

// Owner is whose an interface is.
type Owner struct{ Namespace, Pod, Interface string }

// Traffic is what an interface has received and sent, as its pod sees it.
type Traffic struct {
	Owner
	Received, Sent link.Traffic
}

// Meter reads what pods have received and sent from the kernel's own statistics of
// their devices. Nothing is kept but whose each device is.
type Meter struct {
	Dir  string // of the records
	Most int    // interfaces that are read, the oldest; 0: none

	mu     sync.Mutex       // guards what follows
	owners map[string]Owner // by the host's end: its name is the container's alone
}

// Read returns the traffic of at most m.Most interfaces, sorted by owner, and how many
// more there are. It costs one dump of the kernel's devices, and a file for each that has
// come since the last time.
func (m *Meter) Read() (traffic []Traffic, more int, err error) {
	devices, err := link.PodsTraffic()
	if err != nil {
		return nil, 0, err
	}
	m.mu.Lock()
	was := m.owners // never changed, only replaced
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

// meter takes the oldest devices that have an owner. Of a pod with two sandboxes, one of
// which is on its way out, the later counts.
func meter(devices []link.PodTraffic, most int, owner func(host string) (Owner, bool)) (out []Traffic, owners map[string]Owner, more int) {
	devices = slices.SortedFunc(slices.Values(devices), func(a, b link.PodTraffic) int { return cmp.Compare(a.Index, b.Index) })
	owners, at := make(map[string]Owner, len(devices)), make(map[Owner]int, len(devices))
	for _, d := range devices {
		o, known := owner(d.Name)
		if !known {
			continue // of an agent before records, or on its way out
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
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Pod, b.Pod), cmp.Compare(a.Interface, b.Interface))
	})
	return out, owners, more
}
