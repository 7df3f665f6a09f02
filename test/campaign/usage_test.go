package campaign

import (
	"testing"
	"time"
)

// TestReport_usages checks that a program breaks a rule if it needs more CPU time after an attack than
// the bound, or more memory after the second one than after the first.
func TestReport_usages(t *testing.T) {
	const mb = 1 << 20

	for name, tt := range map[string]struct {
		after []usage
		want  int
	}{
		"as before":             {[]usage{{time.Second, 100 * mb, usageFor}, {time.Second, 100 * mb, usageFor}}, 0},
		"at the bounds":         {[]usage{{1500 * time.Millisecond, 100 * mb, usageFor}, {1500 * time.Millisecond, 105 * mb, usageFor}}, 0},
		"busy after the first":  {[]usage{{1510 * time.Millisecond, 100 * mb, usageFor}, {time.Second, 100 * mb, usageFor}}, 1},
		"busy after the second": {[]usage{{time.Second, 100 * mb, usageFor}, {1510 * time.Millisecond, 100 * mb, usageFor}}, 1},
		"more memory":           {[]usage{{time.Second, 100 * mb, usageFor}, {time.Second, 106 * mb, usageFor}}, 1},
		"less memory":           {[]usage{{time.Second, 100 * mb, usageFor}, {time.Second, 50 * mb, usageFor}}, 0},
		"more after the first":  {[]usage{{time.Second, 200 * mb, usageFor}, {time.Second, 200 * mb, usageFor}}, 0},
	} {
		const program = "controller"

		idle, report := map[string]usage{program: {time.Second, 50 * mb, usageFor}}, &Report{}

		var after []map[string]usage
		for _, u := range tt.after {
			after = append(after, map[string]usage{program: u})
		}

		report.usages([]string{program}, idle, after, after)

		if len(report.Broken) != tt.want || len(report.Figures) != 1+2*len(tt.after) {
			t.Errorf("%s: broken %q, want %d; figures %v", name, report.Broken, tt.want, report.Figures)
		}
	}
}
