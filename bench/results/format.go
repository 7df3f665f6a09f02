package results

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/perf/benchfmt"

	"github.com/ovn-ebpf/ovn-ebpf/bench"
)

// Encode returns the run in Go's benchmark format: its origin as configuration lines, then a line
// for each sample of a row or measure, and for each point of a sweep:
//
//	kind: packets
//	date: 2026-11-22T10:00:00Z
//	…
//	BenchmarkPackets/test=host_udp_rr/variant=ebpf/family=ipv4 1 17216.5 instructions/op 0.002 spread
func (r *Run) Encode() ([]byte, error) {
	if err := r.Validate(); err != nil {
		return nil, err
	}

	config := []benchfmt.Config{
		bench.Config("kind", r.Kind), bench.Config("date", r.Date), bench.Config("commit", r.Commit),
		bench.Config("seed", strconv.Itoa(r.Seed)), bench.Config("boots", strconv.Itoa(r.Boots)),
		bench.Config("cpu", r.Machine.CPU), bench.Config("cores", strconv.Itoa(r.Machine.Cores)),
		bench.Config("memory-mib", strconv.Itoa(r.Machine.Memory)), bench.Config("host-kernel", r.Machine.Kernel),
		bench.Config("load-average", strconv.FormatFloat(r.Machine.Load, 'g', -1, 64)),
		bench.Config("versions", cmp.Or(r.Versions, "unknown")),
	}
	if r.Platform != "" {
		config = append(config, bench.Config("platform", r.Platform))
	}

	var all []*benchfmt.Result

	for _, row := range r.Rows {
		samples := r.Samples[sampleKey(row)]
		if len(samples) == 0 {
			samples = []float64{row.Instructions}
		}

		for _, n := range samples {
			row.Instructions = n
			all = append(all, bench.Point{Row: row}.Result(config))
		}
	}

	for _, p := range r.Sweeps {
		all = append(all, p.Result(config))
	}

	for _, m := range r.Measures {
		all = append(all, m.results(append(slices.Clone(config), bench.Config("pkg", m.Package)))...)
	}

	var out bytes.Buffer

	w := benchfmt.NewWriter(&out)
	for _, result := range all {
		if err := w.Write(result); err != nil {
			return nil, fmt.Errorf("encode run: %w", err)
		}
	}

	err := bench.WriteEnd(&out)

	return out.Bytes(), err
}

// sampleKey returns the key of a row in Run.Samples, as bench.Samples makes it.
func sampleKey(r bench.Row) string { return r.Kernel + " " + r.Key() }

// results returns a result for each run of the benchmark.
func (m Measure) results(config []benchfmt.Config) []*benchfmt.Result {
	samples := m.Samples
	if samples == nil {
		samples = map[string][]float64{}
		for unit, value := range m.Values {
			samples[unit] = []float64{value}
		}
	}

	var out []*benchfmt.Result

	for _, unit := range slices.Sorted(maps.Keys(samples)) {
		for i, value := range samples[unit] {
			if i == len(out) {
				out = append(out, &benchfmt.Result{Name: benchfmt.Name(strings.ReplaceAll(m.Name, " ", "_")), Iters: 1, Config: config})
			}

			out[i].Values = append(out[i].Values, benchfmt.Value{Value: value, Unit: unit})
		}
	}

	return out
}

// Decode parses the output of Encode.
func Decode(text []byte) (*Run, error) {
	all, err := bench.Results(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("decode run: %w", err)
	}

	if len(all) == 0 {
		return nil, errors.New("decode run: no result")
	}

	r, err := header(all[0])
	if err != nil {
		return nil, fmt.Errorf("decode run: %w", err)
	}

	var (
		boots    [][]bench.Row
		measured []*benchfmt.Result
	)

	for _, result := range all {
		if !bench.IsPoint(result) {
			measured = append(measured, result)
			continue
		}

		p, err := bench.ParsePoint(result)
		switch {
		case err != nil:
			return nil, fmt.Errorf("decode run: %w", err)
		case p.Of != "":
			r.Sweeps = append(r.Sweeps, p)
		default:
			boots = append(boots, []bench.Row{p.Row})
		}
	}

	r.Rows = bench.Merge(boots...)
	if len(boots) > len(r.Rows) {
		r.Samples = bench.Samples(boots...)
	}

	r.Measures = measures(measured)

	return r, r.Validate()
}

// header returns a run with the data in a result's configuration.
func header(result *benchfmt.Result) (*Run, error) {
	r := &Run{
		Kind: result.GetConfig("kind"), Date: result.GetConfig("date"), Commit: result.GetConfig("commit"), Versions: result.GetConfig("versions"), Platform: result.GetConfig("platform"),
		Machine: Machine{CPU: result.GetConfig("cpu"), Kernel: result.GetConfig("host-kernel")},
	}

	var errs []error

	for key, to := range map[string]*int{"seed": &r.Seed, "boots": &r.Boots, "cores": &r.Machine.Cores, "memory-mib": &r.Machine.Memory} {
		var err error

		*to, err = strconv.Atoi(result.GetConfig(key))
		errs = append(errs, err)
	}

	var err error

	r.Machine.Load, err = strconv.ParseFloat(result.GetConfig("load-average"), 64)

	return r, errors.Join(append(errs, err)...)
}

// ParseGo parses the output of `go test -bench` for a package: the median of each benchmark over
// its runs. Output without a benchmark is an error.
func ParseGo(pkg, output string) ([]Measure, error) {
	all, err := bench.Results(strings.NewReader(output))
	if err != nil {
		return nil, fmt.Errorf("parse benchmarks of %s: %w", pkg, err)
	}

	if len(all) == 0 {
		return nil, fmt.Errorf("parse benchmarks of %s: none", pkg)
	}

	for _, result := range all {
		result.SetConfig("pkg", pkg)
	}

	return measures(all), nil
}

// measures returns a measure for each benchmark of a package, in the order of the first run.
func measures(all []*benchfmt.Result) []Measure {
	var out []Measure

	at := map[[2]string]int{}

	for _, result := range all {
		key := [2]string{result.GetConfig("pkg"), measureName(result)}

		i, ok := at[key]
		if !ok {
			i = len(out)
			at[key] = i
			out = append(out, Measure{key[0], key[1], map[string]float64{}, map[string]float64{}, map[string][]float64{}})
		}

		for _, v := range result.Values {
			if v.OrigUnit != "" { // benchfmt makes seconds of nanoseconds
				v.Value, v.Unit = v.OrigValue, v.OrigUnit
			}

			out[i].Samples[v.Unit] = append(out[i].Samples[v.Unit], v.Value)
		}
	}

	for _, m := range out {
		for unit, values := range m.Samples {
			m.Values[unit], m.Spread[unit] = bench.Summarize(values)
		}
	}

	return out
}

// measureName returns a benchmark's name without the number of CPUs, with blanks for underscores.
func measureName(x *benchfmt.Result) string {
	base, parts := x.Name.Parts()
	text := string(base)

	for _, p := range parts {
		if p[0] == '/' {
			text += string(p)
		}
	}

	return strings.ReplaceAll(text, "_", " ")
}
