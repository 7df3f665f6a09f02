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

// TestSlowStarts checks that a slow window is found in a long run, that a single slow pod is none,
// and that a pod which takes long counts with all that it kept waiting.
func TestSlowStarts(t *testing.T) {
	idle := startsOf(slices.Repeat([]int{100}, 20)...)
	run := func(change func([]int)) []start {
		ms := slices.Repeat([]int{100}, 600)
		change(ms)
		return startsOf(ms...)
	}
	for name, tt := range map[string]struct {
		under []start
		want  int
	}{
		"as fast":          {run(func([]int) {}), 0},
		"one slow pod":     {run(func(ms []int) { ms[70] = 500 }), 0},
		"five slow ones":   {run(func(ms []int) { copy(ms[70:], slices.Repeat([]int{400}, 5)) }), 1},
		"a pause":          {run(func(ms []int) { ms[599] = 10_000 }), 1},
		"all slow":         {run(func(ms []int) { copy(ms, slices.Repeat([]int{301}, 600)) }), 10},
		"a failed pod":     {append(run(func([]int) {}), start{at: time.Unix(301, 0), took: time.Millisecond, err: errors.New("no address")}), 1},
		"no pod at all":    {nil, 0},
		"just fast enough": {run(func(ms []int) { copy(ms, slices.Repeat([]int{300}, 600)) }), 0},
	} {
		if got := slowStarts(idle, tt.under); len(got) != tt.want {
			t.Errorf("%s: %q, want %d", name, got, tt.want)
		}
	}
}
