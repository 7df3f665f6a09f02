package nbtest

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os/exec"
	"slices"
	"strings"
)

// Normal returns the database's contents as sorted lines: one for each row and one for each value.
// It leaves out everything that differs between equivalent databases: rows are identified by their
// owner and name, or by their contents. It leaves out the row of the leader's term, which
// identifies the writer and not the contents.
func (s *Server) Normal() []string {
	s.t.Helper()

	return slices.DeleteFunc(s.normal("OVN_Northbound"),
		func(line string) bool { return strings.Contains(line, termOwner) })
}

func (s *Server) normal(database string) []string {
	s.t.Helper()
	cmd := exec.Command("ovsdb-client", "--format=json", "dump", s.Endpoint, database)

	var stderr bytes.Buffer

	cmd.Stderr = &stderr

	out, err := cmd.Output()
	if err != nil {
		s.t.Fatalf("dump database: %v: %s", err, stderr.String())
	}

	lines, err := normalize(out)
	if err != nil {
		s.t.Fatalf("dump database: %v", err)
	}

	return lines
}

// termOwner is contained in the line of each value of the row of the leader's term.
const termOwner = "ovn-ebpf.io/owner:leader"

type dumpTable struct {
	Caption  string   `json:"caption"`
	Headings []string `json:"headings"`
	Data     [][]any  `json:"data"`
}

type dumpRow struct {
	table   string
	columns map[string]any
}

func normalize(dump []byte) ([]string, error) {
	var rows []dumpRow

	names := map[string]string{} // UUID → name

	decoder := json.NewDecoder(bytes.NewReader(dump))
	for decoder.More() {
		var t dumpTable
		if err := decoder.Decode(&t); err != nil {
			return nil, err
		}

		for _, cells := range t.Data {
			row := dumpRow{strings.TrimSuffix(t.Caption, " table"), map[string]any{}}
			for i, cell := range cells {
				row.columns[t.Headings[i]] = cell
			}

			uuid := formatValues(row.columns["_uuid"], nil)
			delete(row.columns, "_uuid")
			names[uuid] = row.name()
			rows = append(rows, row)
		}
	}

	var lines []string

	for _, r := range rows {
		name := r.name()
		lines = append(lines, name)

		for column, v := range r.columns {
			for _, value := range values(v, names) {
				lines = append(lines, name+" "+column+" "+value)
			}
		}
	}

	slices.Sort(lines)

	return lines, nil
}

// name identifies the row in its table by values that are equal in equivalent databases.
func (r dumpRow) name() string {
	ids := formatValues(r.columns["external_ids"], nil)
	if strings.Contains(ids, "ovn-ebpf.io/owner") {
		return r.table + "(" + ids + formatValues(r.columns["name"], nil) + ")"
	}

	if name := formatValues(r.columns["name"], nil); name != "" {
		return r.table + "(" + name + ")"
	}

	return fmt.Sprintf("%s(%.4x)", r.table, sha256.Sum256([]byte(r.formatValues(map[string]string{}))))
}

func (r dumpRow) formatValues(names map[string]string) string {
	var parts []string
	for column, v := range r.columns {
		parts = append(parts, column+"="+formatValues(v, names))
	}

	slices.Sort(parts)

	return strings.Join(parts, " ")
}

func formatValues(v any, names map[string]string) string { return strings.Join(values(v, names), ", ") }

// values returns the elements of an OVSDB value (RFC 7047, 5.1), sorted. UUIDs are replaced by row
// names unless names is nil.
func values(v any, names map[string]string) []string {
	list, ok := v.([]any)
	if !ok || len(list) != 2 {
		return []string{fmt.Sprint(v)}
	}

	var out []string

	switch kind, _ := list[0].(string); kind {
	case "uuid":
		uuid, _ := list[1].(string)
		if names == nil {
			return []string{uuid}
		}

		return []string{names[uuid]}
	case "set":
		elements, _ := list[1].([]any)
		for _, e := range elements {
			out = append(out, formatValues(e, names))
		}
	case "map":
		elements, _ := list[1].([]any)
		for _, e := range elements {
			if pair, ok := e.([]any); ok && len(pair) == 2 {
				out = append(out, formatValues(pair[0], names)+":"+formatValues(pair[1], names))
			}
		}
	}

	slices.Sort(out)

	return out
}
