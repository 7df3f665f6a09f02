package podnet

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/atomicfile"
)

// A record is the file of an interface in InterfaceManager.Dir. It is the Pod of its Add as JSON,
// and is named after the host's end: HostName and recordSuffix.

// RecordDir is the directory of the records below the agent's run directory.
const RecordDir = "pods"

// recordSuffix follows the name of the host's end in the name of a record.
const recordSuffix = ".json"

// recordPath returns the path of the record of a host's end.
func (w *InterfaceManager) recordPath(host string) string {
	return filepath.Join(w.Dir, host+recordSuffix)
}

// record writes p to disk atomically. It sets p.Time, unless p was recorded before: then p keeps
// its place in the order of sandboxes.
func (w *InterfaceManager) record(p Pod) error {
	host := HostName(p.ContainerID, p.Interface)
	if p.Time.IsZero() {
		p.Time = time.Now()
	}

	b, err := json.Marshal(p)
	if err == nil {
		err = os.MkdirAll(w.Dir, 0o700)
	}

	if err == nil {
		err = atomicfile.Write(w.recordPath(host), b, 0o600)
	}

	if err != nil {
		return fmt.Errorf("write record of %s: %w", host, err)
	}

	return nil
}

// forget removes a record, if it exists.
func (w *InterfaceManager) forget(host string) error {
	if err := os.Remove(w.recordPath(host)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove record of %s: %w", host, err)
	}

	return nil
}

// Record returns the Pod of an interface's Add, or false without a valid record.
func (w *InterfaceManager) Record(containerID, iface string) (p Pod, known bool) {
	return readRecord(w.Dir, HostName(containerID, iface))
}

// readRecord returns the record of a host's end, or false without a valid one.
func readRecord(dir, host string) (p Pod, known bool) {
	b, err := os.ReadFile(filepath.Join(dir, host+recordSuffix))
	return p, err == nil && json.Unmarshal(b, &p) == nil
}

// records returns all records by host interface name. It removes files that are not valid records.
func (w *InterfaceManager) records() (map[string]Pod, error) {
	files, err := os.ReadDir(w.Dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("read records: %w", err)
	}

	if err := atomicfile.Sweep(filepath.Join(w.Dir, "*")); err != nil {
		return nil, err
	}

	out := map[string]Pod{}

	for _, f := range files {
		host, ok := strings.CutSuffix(f.Name(), recordSuffix)
		if !ok {
			continue
		}

		b, err := os.ReadFile(w.recordPath(host))
		if errors.Is(err, os.ErrNotExist) {
			continue // removed meanwhile
		}

		if err != nil {
			return nil, fmt.Errorf("read record of %s: %w", host, err)
		}

		var p Pod
		if json.Unmarshal(b, &p) != nil || HostName(p.ContainerID, p.Interface) != host {
			if err := w.forget(host); err != nil {
				return nil, err
			}

			continue
		}

		out[host] = p
	}

	return out, nil
}

// Recorded returns the interfaces of all pods of this node from the records in dir, the oldest
// first. It only reads, so it may run beside an agent.
func Recorded(dir string) ([]Pod, error) {
	files, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("read records: %w", err)
	}

	var out []Pod

	for _, f := range files {
		host, ok := strings.CutSuffix(f.Name(), recordSuffix)
		if !ok {
			continue
		}

		if p, known := readRecord(dir, host); known { // otherwise removed meanwhile, or not a record
			out = append(out, p)
		}
	}

	slices.SortStableFunc(out, func(a, b Pod) int { return a.Time.Compare(b.Time) })

	return out, nil
}

// Names returns namespace/name of each pod of this node by address, from the records in dir. If two
// pods have an address, it is that of the newer one.
func Names(dir string) (map[netip.Addr]string, error) {
	pods, err := Recorded(dir)
	if err != nil {
		return nil, err
	}

	out := map[netip.Addr]string{}

	for _, p := range pods {
		for _, a := range p.Addresses {
			out[a.Addr()] = p.Name()
		}
	}

	return out, nil
}
