package report

import (
	"fmt"
	"html"
	"math"
	"strings"

	"github.com/ovn-ebpf/ovn-ebpf/bench"
	"github.com/ovn-ebpf/ovn-ebpf/test/svg"
)

// group is some bars that are compared with each other.
type group struct {
	name string
	bars []bar
}

type bar struct {
	variant string
	value   float64
	text    string // beside it
}

// colour is a variant's in all charts.
func colour(variant string) string {
	switch variant {
	case bench.NoOVS:
		return "#8c959f"
	case bench.Masquerade:
		return "#b9a26a"
	case bench.Flowtable:
		return "#d9c27e"
	case bench.Helper:
		return "#c4432b"
	case bench.OpenFlow:
		return "#e08a3c"
	case bench.EBPF:
		return "#1f6f4a"
	case bench.Bridged:
		return "#62ab7f"
	}
	return "#4a6fa5"
}

const (
	chartWidth  = 760
	labelWidth  = 190 // of what a bar or group is called
	valueWidth  = 150 // of what is written beside a bar
	lineHeight  = 17
	titleHeight = 30
)

// picture is an SVG.
type picture struct{ svg.Picture }

func (p *picture) svg(title string, height float64) string {
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%.0f" viewBox="0 0 %d %.0f" role="img" font-family="sans-serif" font-size="12">
<title>%s</title>
<rect width="100%%" height="100%%" fill="#ffffff"/>
<text x="10" y="20" font-size="14" font-weight="bold">%s</text>
%s</svg>
`, chartWidth, height, chartWidth, height, html.EscapeString(title), html.EscapeString(title), p.String())
}

// barChart draws groups of bars, as long as their values.
func barChart(title string, groups []group) string {
	var p picture
	most := 0.0
	for _, g := range groups {
		for _, b := range g.bars {
			most = max(most, b.value)
		}
	}
	y := float64(titleHeight)
	for _, g := range groups {
		y += 8
		p.Text(10, y+12, ` font-weight="bold"`, g.name)
		y += lineHeight
		for _, b := range g.bars {
			length := (chartWidth - labelWidth - valueWidth) * b.value / most
			p.Text(labelWidth-6, y+12, ` text-anchor="end"`, b.variant)
			p.Put(`<rect x="%d" y="%.1f" width="%.1f" height="%d" fill="%s"/>`, labelWidth, y+1, length, lineHeight-3, colour(b.variant))
			p.Text(labelWidth+length+6, y+12, "", b.text)
			y += lineHeight
		}
	}
	return p.svg(title, y+10)
}

// line is a variant's value at some sizes.
type line struct {
	variant string
	x, y    []float64
}

// lineChart draws lines over sizes, whose axis is logarithmic, from zero.
func lineChart(title, axis string, lines []line) string {
	const left, right, height = 80.0, chartWidth - 130.0, 260.0
	var p picture
	first, last, most := math.Inf(1), 0.0, 0.0
	for _, l := range lines {
		for i := range l.x {
			first, last, most = min(first, l.x[i]), max(last, l.x[i]), max(most, l.y[i])
		}
	}
	at := func(x, y float64) (float64, float64) {
		across := 0.0
		if last > first {
			across = math.Log(x/first) / math.Log(last/first)
		}
		return left + across*(right-left), titleHeight + height*(1-y/(1.1*most))
	}
	for i := range 5 {
		value := 1.1 * most * float64(i) / 4
		_, y := at(first, value)
		p.Put(`<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="#d0d7de"/>`, left, y, right, y)
		p.Text(left-6, y+4, ` text-anchor="end"`, fmt.Sprintf("%.0f", value))
	}
	marked := map[float64]bool{}
	for _, l := range lines {
		var points []string
		for i := range l.x {
			x, y := at(l.x[i], l.y[i])
			points = append(points, fmt.Sprintf("%.1f,%.1f", x, y))
			p.Put(`<circle cx="%.1f" cy="%.1f" r="3" fill="%s"/>`, x, y, colour(l.variant))
			if !marked[l.x[i]] {
				marked[l.x[i]] = true
				p.Text(x, titleHeight+height+18, ` text-anchor="middle"`, thousands(l.x[i]))
			}
			if i == len(l.x)-1 {
				p.Text(x+8, y+4, "", l.variant)
			}
		}
		p.Put(`<polyline points="%s" fill="none" stroke="%s" stroke-width="2"/>`, strings.Join(points, " "), colour(l.variant))
	}
	p.Text((left+right)/2, titleHeight+height+38, ` text-anchor="middle"`, axis)
	return p.svg(title, titleHeight+height+50)
}

// thousands writes a whole number with commas.
func thousands(x float64) string {
	s := fmt.Sprintf("%.0f", x)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
