package kubelets

import (
	"slices"
	"strings"
	"testing"
)

// dumpA and dumpB have the same rows with other UUIDs, in another order.
const (
	dumpA = `{"caption":"Logical_Switch table","headings":["_uuid","name","ports"],"data":[
	[["uuid","00000000-0000-0000-0000-0000000000a1"],"s1",["set",[["uuid","00000000-0000-0000-0000-0000000000b1"],["uuid","00000000-0000-0000-0000-0000000000b2"]]]],
	[["uuid","00000000-0000-0000-0000-0000000000a2"],"s2",["set",[]]]]}
{"caption":"Logical_Switch_Port table","headings":["_uuid","name","external_ids"],"data":[
	[["uuid","00000000-0000-0000-0000-0000000000b1"],"p1",["map",[["k","v"],["of","00000000-0000-0000-0000-0000000000a1"]]]],
	[["uuid","00000000-0000-0000-0000-0000000000b2"],"p2",["map",[]]]]}`
	dumpB = `{"caption":"Logical_Switch table","headings":["_uuid","name","ports"],"data":[
	[["uuid","00000000-0000-0000-0000-0000000000c2"],"s2",["set",[]]],
	[["uuid","00000000-0000-0000-0000-0000000000c1"],"s1",["set",[["uuid","00000000-0000-0000-0000-0000000000d1"],["uuid","00000000-0000-0000-0000-0000000000d9"]]]]]}
{"caption":"Logical_Switch_Port table","headings":["_uuid","name","external_ids"],"data":[
	[["uuid","00000000-0000-0000-0000-0000000000d1"],"p2",["map",[]]],
	[["uuid","00000000-0000-0000-0000-0000000000d9"],"p1",["map",[["of","00000000-0000-0000-0000-0000000000c1"],["k","v"]]]]]}`
)

func TestRows(t *testing.T) {
	read := func(dump string, skipped ...string) []string {
		t.Helper()

		out, err := rows([]byte(dump), func(table, column string) bool { return slices.Contains(skipped, table+"."+column) })
		if err != nil {
			t.Fatal(err)
		}

		return out
	}

	want := read(dumpA)
	if got := read(dumpB); !slices.Equal(got, want) {
		t.Errorf("rows with other UUIDs\n%q\nwant\n%q", got, want)
	}

	const moved = `["set",[["uuid","00000000-0000-0000-0000-0000000000b2"]]]`
	for name, other := range map[string]string{
		"another name":      strings.ReplaceAll(dumpA, `"p1"`, `"p3"`),
		"another reference": strings.Replace(strings.ReplaceAll(dumpA, `["uuid","00000000-0000-0000-0000-0000000000b2"]]]],`, `["uuid","00000000-0000-0000-0000-0000000000b1"]]]],`), `["set",[]]`, moved, 1),
		"another key":       strings.ReplaceAll(dumpA, `"k"`, `"l"`),
		"a row less": strings.Replace(dumpA, `,
	[["uuid","00000000-0000-0000-0000-0000000000a2"],"s2",["set",[]]]`, "", 1),
	} {
		if got := read(other); other == dumpA || slices.Equal(got, want) {
			t.Errorf("%s: no difference", name)
		}
	}

	if got := read(strings.ReplaceAll(dumpA, `"k"`, `"l"`), "Logical_Switch_Port.external_ids"); !slices.Equal(got, read(dumpA, "Logical_Switch_Port.external_ids")) {
		t.Errorf("a skipped column makes a difference: %q", got)
	}

	if got := read(dumpA, "Logical_Switch_Port.name", "Logical_Switch_Port.external_ids"); len(got) != 2 {
		t.Errorf("a skipped table has rows: %q", got)
	}

	for _, wrong := range []string{"", "{", `{"caption":"T table","headings":["name"],"data":[["x"]]}`} {
		if got, err := rows([]byte(wrong), func(string, string) bool { return false }); err == nil {
			t.Errorf("%q has rows %q", wrong, got)
		}
	}
}

// TestRowsIgnoreKeys: the key before a port group's name is another one after a restore. Other names
// count.
func TestRowsIgnoreKeys(t *testing.T) {
	read := func(name string) []string {
		t.Helper()

		out, err := rows([]byte(`{"caption":"Port_Group table","headings":["_uuid","name"],"data":[[["uuid","00000000-0000-0000-0000-0000000000a1"],"`+name+`"]]}`),
			func(string, string) bool { return false })
		if err != nil {
			t.Fatal(err)
		}

		return out
	}
	if a, b := read("4_clients"), read("12_clients"); !slices.Equal(a, b) {
		t.Errorf("another key: %q, %q", a, b)
	}

	if a, b := read("4_clients"), read("4_servers"); slices.Equal(a, b) {
		t.Errorf("another name: %q, %q", a, b)
	}
}
