package link

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// conntrackStat describes the network namespace of the calling thread.
const conntrackStat = "/proc/thread-self/net/stat/nf_conntrack"

// ConntrackFailures returns the number of packets that the kernel's connection tracker has lost
// since boot, by the kernel's name for the cause. "insert_failed" means that no port was left for
// the translation, or that the connection existed already. "drop" means that the table was full.
// Both are 0 without connection tracking.
func ConntrackFailures() (map[string]uint64, error) {
	b, err := os.ReadFile(conntrackStat)
	if errors.Is(err, fs.ErrNotExist) {
		b, err = nil, nil
	}

	if err != nil {
		return nil, fmt.Errorf("read conntrack statistics: %w", err)
	}

	return parseConntrackStat(string(b))
}

// parseConntrackStat sums the lines, one per CPU, below a header line with the names.
func parseConntrackStat(s string) (map[string]uint64, error) {
	sum := map[string]uint64{"insert_failed": 0, "drop": 0}

	head, rows, _ := strings.Cut(s, "\n")
	for i, name := range strings.Fields(head) {
		if _, wanted := sum[name]; !wanted {
			continue
		}

		for row := range strings.Lines(rows) {
			fields := strings.Fields(row)
			if i >= len(fields) {
				return nil, fmt.Errorf("read conntrack statistics: %d fields in %q",
					len(fields), strings.TrimSpace(row))
			}

			n, err := strconv.ParseUint(fields[i], 16, 64)
			if err != nil {
				return nil, fmt.Errorf("read conntrack statistics: %w", err)
			}

			sum[name] += n
		}
	}

	return sum, nil
}

// ForgetUDP deletes UDP connections from the kernel's connection tracker, and returns their number.
// endpoints has the current endpoints of destinations. A connection to a destination is deleted if
// another endpoint answers it. Otherwise each packet of a client that keeps its port would renew
// the old entry, and none would get the new translation. Only the zone of the host's own traffic is
// changed.
func ForgetUDP(endpoints map[netip.AddrPort][]netip.AddrPort) (int, error) {
	forgotten := 0

	for _, family := range []netlink.InetFamily{unix.AF_INET, unix.AF_INET6} {
		n, err := netlink.ConntrackDeleteFilters(netlink.ConntrackTable, family, answeredByOthers(endpoints))
		if err != nil {
			return forgotten, fmt.Errorf("delete conntrack entries: %w", err)
		}

		forgotten += int(n)
	}

	return forgotten, nil
}

// answeredByOthers is the filter of ForgetUDP. It maps destinations to their endpoints.
type answeredByOthers map[netip.AddrPort][]netip.AddrPort

// MatchConntrackFlow implements netlink.CustomConntrackFilter.
func (f answeredByOthers) MatchConntrackFlow(flow *netlink.ConntrackFlow) bool {
	if flow.Forward.Protocol != unix.IPPROTO_UDP || flow.Zone != 0 {
		return false
	}

	destination, hasDestination := netip.AddrFromSlice(flow.Forward.DstIP)
	answerer, hasAnswerer := netip.AddrFromSlice(flow.Reverse.SrcIP)
	endpoints, listed := f[netip.AddrPortFrom(destination.Unmap(), flow.Forward.DstPort)]

	return hasDestination && hasAnswerer && listed &&
		!slices.Contains(endpoints, netip.AddrPortFrom(answerer.Unmap(), flow.Reverse.SrcPort))
}
