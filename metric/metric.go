// Package metric describes what the programs show to Prometheus. A collector makes its
// metrics from its Table, and docs/metrics.md is made from the same.
package metric

import (
	"fmt"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// Kind is what a metric's values are.
type Kind string

// The kinds.
const (
	Counter   Kind = "counter"
	Gauge     Kind = "gauge"
	Histogram Kind = "histogram"
)

// Family is all series of one name.
type Family struct {
	Name    string
	Kind    Kind
	Labels  []string
	Help    string
	Buckets []float64 // of a Histogram
}

// BuildInfo is in the Table of each role.
var BuildInfo = Family{Name: "ovnkube_build_info", Kind: Gauge, Labels: []string{"version", "commit", "goversion"}, Help: "1, with version and commit of the program."}

// Table is what one program shows.
type Table []Family

// Family returns the one of that name, which must be there.
func (t Table) Family(name string) Family {
	i := slices.IndexFunc(t, func(f Family) bool { return f.Name == name })
	if i < 0 {
		panic(fmt.Sprintf("metric %s is in no table", name))
	}
	return t[i]
}

// Histograms returns the histogram of that name.
func (t Table) Histograms(name string) *prometheus.HistogramVec {
	f := t.Family(name)
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: f.Name, Help: f.Help, Buckets: f.Buckets}, f.Labels)
}

// Counters returns the counter of that name.
func (t Table) Counters(name string) *prometheus.CounterVec {
	f := t.Family(name)
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: f.Name, Help: f.Help}, f.Labels)
}

// Set is a Table ready to give out values that are read at the scrape.
type Set struct {
	kinds map[string]prometheus.ValueType
	descs map[string]*prometheus.Desc
}

// NewSet returns the Set of a Table.
func NewSet(t Table) Set {
	s := Set{kinds: map[string]prometheus.ValueType{}, descs: map[string]*prometheus.Desc{}}
	for _, f := range t {
		s.descs[f.Name] = prometheus.NewDesc(f.Name, f.Help, f.Labels, nil)
		s.kinds[f.Name] = prometheus.GaugeValue
		if f.Kind == Counter {
			s.kinds[f.Name] = prometheus.CounterValue
		}
	}
	return s
}

// Put sends a value. Name and number of labels must be those of the Table.
func (s Set) Put(ch chan<- prometheus.Metric, name string, v float64, labels ...string) {
	desc := s.descs[name]
	if desc == nil {
		panic(fmt.Sprintf("metric %s is in no table", name))
	}
	ch <- prometheus.MustNewConstMetric(desc, s.kinds[name], v, labels...)
}

// Labels are values ready to be sent again and again.
type Labels []*dto.LabelPair

// Labels returns the labels of a name with these values.
func (s Set) Labels(name string, values ...string) Labels {
	return prometheus.MakeLabelPairs(s.descs[name], values)
}

// PutLabeled sends a counter's or gauge's value with labels of that name, or of one with the same.
func (s Set) PutLabeled(ch chan<- prometheus.Metric, name string, v float64, labels Labels) {
	ch <- &labeled{desc: s.descs[name], kind: s.kinds[name], v: v, labels: labels}
}

// labeled is a Metric whose labels are not made anew.
type labeled struct {
	desc   *prometheus.Desc
	kind   prometheus.ValueType
	v      float64
	labels Labels
}

// Desc implements prometheus.Metric.
func (l *labeled) Desc() *prometheus.Desc { return l.desc }

// Write implements prometheus.Metric.
func (l *labeled) Write(out *dto.Metric) error {
	out.Label = l.labels
	if l.kind == prometheus.CounterValue {
		out.Counter = &dto.Counter{Value: &l.v}
	} else {
		out.Gauge = &dto.Gauge{Value: &l.v}
	}
	return nil
}

// Describe sends every description.
func (s Set) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range s.descs {
		ch <- d
	}
}

// One is 1 for true.
func One(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// Markdown is the Table for people.
func (t Table) Markdown() string {
	var b strings.Builder
	b.WriteString("| name | type | labels | what |\n|---|---|---|---|\n")
	for _, f := range t {
		labels := strings.Join(f.Labels, "`, `")
		if labels != "" {
			labels = "`" + labels + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", f.Name, f.Kind, labels, strings.ReplaceAll(f.Help, "|", `\|`))
	}
	return b.String()
}
