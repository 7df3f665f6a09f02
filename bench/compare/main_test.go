package main

import (
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/bench"
	"github.com/ovn-ebpf/ovn-ebpf/bench/results"
)

func TestRun(t *testing.T) {
	kept, last := t.TempDir(), t.TempDir()
	write := func(dir, name, date string, instructions float64) string {
		r := results.Run{
			Kind: results.Packets, Date: date, Commit: name, Machine: results.Machine{CPU: "c", Kernel: "k"},
			Rows: []bench.Row{{Test: bench.HostUDPRR, Variant: bench.EBPF, Family: bench.IPv4, Kernel: "6.12.1", Instructions: instructions}},
		}
		path := filepath.Join(dir, name+".json")
		if err := r.Write(path); err != nil {
			t.Fatal(err)
		}
		return path
	}
	compare := func(args ...string) (string, error) {
		var out strings.Builder
		err := run(append([]string{"-kept", kept, "-last", last}, args...), &out, io.Discard)
		return out.String(), err
	}
	fails := func(want string, args ...string) {
		t.Helper()
		if out, err := compare(args...); err == nil || !strings.Contains(err.Error(), want) || out != "" {
			t.Errorf("%q: got %v and %q, want %q", args, err, out, want)
		}
	}
	fails(`0 of kind "packets" are kept`)
	newer := write(kept, "b", "2026-02-01T00:00:00Z", 1100)
	fails(`1 of kind "packets" are kept`)
	older := write(kept, "c", "2026-01-01T00:00:00Z", 1000) // by date, not by name
	fails("no such file", newer)
	fails("3 files, want two at most", newer, older, newer)
	write(last, results.Packets, "2026-03-01T00:00:00Z", 1000)
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "+10.0 %"},
		{[]string{newer, older}, "-9.1 %"},
		{[]string{newer}, "-9.1 %"},
		{[]string{older}, "~"},
	} {
		if out, err := compare(c.args...); err != nil || !strings.Contains(out, "| "+c.want+" |") {
			t.Errorf("%q: error %v, want %s in\n%s", c.args, err, c.want, out)
		}
	}
}
