package bench

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/perf/benchfmt"
)

const (
	rowBase     = "Packets" // name of the benchmark
	unit        = "instructions/op"
	spreadUnit  = "spread"
	endOfFormat = "PASS\n" // as in go test's output; marks a complete text
)

// Point is a row of a sweep, which measures the same row with several sizes.
type Point struct {
	Of   string // what the sweep varies: "connections" or "services"; "": the row belongs to no sweep
	Size int    // number of them
	Row  Row
}

// Write writes rows in Go's benchmark format for benchstat.
func Write(w io.Writer, rows []Row) error {
	out := benchfmt.NewWriter(w)
	for _, r := range rows {
		if err := out.Write(Point{Row: r}.Result(nil)); err != nil {
			return fmt.Errorf("write row %q: %w", r.Key(), err)
		}
	}

	return WriteEnd(w)
}

// WriteEnd writes the line that Results requires at the end.
func WriteEnd(w io.Writer) error {
	_, err := io.WriteString(w, endOfFormat)
	return err
}

// Read parses the output of Write.
func Read(r io.Reader) ([]Row, error) {
	results, err := Results(r)
	if err != nil {
		return nil, err
	}

	var rows []Row

	for _, res := range results {
		p, err := ParsePoint(res)
		if err != nil {
			return nil, err
		}

		rows = append(rows, p.Row)
	}

	return rows, nil
}

// Results returns all results of a text in Go's benchmark format. An incomplete text or an invalid
// line is an error.
func Results(r io.Reader) ([]*benchfmt.Result, error) {
	text, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("read benchmarks: %w", err)
	}

	if !bytes.Contains(append([]byte("\n"), text...), []byte("\nPASS")) {
		return nil, errors.New("read benchmarks: the text is cut off: no line PASS")
	}

	var out []*benchfmt.Result

	reader := benchfmt.NewReader(bytes.NewReader(text), "benchmarks")
	for reader.Scan() {
		switch record := reader.Result().(type) {
		case *benchfmt.Result:
			out = append(out, record.Clone()) // the reader uses the result again
		case *benchfmt.SyntaxError:
			return nil, fmt.Errorf("read benchmarks: %w", record)
		}
	}

	return out, reader.Err()
}

// Result returns the point as a result of Go's benchmark format, below config:
//
//	layout: direct
//	kernel: 6.12.117+deb12-amd64
//
//	BenchmarkPackets/test=host_udp_rr/variant=ebpf/family=ipv4 1 17216.5 instructions/op 0.002 spread
//
// A point of a sweep ends with its size: /connections=1000.
func (p Point) Result(config []benchfmt.Config) *benchfmt.Result {
	name := fmt.Sprintf("%s/test=%s/variant=%s/family=%s", rowBase, p.Row.Test, p.Row.Variant, p.Row.Family)
	if p.Of != "" {
		name += fmt.Sprintf("/%s=%d", p.Of, p.Size)
	}

	return &benchfmt.Result{
		Name: benchfmt.Name(name), Iters: 1,
		Config: append(slices.Clone(config), Config("layout", p.Row.Layout), Config("kernel", p.Row.Kernel)),
		Values: []benchfmt.Value{{Value: p.Row.Instructions, Unit: unit}, {Value: p.Row.Spread, Unit: spreadUnit}},
	}
}

// Config returns a configuration line "key: value".
func Config(key, value string) benchfmt.Config {
	return benchfmt.Config{Key: key, Value: []byte(value), File: true}
}

// IsPoint reports whether a result belongs to the packet path.
func IsPoint(res *benchfmt.Result) bool { return string(res.Name.Base()) == rowBase }

// ParsePoint parses the output of Point.Result. A row without test, variant, family or count is an
// error.
func ParsePoint(res *benchfmt.Result) (Point, error) {
	p := Point{Row: Row{Layout: res.GetConfig("layout"), Kernel: res.GetConfig("kernel")}}

	_, parts := res.Name.Parts()
	for _, part := range parts {
		key, value, _ := strings.Cut(strings.TrimPrefix(string(part), "/"), "=")
		switch key {
		case "test":
			p.Row.Test = value
		case "variant":
			p.Row.Variant = value
		case "family":
			p.Row.Family = value
		default:
			var err error

			if p.Of = key; p.Of != "connections" && p.Of != "services" {
				return Point{}, fmt.Errorf("read row %s: unknown part %q", res.Name, part)
			}

			if p.Size, err = strconv.Atoi(value); err != nil {
				return Point{}, fmt.Errorf("read row %s: %w", res.Name, err)
			}
		}
	}

	p.Row.Instructions, _ = res.Value(unit)

	p.Row.Spread, _ = res.Value(spreadUnit)
	if !IsPoint(res) || p.Row.Test == "" || p.Row.Variant == "" || p.Row.Family == "" || p.Row.Instructions <= 0 {
		return Point{}, fmt.Errorf("read row %s: not a result", res.Name)
	}

	return p, nil
}
