package results

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ovn-ebpf/ovn-ebpf/bench"
)

// The kinds of runs.
const (
	Packets = "packets" // the packet path in the VM: Rows
	Full    = "full"    // the same on other kernels, and what grows with the number of connections or services: Rows, Sweeps
	Native  = "native"  // Go benchmarks on this machine: Measures
	Watched = "watched" // what counting and a monitor cost a packet, in the VM: Measures, whose nanoseconds are instructions
)

// Run is one run.
type Run struct {
	Kind    string  `json:"kind"`
	Date    string  `json:"date"`   // RFC 3339, UTC
	Commit  string  `json:"commit"` // as git describes it; "-dirty" where the tree was not the commit's
	Seed    int     `json:"seed"`   // of the ports that the clients send from
	Boots   int     `json:"boots"`  // of each variant; a row is the median
	Machine Machine `json:"machine"`
	// Versions are those of what took part, by name.
	Versions map[string]string `json:"versions"`
	Rows     []bench.Row       `json:"rows,omitempty"`
	Sweeps   []Point           `json:"sweeps,omitempty"`
	Measures []Measure         `json:"measures,omitempty"`
	// Samples are what rows of several boots are the medians of, in their order, by
	// the row's kernel and key.
	Samples map[string][]float64 `json:"samples,omitempty"`
}

// Machine is what it ran on; the guest's kernel is in the rows.
type Machine struct {
	CPU    string `json:"cpu"`
	Cores  int    `json:"cores"`
	Memory int    `json:"memory_mib"`
	Kernel string `json:"kernel"`
	// Load is the load average when the run began: what else ran takes from times,
	// not from instructions.
	Load float64 `json:"load_average,omitempty"`
}

// Point is a row at one size of something.
type Point struct {
	Of   string    `json:"of"` // "connections" or "services"
	Size int       `json:"size"`
	Row  bench.Row `json:"row"`
}

// Measure is a Go benchmark's: the median of its runs by unit, and its spread, the
// distance of the quartiles as a fraction of it.
type Measure struct {
	Package string             `json:"package"` // below the module
	Name    string             `json:"name"`
	Values  map[string]float64 `json:"values"`
	Spread  map[string]float64 `json:"spread,omitempty"`
	// Samples are what the medians are of, in the order of the runs.
	Samples map[string][]float64 `json:"samples,omitempty"`
}

// Validate returns an error if r does not say where it is from, or found nothing.
func (r *Run) Validate() error {
	switch r.Kind {
	case Packets, Full, Native, Watched:
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

// Encode returns the run as JSON, a row, point or measure a line.
func (r *Run) Encode() ([]byte, error) {
	if err := r.Validate(); err != nil {
		return nil, err
	}
	head := *r
	head.Rows, head.Sweeps, head.Measures = nil, nil, nil
	text, err := json.MarshalIndent(head, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode run: %w", err)
	}
	out := bytes.NewBuffer(bytes.TrimSuffix(text, []byte("\n}")))
	err = errors.Join(list(out, "rows", r.Rows), list(out, "sweeps", r.Sweeps), list(out, "measures", r.Measures))
	out.WriteString("\n}\n")
	return out.Bytes(), err
}

func list[T any](out *bytes.Buffer, name string, items []T) error {
	if len(items) == 0 {
		return nil
	}
	fmt.Fprintf(out, ",\n  %q: [", name)
	for i, item := range items {
		line, err := json.Marshal(item)
		if err != nil {
			return fmt.Errorf("encode run: %s: %w", name, err)
		}
		sep := ","
		if i == 0 {
			sep = ""
		}
		fmt.Fprintf(out, "%s\n    %s", sep, line)
	}
	out.WriteString("\n  ]")
	return nil
}

// Decode reads what Encode wrote.
func Decode(text []byte) (*Run, error) {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	r := &Run{}
	if err := dec.Decode(r); err != nil {
		return nil, fmt.Errorf("decode run: %w", err)
	}
	return r, r.Validate()
}

// Name is the file of a run that is kept.
func (r *Run) Name() string {
	day, _, _ := strings.Cut(r.Date, "T")
	return fmt.Sprintf("%s-%s-%s.json", r.Kind, day, r.Commit)
}

// Keep writes the run to where documents are made from; it wants to be called in the
// module's top directory.
func (r *Run) Keep() error { return r.Write(filepath.Join("bench", "results", r.Name())) }

// Write writes the run to a file, whose directory it makes.
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

// Newest returns the newest run of each kind in a directory.
func Newest(dir fs.FS) (map[string]*Run, error) {
	kept, err := Kept(dir)
	if err != nil {
		return nil, err
	}
	newest := map[string]*Run{}
	for _, r := range kept {
		newest[r.Kind] = r
	}
	return newest, nil
}

// Kept returns the runs in a directory, the newest last.
func Kept(dir fs.FS) ([]*Run, error) {
	names, err := fs.Glob(dir, "*.json")
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
