package kubelets

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
)

// table is a table in the output of `ovsdb-client -f json dump`.
type table struct {
	Caption  string
	Headings []string
	Data     [][]any
}

// row is a row without its UUID.
type row struct {
	table   string
	columns []string
	cells   []any
}

// nameDepth is the number of references that are followed from a row to tell it from others.
const nameDepth = 4

var uuidPattern = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)

// keyPattern matches what precedes a port group's name in the Southbound database: the tunnel key of
// a datapath, which northd gives anew to rows with new UUIDs.
var keyPattern = regexp.MustCompile(`^\d+_`)

// rows returns the rows of a dumped database as sorted lines without UUIDs, which a restored
// database does not keep. A reference is replaced by a digest of the row that it names. skip names
// the columns that are left out.
func rows(dump []byte, skip func(table, column string) bool) ([]string, error) {
	all, err := parseDump(dump, skip)
	if err != nil {
		return nil, err
	}

	digests := map[string]string{}

	for range nameDepth {
		next := map[string]string{}

		for uuid, r := range all {
			sum := sha256.Sum256([]byte(r.line(digests)))
			next[uuid] = fmt.Sprintf("%x", sum[:6])
		}

		digests = next
	}

	var out []string

	for _, r := range all {
		if len(r.columns) > 0 { // otherwise the whole table is left out
			out = append(out, r.line(digests))
		}
	}

	slices.Sort(out)

	return out, nil
}

// parseDump returns the rows by UUID.
func parseDump(dump []byte, skip func(table, column string) bool) (map[string]row, error) {
	out := map[string]row{}

	for d := json.NewDecoder(bytes.NewReader(dump)); ; {
		var t table

		err := d.Decode(&t)
		if errors.Is(err, io.EOF) {
			break
		}

		if err != nil {
			return nil, fmt.Errorf("parse dump: %w", err)
		}

		name, _, _ := strings.Cut(t.Caption, " ")

		id := slices.Index(t.Headings, "_uuid")
		if id < 0 {
			return nil, fmt.Errorf("parse dump: table %q has no UUIDs", t.Caption)
		}

		for _, cells := range t.Data {
			r, uuid := row{table: name}, uuidPattern.FindString(fmt.Sprint(cells[id]))
			for i, column := range t.Headings {
				if text, is := cells[i].(string); is && name == "Port_Group" && column == "name" {
					cells[i] = keyPattern.ReplaceAllString(text, "")
				}

				if i != id && !skip(name, column) {
					r.columns, r.cells = append(r.columns, column), append(r.cells, cells[i])
				}
			}

			out[uuid] = r
		}
	}

	if len(out) == 0 {
		return nil, errors.New("parse dump: no rows")
	}

	return out, nil
}

// line returns the row with digests in place of UUIDs. Unknown UUIDs are all equal.
func (r row) line(digests map[string]string) string {
	parts := []string{r.table}
	for i, column := range r.columns {
		parts = append(parts, column+"="+formatValue(r.cells[i], digests))
	}

	return strings.Join(parts, " ")
}

// formatValue returns a value of OVSDB's JSON. Sets and maps are sorted after the replacement.
func formatValue(value any, digests map[string]string) string {
	switch v := value.(type) {
	case string:
		return uuidPattern.ReplaceAllStringFunc(v, func(uuid string) string { return "@" + digests[uuid] })
	case []any:
		var parts []string
		for _, e := range v {
			parts = append(parts, formatValue(e, digests))
		}

		if len(v) == 2 && (v[0] == "set" || v[0] == "map") {
			parts = parts[1:]
			if elements, is := v[1].([]any); is {
				parts = nil
				for _, e := range elements {
					parts = append(parts, formatValue(e, digests))
				}

				slices.Sort(parts)
			}
		}

		return "[" + strings.Join(parts, ",") + "]"
	}

	return fmt.Sprint(value)
}
