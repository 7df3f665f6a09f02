package metrics

import (
	"errors"
	"strconv"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ovn-ebpf/ovn-ebpf/bpf"
	"github.com/ovn-ebpf/ovn-ebpf/metric"
	"github.com/ovn-ebpf/ovn-ebpf/service"
)

// counters reads the counters of decisions: those of the pinned programs, or of flows.
func (c *Collector) counters() ([]bpf.Counter, error) {
	if c.s.Counters != nil {
		return c.s.Counters()
	}

	read := func() ([]bpf.Counter, error) { return bpf.ReadCounters(c.s.PinDir) }
	if c.s.HostSent == nil {
		return read()
	}

	return c.s.HostSent.Append(read)
}

// putPrograms sends the counters of decisions. If programs decide, it also sends the sizes of their
// tables, the counts of shortcuts and the programs' run times. Before programs are first loaded, it
// sends nothing.
func (c *Collector) putPrograms(put putter) {
	counters, err := c.counters()
	if err != nil {
		c.s.Log.Debug("not all gateway counters", "error", err)
	}

	if counters == nil {
		return
	}

	for _, n := range counters {
		put("ovnkube_gateway_packets_total", float64(n.Packets), n.Port, n.Direction, n.Verdict, n.Reason)
		put("ovnkube_gateway_bytes_total", float64(n.Bytes), n.Port, n.Direction, n.Verdict, n.Reason)
	}

	if c.s.Counters != nil {
		return
	}

	tables, err := bpf.Tables(c.s.PinDir)
	if err != nil {
		c.s.Log.Debug("no gateway table sizes", "error", err)
	}

	for name, t := range tables {
		put("ovnkube_gateway_table_entries", float64(t.Entries), name)
		put("ovnkube_gateway_table_capacity", float64(t.Capacity), name)
	}

	c.putShortcuts(put)

	runs, err := bpf.Runs(c.s.PinDir)
	if err != nil {
		c.s.Log.Debug("no statistics of programs", "error", err)
	}

	for _, r := range runs {
		put("ovnkube_gateway_program_runs_total", float64(r.Count), r.Program)
		put("ovnkube_gateway_program_run_seconds_total", r.Time.Seconds(), r.Program)
	}
}

// putServices sends the counters of Services. It reuses the labels of the last scrape, as there may
// be thousands.
func (c *Collector) putServices(put putter, ch chan<- prometheus.Metric) {
	if c.s.Services == nil {
		return
	}

	counts, uncounted, err := c.s.Services()
	if err != nil {
		c.s.Log.Debug("no counters of services", "error", err)
		return
	}

	put("ovnkube_gateway_uncounted_service_ports", float64(uncounted))

	const packets, bytes = "ovnkube_gateway_service_packets_total", "ovnkube_gateway_service_bytes_total"

	c.mu.Lock()
	defer c.mu.Unlock()

	lastLabels := c.services
	c.services = make(map[bpf.ServicePort]metric.Labels, len(counts))

	for _, n := range counts {
		labels := lastLabels[n.ServicePort]
		if labels == nil {
			labels = c.set.Labels(packets, n.Namespace, n.Name, strconv.Itoa(int(n.Port)),
				service.ProtocolName(n.Proto))
		}

		c.services[n.ServicePort] = labels
		c.set.PutLabeled(ch, packets, float64(n.Packets), labels)
		c.set.PutLabeled(ch, bytes, float64(n.Bytes), labels)
	}
}

// putShortcuts sends the counts of shortcuts, or nothing while they are off.
func (c *Collector) putShortcuts(put putter) {
	counts, err := bpf.ReadShortcutCounts(c.s.PinDir)
	if err != nil {
		if !errors.Is(err, bpf.ErrNoShortcuts) {
			c.s.Log.Debug("no counts of shortcuts", "error", err)
		}

		return
	}

	put("ovnkube_gateway_shortcut_created_total", float64(counts.Created))
	put("ovnkube_gateway_shortcut_renewals_total", float64(counts.Renewed))
	put("ovnkube_gateway_shortcut_evictions_total", float64(c.evictions.next(counts)))
	put("ovnkube_gateway_shortcut_unseen_total", float64(counts.Unseen))
	put("ovnkube_gateway_shortcut_mismatch_total", float64(counts.Mismatched))
	put("ovnkube_gateway_shortcut_epochs_total", float64(counts.Epoch))
	put("ovnkube_gateway_shortcut_pods", float64(counts.Pods))
}

// evictions makes a counter, which starts at zero and never decreases, of ShortcutCounts.Evicted,
// which may decrease. Its methods are safe for concurrent use.
type evictions struct {
	mu      sync.Mutex // guards the following fields
	known   bool       // next was called
	highest uint64     // the largest Evicted since the state was pinned
	total   uint64     // evictions since the first call
}

// next returns the evictions since the first call. c has the present counts.
func (e *evictions) next(c bpf.ShortcutCounts) uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()

	now := c.Evicted()
	switch {
	case !e.known, c.Created < e.highest: // the first call, or the state was pinned anew
		e.known, e.highest = true, now
	case now > e.highest:
		e.total += now - e.highest
		e.highest = now
	}

	return e.total
}
