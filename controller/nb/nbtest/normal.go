package nbtest

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os/exec"
	"slices"
	"strings"

	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
)

// Normal returns the database's contents as sorted lines, which are the same for equivalent
// databases:
//
//	TABLE(ROW)
//	TABLE(ROW) COLUMN VALUE
//
// The first form is one line for each row, and the second one for each element of a column. ROW has
// no UUID: it is the external_ids and name of an owned row, the name of another row, or else a hash
// of its contents. References are such names, too. The row of the leader's term is left out,
// because it identifies the writer. Placeholders in port groups are left out, because they depend on
// the pods that were there before.
func (s *Server) Normal() []string {
	s.t.Helper()

	return slices.DeleteFunc(s.normal("OVN_Northbound"), func(line string) bool {
		isPlaceholder := strings.HasPrefix(line, "Port_Group(") && strings.Contains(line, plan.PlaceholderPort(""))
		return strings.Contains(line, termOwner) || isPlaceholder
	})
}

// normal returns the contents of a database in the format of Normal.
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

// dumpTable is a table in the JSON output of "ovsdb-client dump". Each element of Data is a row,
// with a value for each of Headings, which are the columns. Values are as in RFC 7047, section 5.1.
type dumpTable struct {
	Caption  string   `json:"caption"`
	Headings []string `json:"headings"`
	Data     [][]any  `json:"data"`
}

// dumpRow is a row of a dump, with the values by column, except _uuid.
type dumpRow struct {
	table   string
	columns map[string]any
}

// normalize converts a dump into the lines of Normal.
func normalize(dump []byte) ([]string, error) {
	var rows []dumpRow

	// The names of all rows must be known before references can be replaced by them.
	names := map[string]string{} // by UUID

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

// formatValues returns all values of the row as text, with references as in values.
func (r dumpRow) formatValues(names map[string]string) string {
	var parts []string
	for column, v := range r.columns {
		parts = append(parts, column+"="+formatValues(v, names))
	}

	slices.Sort(parts)

	return strings.Join(parts, " ")
}

// formatValues returns a value as text, with references as in values.
func formatValues(v any, names map[string]string) string { return strings.Join(values(v, names), ", ") }

// values returns the elements of an OVSDB value (RFC 7047, section 5.1), sorted: an atom,
// ["uuid",UUID], ["set",[…]] or ["map",[[key,value],…]]. UUIDs are replaced by names of rows,
// unless names is nil.
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
