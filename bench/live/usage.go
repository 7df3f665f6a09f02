package live

import (
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/prometheus/procfs"
)

// usage is the CPU time and the packets of a machine since boot.
type usage struct {
	Busy    time.Duration `json:"busy_ns"` // of all CPUs
	Packets uint64        `json:"packets"` // received and sent by the interface
}

func (u usage) since(before usage) usage {
	return usage{u.Busy - before.Busy, u.Packets - before.Packets}
}

// readUsage returns the usage of the machine and of the interface that has the address.
func readUsage(addr netip.Addr) (usage, error) {
	link, err := interfaceOf(addr)
	if err != nil {
		return usage{}, err
	}

	// The network namespace is that of the thread, not that of the process.
	thread, err := procfs.NewFS("/proc/thread-self")
	if err != nil {
		return usage{}, fmt.Errorf("read packets: %w", err)
	}

	links, err := thread.NetDev()
	if err != nil {
		return usage{}, fmt.Errorf("read packets: %w", err)
	}

	n, ok := links[link]
	if !ok {
		return usage{}, fmt.Errorf("read packets: no interface %q", link)
	}

	proc, err := procfs.NewDefaultFS()
	if err != nil {
		return usage{}, fmt.Errorf("read CPU time: %w", err)
	}

	stat, err := proc.Stat()
	if err != nil {
		return usage{}, fmt.Errorf("read CPU time: %w", err)
	}

	return usage{busyTime(stat.CPUTotal), n.RxPackets + n.TxPackets}, nil
}

// busyTime sums the CPU time without idle and iowait, and without guest time, which is part of
// user: proc(5).
func busyTime(t procfs.CPUStat) time.Duration {
	seconds := t.User + t.Nice + t.System + t.IRQ + t.SoftIRQ + t.Steal

	return time.Duration(seconds * float64(time.Second))
}

// interfaceOf returns the name of the interface with the address. For a loopback address, it is the
// one whose network contains the address.
func interfaceOf(addr netip.Addr) (string, error) {
	links, err := net.Interfaces()
	if err != nil {
		return "", fmt.Errorf("find interface of %s: %w", addr, err)
	}

	for _, l := range links {
		addrs, err := l.Addrs()
		if err != nil {
			continue
		}

		for _, a := range addrs {
			if p, err := netip.ParsePrefix(a.String()); err == nil && (p.Addr() == addr || addr.IsLoopback() && p.Masked().Contains(addr)) {
				return l.Name, nil
			}
		}
	}

	return "", fmt.Errorf("find interface of %s: none has it", addr)
}
