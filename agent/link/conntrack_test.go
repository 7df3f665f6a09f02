package link

import (
	"maps"
	"testing"
)

func TestConntrackFailures(t *testing.T) {
	const head = "entries  clashres found new invalid ignore delete chainlength insert insert_failed drop early_drop icmp_error  expect_new expect_create expect_delete search_restart\n"
	const row = "00000012  00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 0000000a 00000010 00000001 00000000  00000000 00000000 00000000 00000000\n"
	for text, want := range map[string]map[string]uint64{
		head + row + row: {"insert_failed": 20, "drop": 32},
		head:             {"insert_failed": 0, "drop": 0},
		"":               {"insert_failed": 0, "drop": 0},
	} {
		if got, err := parseConntrackStat(text); err != nil || !maps.Equal(got, want) {
			t.Errorf("got %v, %v, want %v of %q", got, err, want, text)
		}
	}
	for _, bad := range []string{head + "1 2 3\n", head + row[:len(row)-1] + "\nx x x x x x x x x x x\n"} {
		if got, err := parseConntrackStat(bad); err == nil {
			t.Errorf("%q: %v, want an error", bad, got)
		}
	}
	if _, err := ConntrackFailures(); err != nil {
		t.Errorf("this kernel's: %v", err)
	}
}
