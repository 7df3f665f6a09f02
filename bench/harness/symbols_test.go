package main

import "testing"

func TestSymbols(t *testing.T) {
	s, err := parseSymbols("ffffffff81000200 T second\nffffffff81000100 t first\nffffffff81000180 d data\nffffffffc0000000 t run\t[mod]\n")
	if err != nil {
		t.Fatal(err)
	}
	const user = ^uint64(511) // PERF_CONTEXT_USER, -512
	for _, tt := range []struct {
		want string
		ips  []uint64
	}{
		{"first;second;run [mod]", []uint64{0xffffffff81000190, 0xffffffff81000200, 0xffffffffc0000010}},
		{"user", []uint64{0x1000}},
		{"user", []uint64{user}},
		{"user", nil},
	} {
		if got := s.stack(tt.ips); got != tt.want {
			t.Errorf("stack %#x is %q, want %q", tt.ips, got, tt.want)
		}
	}
	if _, err := parseSymbols("0000000000000000 T hidden\n"); err == nil {
		t.Error("hidden addresses were taken")
	}
}
