package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ovn-ebpf/ovn-ebpf/bench"
	"github.com/ovn-ebpf/ovn-ebpf/bench/results"
)

func TestParse(t *testing.T) {
	c, err := parse(nil, io.Discard)
	if err != nil {
		t.Fatal(err)
	}

	if diff := cmp.Diff(bench.AllVariants(), c.variants); diff != "" || c.out != "build/bench" {
		t.Errorf("defaults: out %q, variants (-want +got):\n%s", c.out, diff)
	}

	if c, err = parse([]string{"-short"}, io.Discard); err != nil {
		t.Fatal(err)
	}

	if diff := cmp.Diff(bench.Variants(), c.variants); diff != "" {
		t.Errorf("short: variants (-want +got):\n%s", diff)
	}

	for _, args := range [][]string{{"more"}, {"-nothing"}, {"-variants", "warp"}, {"-variants", "ebpf,"}, {"-tests", "host_warp"}, {"-boots", "0"}, {"-seed", "-1"}, {"-together", "0"}, {"-short", "-keep"}, {"-tests", "host_udp_rr", "-keep"}} {
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
	dir := filepath.Join(t.TempDir(), "new")
	rows := []bench.Row{{Test: bench.HostUDPRR, Variant: bench.EBPF, Family: bench.IPv4, Kernel: "6.12.1", Instructions: 1}}
	r := results.Describe(t.Context(), results.Packets)

	r.Rows = rows
	if err := save(config{out: dir}, &r, "report.md"); err != nil {
		t.Fatal(err)
	}

	again, err := results.Read(filepath.Join(dir, "packets.txt"))
	if err != nil {
		t.Fatal(err)
	}

	if diff := cmp.Diff(&r, again); diff != "" {
		t.Errorf("run (-want +got):\n%s", diff)
	}

	report, err := os.ReadFile(filepath.Join(dir, "report.md"))
	if err != nil || !strings.Contains(string(report), "| host_udp_rr |") {
		t.Errorf("report: %v\n%s", err, report)
	}
}

func TestCommandRefuses(t *testing.T) {
	for _, args := range [][]string{{"warp"}, {"packets", "more"}, {"native", "-nothing"}, {"watched", "-nothing"}, {"accept", "-nothing"}, {"bound", "-tries", "19"}, {"bound", "more"}} {
		if err := command(t.Context(), args, io.Discard, io.Discard); err == nil {
			t.Errorf("command(%q) succeeded", args)
		}
	}
}

func TestBoundTable(t *testing.T) {
	measures, err := results.ParseGo("test/e2e", strings.Repeat("BenchmarkBound/policy=egress/agent=dead 1 7 ms/end\n", 2)+
		"BenchmarkBound/policy=egress/agent=dead 1 1000 ms/end\nBenchmarkBound/policy=egress/agent=dead 1 1001 ms/end\nPASS\n")
	if err != nil {
		t.Fatal(err)
	}

	want := "| kind | connections | within 1 s | median | 95 % | longest |\n|---|---:|---:|---:|---:|---:|\n" +
		"| policy=egress/agent=dead | 4 | 3 | 7 ms | 1000 ms | 1001 ms |\n"
	if diff := cmp.Diff(want, boundTable(measures)); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
}

func TestCheckBound(t *testing.T) {
	both := "BenchmarkBound/policy=egress/agent=alive 1 7 ms/end\nBenchmarkBound/policy=ingress/agent=alive 1 7 ms/end\n"

	alive, err := results.ParseGo("test/e2e", both+"PASS\n")
	if err != nil {
		t.Fatal(err)
	}

	want := "Bound/policy=egress/agent=dead: 0 connections, want 1\nBound/policy=ingress/agent=dead: 0 connections, want 1"
	if err := checkBound(alive, 1); err == nil || err.Error() != want {
		t.Errorf("without a dead agent: %v, want %s", err, want)
	}

	all, err := results.ParseGo("test/e2e", both+strings.ReplaceAll(both, "alive", "dead")+"PASS\n")
	if err != nil {
		t.Fatal(err)
	}

	if err := checkBound(all, 1); err != nil {
		t.Error(err)
	}

	if err := checkBound(all, 2); err == nil {
		t.Error("checkBound accepts one connection of each kind instead of two")
	}
}

// test/vm/suite divides the pattern at each "|", also within parentheses.
func TestBoundTests_areWholePatterns(t *testing.T) {
	for pattern := range strings.SplitSeq(boundTests, "|") {
		for level := range strings.SplitSeq(pattern, "/") {
			if _, err := regexp.Compile(level); err != nil {
				t.Errorf("%s: %v", pattern, err)
			}
		}
	}
}
