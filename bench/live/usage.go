package live

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"
)

// usage is a machine's usage since boot.
type usage struct {
	Busy    time.Duration `json:"busy_ns"` // of all CPUs
	Packets uint64        `json:"packets"` // received and sent by the interface
}

func (u usage) since(before usage) usage {
	return usage{u.Busy - before.Busy, u.Packets - before.Packets}
}

// userHZ is the unit of /proc/stat in user space, on every architecture.
const userHZ = 100

// read returns the usage of the machine and of the interface that has the address.
func read(addr netip.Addr) (usage, error) {
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return usage{}, fmt.Errorf("read CPU time: %w", err)
	}

	busy, err := busyTime(string(stat))
	if err != nil {
		return usage{}, err
	}

	link, err := interfaceOf(addr)
	if err != nil {
		return usage{}, err
	}

	dev, err := os.ReadFile("/proc/thread-self/net/dev")
	if err != nil {
		return usage{}, fmt.Errorf("read packets: %w", err)
	}

	packets, err := packetsOf(string(dev), link)

	return usage{busy, packets}, err
}

// busyTime sums the first line of /proc/stat without idle and iowait, and without guest time, which
// is part of user: proc(5).
func busyTime(stat string) (time.Duration, error) {
	line, _, _ := strings.Cut(stat, "\n")

	fields := strings.Fields(line)
	if len(fields) < 8 || fields[0] != "cpu" {
		return 0, fmt.Errorf("parse CPU time %q", line)
	}

	var ticks int64

	for i, f := range fields[1:min(len(fields), 9)] {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("parse CPU time %q: %w", line, err)
		}

		if i != 3 && i != 4 {
			ticks += n
		}
	}

	return time.Duration(ticks) * time.Second / userHZ, nil
}

// packetsOf returns the packets of an interface in /proc/net/dev, received and sent.
func packetsOf(dev, link string) (uint64, error) {
	for line := range strings.Lines(dev) {
		name, rest, ok := strings.Cut(strings.TrimSpace(line), ":")
		if !ok || name != link {
			continue
		}

		fields := strings.Fields(rest)
		if len(fields) < 10 {
			break
		}

		rx, err := strconv.ParseUint(fields[1], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("parse packets of %q: %w", link, err)
		}

		tx, err := strconv.ParseUint(fields[9], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("parse packets of %q: %w", link, err)
		}

		return rx + tx, nil
	}

	return 0, fmt.Errorf("read packets: no interface %q", link)
}

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
