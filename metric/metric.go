// Package metric describes the programs' metrics for Prometheus in Tables. Collectors use the
// Tables, and docs/metrics.md is generated from them.
//
// A metric has one of two sources. Values that exist as state are read at each scrape: the
// collector sends them by a Set. Events in the past are counted when they happen: Table.Counters
// and Table.Histograms return the counters.
package metric

import (
	"fmt"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// Kind is the type of a metric.
type Kind string

// Kinds of metrics.
const (
	Counter   Kind = "counter"
	Gauge     Kind = "gauge"
	Histogram Kind = "histogram"
)

// Family describes a metric: the series that have the same name.
type Family struct {
	Name    string // as in Prometheus, with unit and _total
	Kind    Kind
	Labels  []string // their names
	Help    string
	Buckets []float64 // upper bounds; of a Histogram only
}

// BuildInfo is a metric of every program.
var BuildInfo = Family{
	Name:   "ovnkube_build_info",
	Kind:   Gauge,
	Labels: []string{"version", "commit", "goversion"},
	Help:   "Always 1. The labels have the version and commit of the program, and the version of Go.",
}

// Table lists the metrics of one program.
type Table []Family

// Family returns the family of that name. It panics if there is none.
func (t Table) Family(name string) Family {
	i := slices.IndexFunc(t, func(f Family) bool { return f.Name == name })
	if i < 0 {
		panic(fmt.Sprintf("metric %s is in no table", name))
	}

	return t[i]
}

// Histograms returns an unregistered histogram for the family of that name. It panics if there is
// none.
func (t Table) Histograms(name string) *prometheus.HistogramVec {
	f := t.Family(name)
	opts := prometheus.HistogramOpts{Name: f.Name, Help: f.Help, Buckets: f.Buckets}

	return prometheus.NewHistogramVec(opts, f.Labels)
}

// Counters returns an unregistered counter for the family of that name. It panics if there is none.
func (t Table) Counters(name string) *prometheus.CounterVec {
	f := t.Family(name)
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: f.Name, Help: f.Help}, f.Labels)
}

// Set sends values of a Table's counters and gauges, for collectors that read the values at each
// scrape. It is immutable.
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

// Put sends a value of the counter or gauge of that name, with the values of its labels in the
// order of Family.Labels. It panics if name or number of labels do not match the Table.
func (s Set) Put(ch chan<- prometheus.Metric, name string, v float64, labels ...string) {
	desc := s.descs[name]
	if desc == nil {
		panic(fmt.Sprintf("metric %s is in no table", name))
	}

	ch <- prometheus.MustNewConstMetric(desc, s.kinds[name], v, labels...)
}

// Labels are the labels of a series, made once for many values. For a large number of series, this
// is cheaper than Put.
type Labels []*dto.LabelPair

// Labels returns the labels of the metric of that name with these values.
func (s Set) Labels(name string, values ...string) Labels {
	return prometheus.MakeLabelPairs(s.descs[name], values)
}

// PutLabeled is like Put, with labels that the method Labels has returned for this metric, or for
// another one with the same names of labels. It does not check name and labels.
func (s Set) PutLabeled(ch chan<- prometheus.Metric, name string, v float64, labels Labels) {
	ch <- &labeled{desc: s.descs[name], kind: s.kinds[name], value: v, labels: labels}
}

// labeled is the prometheus.Metric that PutLabeled sends.
type labeled struct {
	desc   *prometheus.Desc
	kind   prometheus.ValueType
	value  float64
	labels Labels
}

// Desc implements prometheus.Metric.
func (l *labeled) Desc() *prometheus.Desc { return l.desc }

// Write implements prometheus.Metric.
func (l *labeled) Write(out *dto.Metric) error {
	out.Label = l.labels
	if l.kind == prometheus.CounterValue {
		out.Counter = &dto.Counter{Value: &l.value}
	} else {
		out.Gauge = &dto.Gauge{Value: &l.value}
	}

	return nil
}

// Describe sends the descriptions of all metrics of the Table, as prometheus.Collector requires.
func (s Set) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range s.descs {
		ch <- d
	}
}

// One returns the value of a gauge for a condition: 1 if it is true, and 0 if not.
func One(condition bool) float64 {
	if condition {
		return 1
	}

	return 0
}
