package agent

import (
	"context"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/agent/gateway"
	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/agent/metrics"
	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
	"github.com/ovn-ebpf/ovn-ebpf/agent/page"
	"github.com/ovn-ebpf/ovn-ebpf/agent/podnet"
	"github.com/ovn-ebpf/ovn-ebpf/bpf"
)

// scrapeWait bounds the wait of a scrape for a daemon that does not answer.
const scrapeWait = time.Second

// source returns the inputs of /metrics. A nil function means that the node has no such metrics.
func (a *agent) source() metrics.Source {
	s := metrics.Source{
		PinDir:   a.cfg.PinDir,
		Stats:    a.gateway.Stats,
		Ready:    func() bool { return len(a.ready.Missing()) == 0 },
		Drained:  a.cluster.Drained,
		Log:      a.log,
		Services: a.gateway.Services().Counts,
		Failures: conntrackFailures(a.cfg.Settings),
		Info: metrics.Info{
			Backend: string(a.cfg.Backend), Layout: layoutName(a.cfg.Settings), Datapath: a.cfg.Datapath,
			Uplink: a.cfg.Uplink, NoEBPF: a.cfg.NoEBPF,
		},
		Datapath: atScrape(func(ctx context.Context) (ovs.DatapathStats, error) {
			return ovs.ReadDatapathStats(ctx, a.cfg.OVSRunDir)
		}),
		Southbound: atScrape(func(ctx context.Context) (bool, error) {
			return ovs.ControllerConnected(ctx, a.cfg.OVNRunDir)
		}),
	}
	if a.cfg.CountPods > 0 {
		s.Pods = a.meter().Read
	}

	if a.cfg.CountsFlows() {
		s.Counters = atScrape(a.gateway.Counters)
	}

	if a.shadow != nil {
		s.Shadow = a.shadow.Stats
	}

	s.HostSent = a.hostSent

	return s
}

// layoutName returns the layout as shown in metrics: "none" for a node without a gateway.
func layoutName(s gateway.Settings) string {
	if s.NoGateway {
		return "none"
	}

	return s.Layout.String()
}

// meter returns the meter of pods' traffic. Shortcuts deliver packets past the counters of pods'
// devices, so the meter adds these.
func (a *agent) meter() *podnet.Meter {
	m := &podnet.Meter{Dir: podRecords(a.cfg), Max: a.cfg.CountPods}
	if a.cfg.NoShortcuts() == "" {
		m.Uncounted = func(ifindex int) (packets, bytes uint64) {
			packets, bytes, err := bpf.PodReceived(a.cfg.PinDir, ifindex)
			if err != nil {
				a.log.Debug("cannot read what a pod received", "ifindex", ifindex, "error", err)
			}

			return packets, bytes
		}
	}

	return m
}

// atScrape returns a function for a scrape. A scrape has no context, so read gets a context that ends
// after scrapeWait.
func atScrape[T any](read func(context.Context) (T, error)) func() (T, error) {
	return func() (T, error) {
		ctx, cancel := context.WithTimeout(context.Background(), scrapeWait)
		defer cancel()

		return read(ctx)
	}
}

// pageSource returns the inputs of the status page.
func (a *agent) pageSource() page.Source {
	s := a.cfg.Settings
	decisions := atScrape(a.gateway.Counters) // of programs or flows

	counters := decisions
	if a.hostSent != nil {
		counters = func() ([]bpf.Counter, error) { return a.hostSent.Append(decisions) }
	}

	return page.Source{
		Info: page.Info{
			Node:     a.cfg.NodeName,
			Backend:  string(s.Backend),
			Layout:   layoutName(s),
			Datapath: s.Datapath,
			Uplink:   s.Uplink,
			Bridge:   s.Bridge,
		},
		Counters: counters, Stats: a.gateway.Stats, Frontends: a.gateway.Services().Frontends,
	}
}

// conntrackFailures returns a reader of conntrack's failures, or nil on the userspace datapath,
// which does not count them.
func conntrackFailures(s gateway.Settings) func() (map[string]uint64, error) {
	if s.Userspace() {
		return nil
	}

	return link.ConntrackFailures
}
