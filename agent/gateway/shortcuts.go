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

	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
	"github.com/ovn-ebpf/ovn-ebpf/bpf"
	"github.com/ovn-ebpf/ovn-ebpf/loop"
	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

const (
	forgetPause   = 100 * time.Millisecond // between two changes of the epoch, see followFlows
	revalidation  = time.Second            // how long OVS may use cached datapath flows after a change of flows
	settingsRetry = time.Second            // after an error of watchSettings
)

// Sources: where the manager found an observer, or which of its tasks failed. The devices of pods
// are sources, too (sourceOf).
const (
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
	case s.NoGateway:
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

// ShortcutManager keeps the programs of shortcuts on the pods' devices. With a shortcut, packets of
// an established connection of a pod bypass OVS. A failure costs a pod its shortcuts and nothing
// else. Its methods are safe for concurrent use. They must not be called before New, which connects
// the manager to a Gateway.
//
// The programs make the shortcuts (bpf/past.h). The manager decides when they must not:
//
//   - While OVS has an observer, no pod has shortcuts. An observer looks at single packets, such as
//     a mirror or a flow that logs. As long as the manager cannot read flows or settings, it
//     assumes one.
//   - A change of OVN's flows increments the epoch, a number that all valid shortcuts carry. Every
//     shortcut is then void, and connections pass OVS again until they get a new one.
//   - Idle connections must stay in conntrack (idle.go). While the manager cannot set its timeouts, no
//     pod has shortcuts.
//   - A pod with a bandwidth limit has no shortcuts. With one, packets to the pod would skip the
//     queue of an ingress limit, which is at the host's end. An egress limit would not matter,
//     because its queue is in the pod. But link.PodDevice does not distinguish the two.
type ShortcutManager struct {
	s      Settings
	ovs    *ovs.Client
	log    *slog.Logger
	record *recorder // set by New

	mu        sync.Mutex             // guards the fields below, and calls of gw
	gw        *bpf.Gateway           // nil before loading
	ports     map[int]link.PodDevice // pods' devices, by interface index
	observers map[string]string      // by source: the observer, or why none can be excluded
	faults    map[string]error       // by source
}

// NewShortcutManager returns the manager for Options. Until flows and settings are known, no pod
// has shortcuts.
func NewShortcutManager(s Settings, o *ovs.Client, log *slog.Logger) *ShortcutManager {
	return &ShortcutManager{
		s: s, ovs: o, log: log, ports: make(map[int]link.PodDevice), faults: make(map[string]error),
		observers: map[string]string{inFlows: ovs.NotRead, inOVSDB: ovs.NotRead},
	}
}

// Add attaches the program to a new pod's device, or remembers it until the programs are loaded.
func (m *ShortcutManager) Add(port link.PodDevice) {
	if m.s.NoShortcuts() != "" {
		return
	}

	m.mu.Lock()
	defer m.mu.Unlock()

	m.ports[port.Ifindex] = port
	if m.gw != nil {
		m.attachPod(port)
	}

	m.recordStats()
}

// Sync makes the programs cover the given devices. Other devices stay covered as long as they
// exist, because a device that was added meanwhile may be missing from the list.
func (m *ShortcutManager) Sync(ports []link.PodDevice) {
	if m.s.NoShortcuts() != "" {
		return
	}

	m.mu.Lock()
	defer m.mu.Unlock()

	for _, port := range ports {
		m.ports[port.Ifindex] = port
	}

	m.syncAttachments()
	m.recordStats()
}

// usePrograms sets the loaded programs. It attaches the program for pods to all known devices, and
// to those on which an earlier agent has left its program.
func (m *ShortcutManager) usePrograms(gw *bpf.Gateway) {
	if m.s.NoShortcuts() != "" {
		return
	}

	m.mu.Lock()
	defer m.mu.Unlock()

	m.gw = gw
	m.setFaultLocked(inPins, gw.AdoptPods())
	m.syncAttachments()
}

// syncAttachments attaches the program to the known devices, and detaches it from devices that are
// gone. The caller must hold mu.
func (m *ShortcutManager) syncAttachments() {
	if m.gw == nil {
		return
	}

	attached, err := m.gw.Pods()
	m.setFaultLocked(inPins, err)

	devices := slices.AppendSeq(attached, maps.Keys(m.ports))
	slices.Sort(devices)

	var gone []int

	for _, ifindex := range slices.Compact(devices) {
		_, err := net.InterfaceByIndex(ifindex)
		port, known := m.ports[ifindex]

		switch {
		case err != nil:
			delete(m.ports, ifindex)
			m.setFaultLocked(sourceOf(ifindex), m.gw.DetachPod(ifindex))
			gone = append(gone, ifindex)
		case known:
			m.attachPod(port)
		case len(m.observers) > 0:
			// The program of an earlier agent, for a pod that is not listed yet. Turn its shortcuts
			// off; its MTU is not known and not needed.
			m.setFaultLocked(sourceOf(ifindex), m.gw.AttachPod(ifindex, 0, false))
		}
	}

	m.setFaultLocked(inEntries, m.gw.DeleteShortcuts(gone))
}

// attachPod attaches the program, or updates what it may do. The caller must hold mu.
func (m *ShortcutManager) attachPod(port link.PodDevice) {
	err := m.gw.AttachPod(port.Ifindex, port.MTU, !port.Limited && len(m.observers) == 0)
	m.setFaultLocked(sourceOf(port.Ifindex), err)
}

// sourceOf names a device as a source of faults.
func sourceOf(ifindex int) string { return "interface " + strconv.Itoa(ifindex) }

// setFaultLocked records the error of a source; nil: it works. The fault of the part consists of
// the errors of all sources. The caller must hold mu.
func (m *ShortcutManager) setFaultLocked(source string, err error) {
	if m.faults[source] = err; err == nil {
		delete(m.faults, source)
	}

	var errs []error
	for _, source := range slices.Sorted(maps.Keys(m.faults)) {
		errs = append(errs, m.faults[source])
	}

	m.record.setFault(partShortcuts, errors.Join(errs...))
}

// setFault is setFaultLocked for callers without the lock.
func (m *ShortcutManager) setFault(source string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()

	m.setFaultLocked(source, err)
}

// setObserver records the observer of a source, or "" for none, and turns shortcuts on or off.
func (m *ShortcutManager) setObserver(source, what string) {
	m.mu.Lock()
	defer m.mu.Unlock()

	if m.observers[source] == what {
		return
	}

	wereAllowed := len(m.observers) == 0

	m.observers[source] = what
	if what == "" {
		delete(m.observers, source)
	}

	m.recordStats()

	areAllowed := len(m.observers) == 0
	if areAllowed != wereAllowed {
		m.log.Info("shortcuts of pods changed", "observer", source, "what", what, "allowed", areAllowed)
		m.syncAttachments()
	}
}

// recordStats records why pods have no shortcuts. The caller must hold mu.
func (m *ShortcutManager) recordStats() {
	var s ShortcutStats
	for _, source := range slices.Sorted(maps.Keys(m.observers)) {
		s.Causes = append(s.Causes, cause(source, m.observers[source]))
	}

	for _, port := range m.ports {
		if port.Limited {
			s.Limited++
		}
	}

	m.record.change(func(stats *Stats) { stats.Shortcuts = &s })
}

// cause returns the name of an observer for Stats. A metric has it as a label, so all flows have
// the same name. Otherwise, each flow would be a time series.
func cause(source, what string) string {
	switch {
	case what == ovs.NotRead:
		return source + " " + what
	case source == inFlows:
		return source + " log, sample, meter or queue packets, or are of stateless ACLs"
	}

	return what
}

// forgetShortcuts makes every connection pass OVS again.
func (m *ShortcutManager) forgetShortcuts() {
	m.mu.Lock()
	defer m.mu.Unlock()

	if m.gw != nil {
		m.setFaultLocked(inEpoch, m.gw.ForgetShortcuts())
	}
}

// Run follows OVN's flows and the bridges' observers, and keeps the timeouts of conntrack, until ctx
// ends.
func (m *ShortcutManager) Run(ctx context.Context) error {
	if m.s.NoShortcuts() != "" {
		if err := releaseIdleConnections(m.s.RunDir); err != nil {
			m.log.Warn("timeout of conntrack is not restored", "error", err)
		}

		return nil
	}

	changed := loop.NewSignal()
	watch := &ovs.FlowWatch{
		RunDir:   m.s.OVSRunDir,
		Bridge:   ovs.IntegrationBridge,
		Observed: func(flow string) { m.setObserver(inFlows, flow) },
		Failed:   func(err error) { m.setFault(inFlows, err) },
		Changed:  changed.Trigger,
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return watch.Run(ctx) })
	group.Go(func() error { return m.followFlows(ctx, changed) })
	group.Go(func() error { return m.watchSettings(ctx) })
	group.Go(func() error { return m.keepTimeouts(ctx) })

	return group.Wait()
}

// followFlows increments the epoch after changes of flows, at most ten times per second. It does so
// once more when no datapath flow of OVS is older than the last change, because a shortcut may have
// been learned from such a flow.
func (m *ShortcutManager) followFlows(ctx context.Context, changed loop.Signal) error {
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

		m.forgetShortcuts()

		if !loop.Pause(ctx, forgetPause) {
			return nil
		}
	}
}

// watchSettings reads mirrors, sFlow, NetFlow and IPFIX of the bridges, and hw-offload.
func (m *ShortcutManager) watchSettings(ctx context.Context) error {
	wake := loop.NewSignal()
	settings := func(table, _ string) bool { return table == "Bridge" || table == "Open_vSwitch" }

	defer m.ovs.Watch(settings, wake)()

	for {
		what, err := m.ovs.PacketObserver(ctx, ovs.IntegrationBridge, m.s.Bridge)
		if ctx.Err() != nil {
			return nil
		}

		var retry <-chan time.Time
		if err != nil {
			what, retry = ovs.NotRead, time.After(settingsRetry)
		}

		m.setFault(inOVSDB, err)
		m.setObserver(inOVSDB, what)

		select {
		case <-ctx.Done():
			return nil
		case <-wake:
		case <-retry:
		}
	}
}
