package ovs

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"
)

// DatapathStats are the statistics of all datapaths of a node's ovs-vswitchd.
type DatapathStats struct {
	Hit, Missed, Lost uint64 // packets looked up
	Flows             uint64
}

// ReadDatapathStats queries ovs-vswitchd through run directory rundir.
func ReadDatapathStats(ctx context.Context, rundir string) (DatapathStats, error) {
	path, err := controlSocket(rundir, "ovs-vswitchd")
	if err != nil {
		return DatapathStats{}, err
	}
	reply, err := unixctl(ctx, path, "dpctl/show")
	if err != nil {
		return DatapathStats{}, fmt.Errorf("query ovs-vswitchd: %w", err)
	}
	return parseDatapathStats(reply)
}

func parseDatapathStats(show string) (DatapathStats, error) {
	var sum DatapathStats
	found := false
	lines := bufio.NewScanner(strings.NewReader(show))
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		var d DatapathStats
		if n, _ := fmt.Sscanf(line, "lookups: hit:%d missed:%d lost:%d", &d.Hit, &d.Missed, &d.Lost); n == 3 {
			found = true
		} else if n, _ := fmt.Sscanf(line, "flows: %d", &d.Flows); n != 1 {
			continue
		}
		sum.Hit, sum.Missed, sum.Lost, sum.Flows = sum.Hit+d.Hit, sum.Missed+d.Missed, sum.Lost+d.Lost, sum.Flows+d.Flows
	}
	if !found {
		return sum, errors.New("read datapath statistics: no lookups in the reply of dpctl/show")
	}
	return sum, nil
}
