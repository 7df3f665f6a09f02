package bench

import "testing"

func TestSymbols(t *testing.T) {
	s, err := ParseSymbols("ffffffff81000200 T second\nffffffff81000100 t first\nffffffff81000180 d data\nffffffffc0000000 t run\t[mod]\n")
	if err != nil {
		t.Fatal(err)
	}

	for _, tt := range []struct {
		want  string
		addrs []uint64
	}{
		{"first;first;run [mod]", []uint64{0xffffffff81000100, 0xffffffff81000200, 0xffffffffc0000010}},
		{"second", []uint64{0xffffffff81000200}},
		{"user", []uint64{0}},
	} {
		if got := s.stack(tt.addrs); got != tt.want {
			t.Errorf("stack %#x is %q, want %q", tt.addrs, got, tt.want)
		}
	}

	if _, err := ParseSymbols("0000000000000000 T hidden\n"); err == nil {
		t.Error("hidden addresses were taken")
	}
}
