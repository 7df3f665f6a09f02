// Package panel draws panels of a dashboard from what a Prometheus has answered to their
// queries, as one SVG: for documents, on machines without Grafana.
package panel

import (
	"cmp"
	"errors"
	"fmt"
	"html"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/test/svg"
)

// Panel is a chart of some series over time.
type Panel struct {
	Title, Unit string // Grafana's name of the unit
	Series      []Series
}

// Series is a line.
type Series struct {
	Name   string
	Points []Point
}

// Point is a value so long after the chart's beginning.
type Point struct {
	At    time.Duration
	Value float64
}

// ErrEmpty is what Draw returns (wrapped) for a panel without a line.
var ErrEmpty = errors.New("no line in it")

const (
	width       = 960 // of the picture
	columns     = 2
	panelHeight = 262
	chartHeight = 140
	most        = 8 // lines of a panel
	titleRoom   = 34
	leftRoom    = 62
)

// Draw draws panels over a time, each with at least one line and at most eight, the
// largest; below them stands the caption.
func Draw(title, caption string, over time.Duration, panels []Panel) (string, error) {
	if len(panels) == 0 {
		return "", fmt.Errorf("draw %q: no panels", title)
	}
	height := titleRoom + (len(panels)+columns-1)/columns*panelHeight + 24
	var p picture
	p.Put(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" role="img" font-family="sans-serif" font-size="11">`, width, height, width, height)
	p.Put(`<title>%s</title>`, html.EscapeString(title))
	p.Put(`<rect width="100%%" height="100%%" fill="#ffffff"/>`)
	p.Text(12, 22, ` font-size="15" font-weight="bold"`, title)
	for i, of := range panels {
		const each = width / columns
		if err := p.panel(float64(i%columns*each), float64(titleRoom+i/columns*panelHeight), each, over, of); err != nil {
			return "", fmt.Errorf("draw panel %q: %w", of.Title, err)
		}
	}
	p.Text(12, float64(height-9), ` fill="#57606a"`, caption)
	p.Put("</svg>")
	return p.String(), nil
}

// picture is an SVG.
type picture struct{ svg.Picture }

// colours are told apart also by who does not see all of them.
func colours() [most]string {
	return [most]string{"#1f6f4a", "#e08a3c", "#4a6fa5", "#c4432b", "#8a5fa8", "#62ab7f", "#b9a26a", "#57606a"}
}

func (p *picture) panel(x, y, width float64, over time.Duration, of Panel) error {
	lines, left := largest(of.Series)
	if len(lines) == 0 {
		return ErrEmpty
	}
	top := 0.0
	for _, l := range lines {
		top = max(top, l.peak)
	}
	top = ceiling(top)
	x0, x1, y0 := x+leftRoom, x+width-16, y+26
	p.Text(x+12, y+14, ` font-weight="bold"`, of.Title)
	for i := range 5 {
		at := y0 + chartHeight*float64(4-i)/4
		p.Put(`<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="#d0d7de"/>`, x0, at, x1, at)
		p.Text(x0-6, at+4, ` text-anchor="end"`, spell(top*float64(i)/4, of.Unit))
	}
	for i := range 4 {
		at := over * time.Duration(i) / 3
		p.Text(x0+(x1-x0)*float64(i)/3, y0+chartHeight+14, ` text-anchor="`+[]string{"start", "middle", "middle", "end"}[i]+`" fill="#57606a"`, at.Round(time.Second).String())
	}
	place := func(q Point) string {
		return fmt.Sprintf("%.1f,%.1f", x0+(x1-x0)*float64(q.At)/float64(over), y0+chartHeight*(1-q.Value/top))
	}
	for i, l := range lines {
		for _, run := range l.runs {
			p.Put(`<polyline points="%s" fill="none" stroke="%s" stroke-width="1.6"/>`, strings.Join(places(run, place), " "), colours()[i])
		}
		lx, ly := x0+float64(i%2)*(x1-x0)/2, y0+chartHeight+32+float64(i/2)*15
		p.Put(`<rect x="%.1f" y="%.1f" width="10" height="3" fill="%s"/>`, lx, ly-5, colours()[i])
		p.Text(lx+14, ly, "", shortened(l.name))
	}
	if left > 0 {
		p.Text(x1, y+14, ` text-anchor="end" fill="#57606a"`, fmt.Sprintf("and %d smaller", left))
	}
	return nil
}

// shortened leaves of a long name its two ends, so that the next one's place is free.
func shortened(name string) string {
	const head, tail = 12, 16
	if r := []rune(name); len(r) > head+tail+1 {
		return string(r[:head]) + "…" + string(r[len(r)-tail:])
	}
	return name
}

func places(run []Point, place func(Point) string) []string {
	var out []string
	for _, q := range run {
		out = append(out, place(q))
	}
	return out
}

// line is a series cut where values are missing.
type line struct {
	name string
	runs [][]Point
	peak float64
}

// largest returns the lines with the highest peaks, and how many more there are. A lone point is
// no line.
func largest(series []Series) (lines []line, left int) {
	step := time.Duration(math.MaxInt64)
	for _, s := range series {
		for i := 1; i < len(s.Points); i++ {
			step = min(step, s.Points[i].At-s.Points[i-1].At)
		}
	}
	for _, s := range series {
		l := line{name: s.Name}
		var run []Point
		end := func() {
			if len(run) > 1 {
				l.runs = append(l.runs, run)
				for _, q := range run {
					l.peak = max(l.peak, q.Value)
				}
			}
			run = nil
		}
		for _, q := range s.Points {
			bad := math.IsNaN(q.Value) || math.IsInf(q.Value, 0)
			if bad || len(run) > 0 && q.At-run[len(run)-1].At > step+step/2 {
				end()
			}
			if !bad {
				run = append(run, q)
			}
		}
		end()
		if len(l.runs) > 0 {
			lines = append(lines, l)
		}
	}
	slices.SortFunc(lines, func(a, b line) int { return cmp.Or(cmp.Compare(b.peak, a.peak), cmp.Compare(a.name, b.name)) })
	left = max(0, len(lines)-most)
	return lines[:len(lines)-left], left
}

// ceiling is where the axis ends: a round number above all values.
func ceiling(top float64) float64 {
	if top <= 0 {
		return 1
	}
	scale := math.Pow(10, math.Floor(math.Log10(top)))
	for _, m := range []float64{1, 2, 4, 8} {
		if top <= m*scale {
			return m * scale
		}
	}
	return 10 * scale
}

// spell writes a value in its unit.
func spell(v float64, unit string) string {
	number := func(v float64, suffix string) string {
		for _, p := range []struct {
			from float64
			name string
		}{{1e9, "G"}, {1e6, "M"}, {1e3, "k"}} {
			if v >= p.from {
				return fmt.Sprintf("%.3g %s%s", v/p.from, p.name, suffix)
			}
		}
		return strings.TrimSpace(fmt.Sprintf("%.3g %s", v, suffix))
	}
	switch unit {
	case "s":
		if v > 0 && v < 1 {
			return fmt.Sprintf("%.3g ms", v*1000)
		}
		return number(v, "s")
	case "percentunit":
		return fmt.Sprintf("%.3g %%", v*100)
	case "pps":
		return number(v, "p/s")
	case "Bps":
		return number(v, "B/s")
	case "ops":
		return number(v, "/s")
	case "bytes":
		return number(v, "B")
	}
	return number(v, "")
}
