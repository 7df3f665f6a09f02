package results

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ovn-ebpf/ovn-ebpf/bench"
)

// Kinds of runs, with the fields of Run that have their results.
const (
	// Packets is the packet path in the VM: Rows.
	Packets = "packets"
	// Full is the packet path on other kernels (Rows), and with several numbers of connections and
	// Services (Sweeps).
	Full = "full"
	// Native is Go benchmarks on this machine: Measures.
	Native = "native"
	// Watched is the cost of counting and of a monitor per packet, in the VM: Measures, whose
	// nanoseconds are instructions.
	Watched = "watched"
	// Bound is how long shortcuts last after a policy has forbidden their connection, in the VM:
	// Measures.
	Bound = "bound"
)

// Platform is the platform of the documents' figures and of the gate's baseline
// (docs/platforms.md).
const Platform = "debian13"

// Run is one benchmark run.
type Run struct {
	Kind     string
	Date     string // RFC 3339, UTC
	Commit   string // as git describes it; it ends with "-dirty" if there were uncommitted changes
	Seed     int    // of the clients' ports
	Boots    int    // of each variant; a row is the median of all boots
	Machine  Machine
	Platform string // of OVN and Open vSwitch (docs/platforms.md); "" in the oldest runs
	Versions string // of the programs, separated by commas
	Rows     []bench.Row
	Sweeps   []bench.Point
	Measures []Measure
	// Samples are the counts of each boot, in order, by the row's kernel and key; nil for a single
	// boot.
	Samples map[string][]float64
}

// Machine describes the machine that ran the benchmark. The kernel of a VM is in the rows.
type Machine struct {
	CPU    string
	Cores  int
	Memory int // MiB
	Kernel string
	// Load is the load average at the start. Load affects times, not instructions.
	Load float64
}

// Measure is the result of a Go benchmark: the median of its runs by unit, and the distance of the
// quartiles as a fraction of it.
type Measure struct {
	Package string // path below the module
	Name    string
	Values  map[string]float64
	Spread  map[string]float64
	// Samples are the values of each run, in order.
	Samples map[string][]float64
}

// Validate returns an error if r lacks its origin or results.
func (r *Run) Validate() error {
	switch r.Kind {
	case Packets, Full, Native, Watched, Bound:
	default:
		return fmt.Errorf("check run: unknown kind %q", r.Kind)
	}

	if r.Date == "" || r.Commit == "" || r.Machine.CPU == "" || r.Machine.Kernel == "" {
		return errors.New("check run: no date, commit or machine")
	}

	if len(r.Rows)+len(r.Sweeps)+len(r.Measures) == 0 {
		return errors.New("check run: nothing was measured")
	}

	return nil
}

// Name returns the file name of a kept run.
func (r *Run) Name() string {
	day, _, _ := strings.Cut(r.Date, "T")
	return fmt.Sprintf("%s-%s-%s.txt", r.key(), day, r.Commit)
}

// key identifies runs of which only the newest is shown: those of a kind, and of a platform other
// than Platform.
func (r *Run) key() string {
	if r.Platform == "" || r.Platform == Platform {
		return r.Kind
	}

	return r.Kind + "-" + r.Platform
}

// Keep writes the run to the directory from which documents are generated. The working directory
// must be the top of the module.
func (r *Run) Keep() error { return r.Write(filepath.Join("bench", "results", r.Name())) }

// Write writes the run to a file and creates its directory.
func (r *Run) Write(path string) error {
	text, err := r.Encode()
	if err != nil {
		return err
	}

	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, text, 0o644)); err != nil {
		return fmt.Errorf("write run: %w", err)
	}

	return nil
}

// Read reads the run in a file.
func Read(path string) (*Run, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read run: %w", err)
	}

	r, err := Decode(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}

	return r, nil
}

// Newest returns the newest run of each kind in a directory. Those of another platform than
// Platform are found under kind-platform.
func Newest(dir fs.FS) (map[string]*Run, error) {
	kept, err := Kept(dir)
	if err != nil {
		return nil, err
	}

	newest := map[string]*Run{}
	for _, r := range kept {
		newest[r.key()] = r
	}

	return newest, nil
}

// Kept returns the runs in a directory, the newest last.
func Kept(dir fs.FS) ([]*Run, error) {
	names, err := fs.Glob(dir, "*.txt")
	if err != nil {
		return nil, fmt.Errorf("list runs: %w", err)
	}

	var runs []*Run

	for _, name := range names {
		text, err := fs.ReadFile(dir, name)
		if err != nil {
			return nil, fmt.Errorf("read run: %w", err)
		}

		r, err := Decode(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}

		runs = append(runs, r)
	}

	slices.SortFunc(runs, func(a, b *Run) int { return strings.Compare(a.Date, b.Date) })

	return runs, nil
}
