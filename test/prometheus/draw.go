package prometheus

import (
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/deploy/monitoring"
	"github.com/ovn-ebpf/ovn-ebpf/test/prometheus/panel"
)

// Dashboards are those that Draw knows.
func Dashboards() []string { return []string{"gateway", "node", "controller"} }

// mainPanels are what of a dashboard is worth a picture.
func mainPanels(dashboard string) []string {
	switch dashboard {
	case "gateway":
		return []string{
			"Received, by who got it", "Received, bytes", "For the host, by reason", "For OVN, by reason",
			"Sent, by who sent it", "Busiest ports of Services, packets", "Dropped, by reason", "Tables, how full",
		}
	case "node":
		return []string{"Busiest pods, received", "Busiest pods, sent", "Datapath look-ups", "Datapath flows"}
	case "controller":
		return []string{"Latency of events", "Reconciliations", "Operations", "Allocated", "Waiting", "Servers that answer"}
	}
	return nil
}

// Draw asks the queries of a dashboard's main panels over a time, and draws the answers as
// an SVG. A panel that would be empty, or that the dashboard does not have, is an error.
// rate is the range that rates are taken over.
func (s Server) Draw(dashboard string, from, to time.Time, rate string) (string, error) {
	all, err := monitoring.Panels()
	if err != nil {
		return "", err
	}
	var panels []panel.Panel
	for _, title := range mainPanels(dashboard) {
		i := slices.IndexFunc(all, func(p monitoring.Panel) bool { return p.Dashboard == dashboard+".json" && p.Title == title })
		if i < 0 {
			return "", fmt.Errorf("draw dashboard %s: it has no panel %q", dashboard, title)
		}
		drawn := panel.Panel{Title: title, Unit: all[i].Unit}
		for _, t := range all[i].Targets {
			series, err := s.series(monitoring.Substitute(t.Expr, rate), t.Legend, from, to)
			if err != nil {
				return "", fmt.Errorf("draw dashboard %s, panel %q: %w", dashboard, title, err)
			}
			drawn.Series = append(drawn.Series, series...)
		}
		panels = append(panels, drawn)
	}
	const caption = "Drawn by test/prometheus from what Prometheus answers to the dashboard's queries, in a lab (make dashboards). It is not Grafana."
	return panel.Draw("Dashboard "+dashboard+", main panels", caption, to.Sub(from), panels)
}

// series is a query's answer over a time.
func (s Server) series(expr, legend string, from, to time.Time) ([]panel.Series, error) {
	const points = 150
	step := max(to.Sub(from)/points, time.Second)
	at := func(t time.Time) string { return strconv.FormatFloat(float64(t.UnixMilli())/1000, 'f', 3, 64) }
	var reply struct {
		Data struct {
			Result []struct {
				Metric map[string]string
				Values [][2]any
			}
		}
	}
	query := url.Values{"query": {expr}, "start": {at(from)}, "end": {at(to)}, "step": {strconv.FormatFloat(step.Seconds(), 'f', 3, 64)}}
	if err := s.get("/api/v1/query_range?"+query.Encode(), &reply); err != nil {
		return nil, err
	}
	var out []panel.Series
	for _, r := range reply.Data.Result {
		one := panel.Series{Name: named(legend, r.Metric)}
		for _, v := range r.Values {
			seconds, isTime := v[0].(float64)
			text, isText := v[1].(string)
			value, err := strconv.ParseFloat(text, 64)
			if !isTime || !isText || err != nil {
				return nil, fmt.Errorf("read answer to %s: no value in %v", expr, v)
			}
			after := time.Duration(seconds*float64(time.Second)) - time.Duration(from.UnixMilli())*time.Millisecond
			one.Points = append(one.Points, panel.Point{At: after, Value: value})
		}
		out = append(out, one)
	}
	return out, nil
}

var label = regexp.MustCompile(`\{\{\s*([a-z_]+)\s*\}\}`)

// named is what Grafana calls a series.
func named(legend string, labels map[string]string) string {
	return label.ReplaceAllStringFunc(legend, func(m string) string { return labels[label.FindStringSubmatch(m)[1]] })
}
