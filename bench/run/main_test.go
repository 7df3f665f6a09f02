package main

import (
	"bytes"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ovn-ebpf/ovn-ebpf/bench"
)

func TestParse(t *testing.T) {
	c, err := parse(nil, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(bench.Variants(), c.variants); diff != "" || c.out != "build/bench.json" {
		t.Errorf("defaults: out %q, variants (-want +got):\n%s", c.out, diff)
	}
	for _, args := range [][]string{{"more"}, {"-nothing"}, {"-variants", "warp"}, {"-variants", ""}} {
		if _, err := parse(args, io.Discard); err == nil {
			t.Errorf("parse(%q) succeeded", args)
		}
	}
}

func TestMissing(t *testing.T) {
	want := []tool{{"a", "p"}, {"b", "q"}, {"c", "p"}}
	none := func(string) (string, error) { return "", errors.New("no") }
	all := func(string) (string, error) { return "/bin/x", nil }
	if err := missing(want, all); err != nil {
		t.Errorf("nothing is missing: %v", err)
	}
	err := missing(want, none)
	if err == nil || err.Error() != "find a, b, c: not in PATH (apt-get install p q)" {
		t.Errorf("all is missing: %v", err)
	}
}

func TestSave(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "bench.json")
	rows := []bench.Row{{Test: "t", Variant: "v", Family: bench.IPv4, Instructions: 1}}
	if err := save(path, rows); err != nil {
		t.Fatal(err)
	}
	var buf bytes.Buffer
	if err := bench.Write(&buf, rows); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(buf.String(), "[\n") {
		t.Errorf("rows are no array: %q", buf.String())
	}
}
