package gateway

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
	"github.com/ovn-ebpf/ovn-ebpf/bpf"
	"github.com/ovn-ebpf/ovn-ebpf/loop"
	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

const (
	forgetPause = 100 * time.Millisecond // between two changes of the epoch
	// revalidation is when OVS has applied a change of flows to those of its datapath at the latest.
	revalidation  = time.Second
	settingsRetry = time.Second // after an error
	// Sources of observers and faults.
	inOVSDB   = "OVSDB"
	inFlows   = "flows of " + ovs.IntegrationBridge
	inPins    = "attached programs"
	inEpoch   = "epoch"
	inEntries = "entries of pods that are gone"
)

// NoShortcuts returns why no pod of the node can have shortcuts with these settings, or "".
func (s Settings) NoShortcuts() string {
	s = s.Defaulted()
	switch {
	case !s.Shortcuts:
		return "off"
	case s.None:
		return "the node has no gateway"
	case s.NoEBPF != "":
		return "no eBPF: " + s.NoEBPF
	case s.Backend != EBPF:
		return "backend " + string(s.Backend)
	case s.Layout == verdict.Dedicated:
		return "layout dedicated"
	case s.Local:
		return "local gateway mode"
	case s.VLAN != 0:
		return "gateway VLAN"
	case s.Userspace():
		return "userspace datapath"
	}

	return ""
}

// PodPort is the host's end of a pod's interface.
type PodPort struct {
	Ifindex, MTU int
	Limited      bool // it has a bandwidth limit, which is set on this device
}

// Pods keeps the programs of shortcuts on the pods' devices. A failure costs a pod its shortcuts and
// nothing else. Its methods are safe for concurrent use.
type Pods struct {
	s      Settings
	ovs    *ovs.Client
	log    *slog.Logger
	record *recorder // set by New

	mu        sync.Mutex   // guards the fields below, and calls of gw
	gw        *bpf.Gateway // nil before loading
	ports     map[int]PodPort
	observers map[string]string // what looks at single packets, or may do so, by source
	faults    map[string]error  // by source
}

// NewPods returns the part for Options. Until flows and settings are known, no pod has shortcuts.
func NewPods(s Settings, o *ovs.Client, log *slog.Logger) *Pods {
	return &Pods{
		s: s, ovs: o, log: log, ports: make(map[int]PodPort), faults: make(map[string]error),
		observers: map[string]string{inFlows: ovs.NotRead, inOVSDB: ovs.NotRead},
	}
}

// Add attaches the program to a new pod's device, or remembers it until the programs are loaded.
func (p *Pods) Add(port PodPort) {
	if p.s.NoShortcuts() != "" {
		return
	}

	p.mu.Lock()
	defer p.mu.Unlock()

	p.ports[port.Ifindex] = port
	if p.gw != nil {
		p.attach(port)
	}

	p.report()
}

// Sync makes the programs cover the given devices. Others stay as long as they exist: one that has
// come meanwhile may be missing from the list, and the device of a pod that has left is removed.
func (p *Pods) Sync(ports []PodPort) {
	if p.s.NoShortcuts() != "" {
		return
	}

	p.mu.Lock()
	defer p.mu.Unlock()

	for _, port := range ports {
		p.ports[port.Ifindex] = port
	}

	p.apply()
	p.report()
}

// use continues with the loaded programs.
func (p *Pods) use(gw *bpf.Gateway) {
	if p.s.NoShortcuts() != "" {
		return
	}

	p.mu.Lock()
	defer p.mu.Unlock()

	p.gw = gw
	p.fault(inPins, gw.AdoptPods())
	p.apply()
}

// apply attaches and detaches what differs.
func (p *Pods) apply() {
	if p.gw == nil {
		return
	}

	var gone []int

	for ifindex, port := range p.ports {
		if _, err := net.InterfaceByIndex(ifindex); err == nil {
			p.attach(port)
			continue
		}

		delete(p.ports, ifindex)
		p.fault(device(ifindex), p.gw.DetachPod(ifindex))
		gone = append(gone, ifindex)
	}

	attached, err := p.gw.Pods()
	p.fault(inPins, err)

	for _, ifindex := range attached {
		if _, known := p.ports[ifindex]; known {
			continue
		}

		if _, err := net.InterfaceByIndex(ifindex); err != nil {
			p.fault(device(ifindex), p.gw.DetachPod(ifindex))
			gone = append(gone, ifindex)
		} else if len(p.observers) > 0 { // of an earlier load, and not listed yet
			p.fault(device(ifindex), p.gw.AttachPod(ifindex, 0, false))
		}
	}

	p.fault(inEntries, p.gw.DeleteShortcuts(gone))
}

func (p *Pods) attach(port PodPort) {
	err := p.gw.AttachPod(port.Ifindex, port.MTU, !port.Limited && len(p.observers) == 0)
	p.fault(device(port.Ifindex), err)
}

func device(ifindex int) string { return "interface " + strconv.Itoa(ifindex) }

// fault records the error of a source; nil: it works. The part is degraded by the errors of all.
func (p *Pods) fault(source string, err error) {
	if p.faults[source] = err; err == nil {
		delete(p.faults, source)
	}

	var errs []error
	for _, source := range slices.Sorted(maps.Keys(p.faults)) {
		errs = append(errs, p.faults[source])
	}

	p.record.degraded(partShortcuts, errors.Join(errs...))
}

// failed records the error of what is followed.
func (p *Pods) failed(source string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()

	p.fault(source, err)
}

// observe records what looks at single packets: no pod has shortcuts while it does.
func (p *Pods) observe(source, what string) {
	p.mu.Lock()
	defer p.mu.Unlock()

	if p.observers[source] == what {
		return
	}

	before := len(p.observers)
	if p.observers[source] = what; what == "" {
		delete(p.observers, source)
	}

	p.report()

	if (before == 0) != (len(p.observers) == 0) {
		p.log.Info("shortcuts of pods changed",
			"observer", source, "what", what, "allowed", len(p.observers) == 0)
		p.apply()
	}
}

// report records why pods have no shortcuts.
func (p *Pods) report() {
	var s ShortcutStats
	for _, source := range slices.Sorted(maps.Keys(p.observers)) {
		s.Causes = append(s.Causes, cause(source, p.observers[source]))
	}

	for _, port := range p.ports {
		if port.Limited {
			s.Limited++
		}
	}

	p.record.setShortcuts(s)
}

// cause names an observer. There are few different ones, as they are labels of a metric.
func cause(source, what string) string {
	switch {
	case what == ovs.NotRead:
		return source + " " + what
	case source == inFlows:
		return source + " log, sample, meter or queue packets, or are of stateless ACLs"
	}

	return what
}

// forget makes every connection pass OVS again.
func (p *Pods) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()

	if p.gw != nil {
		p.fault(inEpoch, p.gw.ForgetShortcuts())
	}
}

// Run follows OVN's flows and the bridges' observers until ctx ends.
func (p *Pods) Run(ctx context.Context) error {
	if p.s.NoShortcuts() != "" {
		return nil
	}

	changed := loop.NewSignal()
	watch := &ovs.FlowWatch{
		RunDir:   p.s.OVSRunDir,
		Bridge:   ovs.IntegrationBridge,
		Observed: func(flow string) { p.observe(inFlows, flow) },
		Failed:   func(err error) { p.failed(inFlows, err) },
		Changed:  changed.Trigger,
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return watch.Run(ctx) })
	group.Go(func() error { return p.follow(ctx, changed) })
	group.Go(func() error { return p.watchSettings(ctx) })

	return group.Wait()
}

// follow raises the epoch after changes of flows, at most ten times per second. It raises it once more
// when no datapath flow of OVS is older than the last change: a shortcut may have been learned from
// such a flow.
func (p *Pods) follow(ctx context.Context, changed loop.Signal) error {
	var settled <-chan time.Time

	for {
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
			settled = time.After(revalidation)
		case <-settled:
			settled = nil
		}

		p.forget()

		select {
		case <-ctx.Done():
			return nil
		case <-time.After(forgetPause):
		}
	}
}

// watchSettings reads mirrors, sFlow, NetFlow and IPFIX of the bridges, and hw-offload.
func (p *Pods) watchSettings(ctx context.Context) error {
	wake := loop.NewSignal()
	settings := func(table, _ string) bool { return table == "Bridge" || table == "Open_vSwitch" }

	defer p.ovs.Watch(settings, wake)()

	for {
		what, err := p.ovs.Observed(ctx, ovs.IntegrationBridge, p.s.Bridge)
		if ctx.Err() != nil {
			return nil
		}

		var retry <-chan time.Time
		if err != nil {
			what, retry = ovs.NotRead, time.After(settingsRetry)
		}

		p.failed(inOVSDB, err)
		p.observe(inOVSDB, what)

		select {
		case <-ctx.Done():
			return nil
		case <-wake:
		case <-retry:
		}
	}
}
