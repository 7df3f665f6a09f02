package link

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
)

// conntrackStat is of the network namespace of the calling thread.
const conntrackStat = "/proc/thread-self/net/stat/nf_conntrack"

// ConntrackFailures returns how many packets the kernel's connection tracker has
// lost since boot, by the kernel's name for why: "insert_failed" where no port was
// left to translate to or the connection was there already, "drop" where the table
// was full. Both are 0 where nothing tracks.
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

// parseConntrackStat adds up the lines, one a CPU, under one with the names.
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
				return nil, fmt.Errorf("read conntrack statistics: %d fields in %q", len(fields), strings.TrimSpace(row))
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
