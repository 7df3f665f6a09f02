package bench

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestReadStacks(t *testing.T) {
	symbols, err := ParseSymbols("ffffffff81000100 t outer\nffffffff81000200 T inner\n")
	if err != nil {
		t.Fatal(err)
	}

	got, err := ReadStacks(strings.NewReader(`12 ffffffff81000210 ffffffff81000120
3 ffffffff81000280 ffffffff81000130
40 0
end
5 ffffffff81000100
end
`), symbols)
	if err != nil {
		t.Fatal(err)
	}

	want := []map[string]int{{"inner;outer": 15, "user": 40}, {"outer": 5}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("stacks (-want +got):\n%s", diff)
	}

	for _, bad := range []string{"5 ffffffff81000100\n", "x 0\nend\n", "5\nend\n", "5 zz\nend\n"} {
		if got, err := ReadStacks(strings.NewReader(bad), symbols); err == nil {
			t.Errorf("ReadStacks(%q) = %v, want an error", bad, got)
		}
	}
}
