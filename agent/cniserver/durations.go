package cniserver

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ovn-ebpf/ovn-ebpf/metric"
)

// Names of the histograms.
const (
	requestDuration = "ovnkube_node_cni_request_duration_seconds"
	phaseDuration   = "ovnkube_node_cni_add_phase_duration_seconds"
)

// Table lists the metrics of a Server.
func Table() metric.Table {
	return metric.Table{
		{
			Name: requestDuration, Kind: metric.Histogram, Labels: []string{"command", "err"},
			Help: "The duration of CNI server requests.", Buckets: prometheus.ExponentialBuckets(0.01, 2, 14),
		},
		{
			Name:    phaseDuration,
			Kind:    metric.Histogram,
			Labels:  []string{"phase"},
			Help:    "The duration of the phases of a CNI ADD: waiting for the pod's annotation (in underlay mode, for its port), connecting the pod, waiting for ovn-controller, and the total of each successful ADD.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 17),
		},
	}
}

// Durations measures the requests of a Server. It implements prometheus.Collector.
type Durations struct{ requests, phases *prometheus.HistogramVec }

// NewDurations returns unregistered Durations.
func NewDurations() *Durations {
	d := &Durations{Table().Histograms(requestDuration), Table().Histograms(phaseDuration)}
	for _, failed := range []string{"false", "true"} {
		d.requests.WithLabelValues("ADD", failed) // starts at zero, so that the first failure is an increase
	}

	d.phases.WithLabelValues(phaseTotal)

	return d
}

// Observe records a request. Unknown commands share one label.
func (d *Durations) Observe(command string, failed bool, took time.Duration) {
	switch command {
	case "ADD", "DEL", "CHECK", "GC", "STATUS":
	default:
		command = "other"
	}

	d.requests.WithLabelValues(command, strconv.FormatBool(failed)).Observe(took.Seconds())
}

// ObservePhase records the duration of one phase of an ADD.
func (d *Durations) ObservePhase(phase string, took time.Duration) {
	d.phases.WithLabelValues(phase).Observe(took.Seconds())
}

// Describe implements prometheus.Collector.
func (d *Durations) Describe(ch chan<- *prometheus.Desc) {
	d.requests.Describe(ch)
	d.phases.Describe(ch)
}

// Collect implements prometheus.Collector.
func (d *Durations) Collect(ch chan<- prometheus.Metric) {
	d.requests.Collect(ch)
	d.phases.Collect(ch)
}
