package main

import (
	"math"
	"slices"
	"strconv"
	"strings"
)

// The structs below are the JSON file of figures (-out). In the names of its keys, _s are seconds,
// _ms milliseconds, and _mb MiB.

// result holds the figures of one run, or of several (readResults).
type result struct {
	Machine  machine `json:"machine"`
	Platform string  `json:"platform"`
	Seed     uint64  `json:"seed"` // selects the nodes of the pods
	Nodes    int     `json:"nodes"`
	Services int     `json:"services"`
	Policies int     `json:"policies"`
	Rate     float64 `json:"changes_per_second"`
	Sizes    []size  `json:"sizes"`
	Main     int     `json:"main_pods"` // the size that the bars are for
	Alloc    *alloc  `json:"allocation,omitempty"`

	beside []*result // runs with another number of nodes or on another platform
}

type machine struct {
	Date, Commit, CPU, Kernel, OVN, OVS, Kubernetes string
	Cores                                           int
}

// size holds the figures with one number of pods.
type size struct {
	Pods     int      `json:"pods"`
	Load     float64  `json:"load_average"` // of the machine at the beginning
	Sync     phase    `json:"cold_sync"`
	Northd   float64  `json:"cold_sync_northd_s"` // until northd was done, too
	Commits  float64  `json:"cold_sync_commit_s"` // of Sync: comparing with the database and writing
	Restart  takeover `json:"restart"`
	Standby  takeover `json:"standby"`
	Churn    churn    `json:"churn"`
	Memory   usage    `json:"controller"` // at the end
	NBMemory float64  `json:"nb_rss_mb"`
	SBMemory float64  `json:"sb_rss_mb"`
	Node     *onNode  `json:"node,omitempty"`
}

// onNode holds the figures of the real node.
type onNode struct {
	Settle     float64 `json:"settle_s"` // from its start until it has all flows
	Flows      int     `json:"flows"`
	Controller usage   `json:"ovn_controller"`
	Vswitchd   usage   `json:"ovs_vswitchd"`
	Recompute  phase   `json:"recompute"`
	Pods       probes  `json:"pods"`
	Services   probes  `json:"services"`
}

// probes are changes that were made one by one, each when the node had the flows of the previous
// one.
type probes struct {
	Count int                `json:"count"`
	P50   float64            `json:"p50_ms"` // from the event to the flows
	P99   float64            `json:"p99_ms"`
	CPU   map[string]float64 `json:"cpu_ms"` // of each process per change
}

// phase is a duration, and the CPU seconds of each process in it.
type phase struct {
	Seconds float64            `json:"s"`
	CPU     map[string]float64 `json:"cpu_s"`
}

// share returns the controller's CPU time divided by northd's.
func (p phase) share() float64 { return p.CPU["controller"] / p.CPU["northd"] }

// takeover is the change to a new leader, which should have nothing to write.
type takeover struct {
	Seconds      float64 `json:"s"`
	CPU          float64 `json:"cpu_s"` // of the new leader since its start
	Transactions float64 `json:"transactions"`
}

// churn is the phase with changes. P50 and P99 are from an owner's first event to its transaction;
// -1 if nothing was counted.
type churn struct {
	phase
	Changes      int     `json:"changes"`
	Transactions float64 `json:"transactions"`
	P50          float64 `json:"p50_ms"`
	P99          float64 `json:"p99_ms"`
}

// perChange returns the controller's CPU time for a change, in microseconds.
func (c churn) perChange() float64 { return c.CPU["controller"] / float64(c.Changes) * 1e6 }

// alloc is the allocation of addresses for pods that have none.
type alloc struct {
	Pods    int     `json:"pods"`
	Seconds float64 `json:"s"`
}

// bucketQuantile estimates the quantile q, in milliseconds, of the values that a histogram in
// seconds has counted between two scrapes. Like PromQL's histogram_quantile, it interpolates
// linearly inside a bucket, and for the last bucket, +Inf, returns the lower bound. It returns NaN
// if nothing was counted.
func bucketQuantile(before, after map[string]float64, name string, q float64) float64 {
	type bucket struct{ le, n float64 }

	var buckets []bucket

	for series, n := range after {
		rest, ok := strings.CutPrefix(series, name+`_bucket{le="`)
		if !ok {
			continue
		}

		le, err := strconv.ParseFloat(strings.TrimSuffix(rest, `"}`), 64)
		if err == nil {
			buckets = append(buckets, bucket{le, n - before[series]})
		}
	}

	slices.SortFunc(buckets, func(a, b bucket) int {
		if a.le < b.le {
			return -1
		}

		return 1
	})

	if len(buckets) == 0 || buckets[len(buckets)-1].n == 0 {
		return math.NaN()
	}

	want, low, below := q*buckets[len(buckets)-1].n, 0.0, 0.0
	for _, b := range buckets {
		if b.n >= want {
			if math.IsInf(b.le, 1) {
				return low * 1e3
			}

			return (low + (b.le-low)*(want-below)/max(b.n-below, 1)) * 1e3
		}

		low, below = b.le, b.n
	}

	return low * 1e3
}
