package plan

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// Format writes rows as text: a line with table and ID, then one indented line for each non-empty
// column and parent. The output is for goldens and debugging; no program parses it.
func Format(rows []Row) string {
	var b strings.Builder
	for _, r := range rows {
		fmt.Fprintf(&b, "%s %s\n", r.Table(), r.ID())

		v := reflect.ValueOf(r)
		for i := range v.NumField() {
			tag := v.Type().Field(i).Tag

			name := tag.Get("ovsdb")
			if parent := tag.Get("parent"); parent != "" {
				name = "in " + parent
			}

			// The ID shows the name already. Incarnation and Access are not columns.
			text := formatValue(v.Field(i).Interface())
			if text != "" && name != "" && (name != "name" || !strings.HasPrefix(r.ID(), text)) {
				fmt.Fprintf(&b, "  %s: %s\n", name, text)
			}
		}
	}

	return b.String()
}

// formatValue returns the text of a field, or "" for an empty one. A bool is never empty.
func formatValue(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case int:
		if v == 0 {
			return ""
		}

		return strconv.Itoa(v)
	case bool:
		return strconv.FormatBool(v)
	case []string:
		return strings.Join(v, ", ")
	case map[string]string:
		var parts []string
		for _, k := range slices.Sorted(maps.Keys(v)) {
			parts = append(parts, k+"="+v[k])
		}

		return strings.Join(parts, "; ")
	}

	return fmt.Sprint(v)
}
