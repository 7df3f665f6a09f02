package campaign

import (
	"errors"
	"os"
	"path/filepath"
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
		"some slow pods":   {run(func(ms []int) { copy(ms[70:], slices.Repeat([]int{301}, 11)) }), 0},
		"a slow window":    {run(func(ms []int) { copy(ms[70:], slices.Repeat([]int{301}, 13)) }), 1},
		"a slow twentieth": {run(func(ms []int) { slow(ms, 18) }), 3},
		"few slow ones":    {run(func(ms []int) { slow(ms, 30) }), 0},
		"a pause":          {run(func(ms []int) { ms[599] = 8_000 }), 1},
		"all slow":         {run(func(ms []int) { slow(ms, 1) }), 3},
		"a failed pod":     {append(run(func([]int) {}), start{at: time.Unix(301, 0), took: time.Millisecond, err: errors.New("no address")}), 1},
		"no pod at all":    {nil, 0},
		"just fast enough": {run(func(ms []int) { copy(ms, slices.Repeat([]int{300}, 600)) }), 0},
	} {
		if got := slowStarts(idle, tt.under); len(got) != tt.want {
			t.Errorf("%s: %q, want %d", name, got, tt.want)
		}
	}
}

// TestReport_keepsEveryStart checks the table of pod starts beside the report, and that later readers
// of the reports do not take it for one.
func TestReport_keepsEveryStart(t *testing.T) {
	began, dir := time.Unix(1000, 0), t.TempDir()
	r := &Report{Campaign: "api", Seed: 7, Starts: []podStart{
		{idlePhase, start{at: began, took: 71 * time.Millisecond}},
		{"attack 1", start{at: began.Add(90 * time.Second), took: time.Minute, err: errors.New("no address, no interface")}},
	}}

	if err := r.Keep(dir); err != nil {
		t.Fatal(err)
	}

	got, err := os.ReadFile(filepath.Join(dir, "api-7-starts.csv"))
	if want := "phase,at_ms,took_ms,error\nidle,0,71,\nattack 1,90000,60000,\"no address, no interface\"\n"; string(got) != want {
		t.Errorf("%q, %v, want %q", got, err, want)
	}

	if reports, err := Load(os.DirFS(dir), "api"); len(reports) != 1 {
		t.Errorf("%d reports, %v, want one", len(reports), err)
	}
}
