package campaign

import (
	"errors"
	"slices"
	"testing"
	"time"
)

// startsOf returns a pod every half second, which takes that many milliseconds.
func startsOf(ms ...int) (out []start) {
	at := time.Unix(0, 0)
	for _, m := range ms {
		out = append(out, start{at: at, took: time.Duration(m) * time.Millisecond})
		at = at.Add(500 * time.Millisecond)
	}

	return out
}

// TestSlowStarts checks that a slow run and a slow window of a long run are found, that single slow
// pods are neither, and that a pod which takes long counts with all that it kept waiting.
func TestSlowStarts(t *testing.T) {
	idle := startsOf(slices.Repeat([]int{100}, 20)...)
	run := func(change func([]int)) []start {
		ms := slices.Repeat([]int{100}, 600)
		change(ms)

		return startsOf(ms...)
	}

	slow := func(ms []int, every int) {
		for i := 0; i < len(ms); i += every {
			ms[i] = 301
		}
	}
	for name, tt := range map[string]struct {
		under []start
		want  int
	}{
		"as fast":          {run(func([]int) {}), 0},
		"one slow pod":     {run(func(ms []int) { ms[70] = 500 }), 0},
		"a slow fifth":     {run(func(ms []int) { copy(ms[70:], slices.Repeat([]int{301}, 14)) }), 1},
		"a slow twentieth": {run(func(ms []int) { slow(ms, 18) }), 1},
		"few slow ones":    {run(func(ms []int) { slow(ms, 30) }), 0},
		"a pause":          {run(func(ms []int) { ms[599] = 8_000 }), 1},
		"all slow":         {run(func(ms []int) { slow(ms, 1) }), 11},
		"a failed pod":     {append(run(func([]int) {}), start{at: time.Unix(301, 0), took: time.Millisecond, err: errors.New("no address")}), 1},
		"no pod at all":    {nil, 0},
		"just fast enough": {run(func(ms []int) { copy(ms, slices.Repeat([]int{300}, 600)) }), 0},
	} {
		if got := slowStarts(idle, tt.under); len(got) != tt.want {
			t.Errorf("%s: %q, want %d", name, got, tt.want)
		}
	}
}
