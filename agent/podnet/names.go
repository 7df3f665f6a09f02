package podnet

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
)

// Names returns namespace/name of each pod of this node by address, from the records in dir. It
// only reads, so it may run beside an agent.
func Names(dir string) (map[netip.Addr]string, error) {
	files, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("read records: %w", err)
	}
	out := map[netip.Addr]string{}
	newest := map[netip.Addr]Pod{}
	for _, f := range files {
		host, ok := strings.CutSuffix(f.Name(), recordSuffix)
		if !ok {
			continue
		}
		p, known := readRecord(dir, host)
		if !known {
			continue // removed meanwhile, or not a record
		}
		for _, a := range p.Addresses {
			if was, there := newest[a.Addr()]; !there || was.Time.Before(p.Time) {
				newest[a.Addr()] = p
				out[a.Addr()] = strings.Replace(p.LogicalPort, "_", "/", 1)
			}
		}
	}
	return out, nil
}
