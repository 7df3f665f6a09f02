package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/bench"
	"github.com/ovn-ebpf/ovn-ebpf/bench/results"
)

// passing returns rows that meet every bar: equal costs, with ours below all others.
func passing() []bench.Row {
	var out []bench.Row

	for _, v := range bench.AllVariants() {
		for _, test := range bench.Tests() {
			for _, family := range []string{bench.IPv4, bench.IPv6} {
				r := bench.Row{Test: test, Variant: v, Layout: "none", Kernel: "6.12.1", Family: family, Instructions: 20000, Spread: 0.002}
				switch v {
				case bench.EBPF, bench.Shortcuts, bench.NeverShort:
					r.Instructions = 16000
				case bench.ShortcutsOnOVN:
					r.Instructions = 8000
				}

				out = append(out, r)
			}
		}
	}

	return out
}

func TestAccept(t *testing.T) {
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	args := func(more ...string) []string {
		return append([]string{"-run", file("packets.txt"), "-baseline", file("baseline.json"), "-message", file("commit.txt")}, more...)
	}
	r := &results.Run{
		Kind: results.Packets, Date: "2026-11-22T07:00:00Z", Commit: "abc1234", Boots: 1, Platform: results.Platform,
		Machine: results.Machine{CPU: "c", Kernel: "k"}, Rows: passing(),
	}
	write := func() {
		t.Helper()

		if err := r.Write(file("packets.txt")); err != nil {
			t.Fatal(err)
		}
	}
	write()

	if err := accept(args(), io.Discard, io.Discard); err == nil {
		t.Error("accepted without a reason")
	}

	r.Platform = "debian12"

	write()

	if err := accept(args("-reason", "a start"), io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), `measured on platform "debian12"`) {
		t.Errorf("accepted another platform: %v", err)
	}

	r.Platform = results.Platform

	write()

	if _, err := os.Stat(file("baseline.json")); err == nil {
		t.Error("a refused baseline was written")
	}

	if err := accept(args("-reason", "a start"), io.Discard, io.Discard); err != nil {
		t.Fatal(err)
	}

	for i := range r.Rows {
		if v := r.Rows[i].Variant; v == bench.EBPF || v == bench.Shortcuts {
			r.Rows[i].Instructions *= 1.02
		}
	}

	r.Commit = "def5678"

	write()

	var out bytes.Buffer
	if err := accept(args("-reason", "a check more"), &out, io.Discard); err != nil {
		t.Fatal(err)
	}

	text, err := os.ReadFile(file("commit.txt"))
	if err != nil {
		t.Fatal(err)
	}

	for _, want := range []string{"a check more", "def5678", "host_udp_rr ipv4, shortcuts / no-ovs: 0.8160, was 0.8000 (+2.00 %)"} {
		if !strings.Contains(string(text), want) || !strings.Contains(out.String(), want) {
			t.Errorf("no %q in the commit's text:\n%s", want, text)
		}
	}

	b, err := bench.ReadBaseline(file("baseline.json"))
	if err != nil {
		t.Fatal(err)
	}

	if b.Platform != results.Platform {
		t.Errorf("the baseline is of platform %q", b.Platform)
	}

	if err := b.Check(r.Rows); err != nil {
		t.Errorf("the accepted rows do not pass: %v", err)
	}
}
