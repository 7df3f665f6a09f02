package randomtest

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// log records what Seed logs.
type log struct {
	testing.TB
	text string
}

func (l *log) Helper()                    {}
func (l *log) Name() string               { return "TestModel/direct" }
func (l *log) Logf(form string, a ...any) { l.text = fmt.Sprintf(form, a...) }

// The seed is the same each time, unless a variable has another one. The log repeats the test.
func TestSeed(t *testing.T) {
	for _, tc := range []struct {
		own, all string
		want     uint64
		repeat   string
	}{
		{"", "", 1, "OVN_EBPF_SEED=1"},
		{"", "18446744073709551615", 18446744073709551615, "OVN_EBPF_SEED=18446744073709551615"},
		{"7", "8", 7, "OWN_SEED=7"},
		{"", "8", 8, "OVN_EBPF_SEED=8"},
	} {
		t.Setenv("OWN_SEED", tc.own)
		t.Setenv(Env, tc.all)

		l := &log{TB: t}
		if got := Seed(l, "OWN_SEED"); got != tc.want {
			t.Errorf("%+v: seed %d", tc, got)
		}

		if want := tc.repeat + " go test ./test/randomtest -run '^TestModel$/^direct$'"; !strings.HasSuffix(l.text, want) {
			t.Errorf("%+v: the log %q does not end with %q", tc, l.text, want)
		}
	}
}

// A variable that is not a number fails the test. Otherwise a mistyped seed would repeat nothing.
func TestSeed_refusesText(t *testing.T) {
	if os.Getenv(Env) == "x" {
		Seed(t)
		return
	}

	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestSeed_refusesText$")

	cmd.Env = append(os.Environ(), Env+"=x")
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "OVN_EBPF_SEED=x is not a number") {
		t.Errorf("%v: %s", err, out)
	}
}
