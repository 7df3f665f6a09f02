package panel

import (
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden picture")

// ramp goes up by by each second.
func ramp(name string, by float64) Series {
	s := Series{Name: name}
	for i := range 5 {
		s.Points = append(s.Points, Point{time.Duration(i) * time.Second, float64(i) * by})
	}
	return s
}

// A panel that would show nothing is refused, by name: no series, no values, values that are
// none, or single points.
func TestEmpty(t *testing.T) {
	full := Panel{Title: "full", Series: []Series{ramp("a", 1)}}
	for what, series := range map[string][]Series{
		"no series":  nil,
		"no values":  {{Name: "a"}},
		"no numbers": {{Name: "a", Points: []Point{{0, math.NaN()}, {time.Second, math.NaN()}, {2 * time.Second, math.Inf(1)}}}},
		"one point":  {{Name: "a", Points: []Point{{0, 1}}}},
		"points far apart": {
			{Name: "a", Points: []Point{{0, 1}, {3 * time.Second, 1}}},
			{Name: "b", Points: []Point{{0, math.NaN()}, {time.Second, math.NaN()}}},
		},
	} {
		_, err := Draw("all", "", 4*time.Second, []Panel{full, {Title: "the empty one", Series: series}})
		if !errors.Is(err, ErrEmpty) || !strings.Contains(err.Error(), "the empty one") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := Draw("all", "", time.Second, nil); err == nil {
		t.Error("a picture without panels")
	}
	zero := Panel{Title: "nothing happens", Series: []Series{ramp("a", 0)}}
	if _, err := Draw("all", "", 4*time.Second, []Panel{zero}); err != nil {
		t.Errorf("a line at zero is one: %v", err)
	}
}

func TestDraw(t *testing.T) {
	var many []Series
	for i := range 10 {
		many = append(many, ramp(fmt.Sprintf("series %d", i), float64(i+1)))
	}
	broken := ramp("with a hole", 1)
	broken.Points[2].Value = math.NaN()
	got, err := Draw("Example", "a caption & more", 4*time.Second, []Panel{
		{Title: "Lines <of> two", Unit: "pps", Series: []Series{ramp("small", 1), ramp("large", 2000)}},
		{Title: "Many", Unit: "bytes", Series: many},
		{Title: "A hole", Unit: "s", Series: []Series{broken}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(got, "<polyline"); n != 2+most+2 {
		t.Errorf("%d lines", n)
	}
	for _, want := range []string{"series 9", "series 2", "and 2 smaller", "Lines &lt;of&gt; two", "8 kp/s", "a caption &amp; more"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q", want)
		}
	}
	if strings.Contains(got, "series 1<") {
		t.Error("a small series is there")
	}
	wellFormed(t, got)
	const file = "testdata/example.svg"
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-file +drawn), go test -update writes it:\n%s", file, diff)
	}
}

func wellFormed(t *testing.T, svg string) {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(svg))
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

func TestSpell(t *testing.T) {
	for want, of := range map[string]struct {
		v    float64
		unit string
	}{"0 p/s": {0, "pps"}, "1.5 MB/s": {1.5e6, "Bps"}, "20 ms": {0.02, "s"}, "2 s": {2, "s"}, "25 %": {0.25, "percentunit"}, "3": {3, "short"}, "4 k": {4000, "short"}, "0.5 /s": {0.5, "ops"}} {
		if got := spell(of.v, of.unit); got != want {
			t.Errorf("%v in %s is %q, want %q", of.v, of.unit, got, want)
		}
	}
	for top, want := range map[float64]float64{0: 1, 0.03: 0.04, 1: 1, 1.1: 2, 5: 8, 9: 10, 801: 1000} {
		if got := ceiling(top); math.Abs(got-want) > 1e-9 {
			t.Errorf("axis to %v for %v, want %v", got, top, want)
		}
	}
}

func TestShortened(t *testing.T) {
	for name, want := range map[string]string{
		"": "", "default/localhost:80/UDP": "default/localhost:80/UDP",
		"OVN_Northbound tcp:172.30.0.1:6641": "OVN_Northbou…:172.30.0.1:6641",
	} {
		if got := shortened(name); got != want {
			t.Errorf("shortened(%q) = %q, want %q", name, got, want)
		}
	}
}
