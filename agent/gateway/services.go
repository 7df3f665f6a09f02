package gateway

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
	"github.com/ovn-ebpf/ovn-ebpf/agent/service"
	"github.com/ovn-ebpf/ovn-ebpf/bpf"
	"github.com/ovn-ebpf/ovn-ebpf/loop"
	model "github.com/ovn-ebpf/ovn-ebpf/service"
	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// Services plans the frontends of Services and keeps their tables: those of the programs, those of
// the host's sockets, and the map from flow counters to Services.
//
// The gateway's loop makes the first plan and the first write. After that a separate loop writes
// the changes of Services, with pauses in proportion to the work. It defers to the gateway's loop
// when more than these tables changes: a Service address, a flow, or after an error.
//
// Exported methods are safe for concurrent use.
type Services struct {
	s        Settings
	log      *slog.Logger
	record   *recorder
	loopWake loop.Signal
	wake     loop.Signal   // triggers the gateway's loop
	changed  func()        // called when the result of Redirects changes
	flows    *flowServices // nil where flows do not count Services

	untranslated *untranslated

	counting  atomic.Pointer[bpf.Gateway] // programs that count
	redirects atomic.Pointer[map[verdict.ServiceKey]service.Redirect]

	mu               sync.Mutex // guards the fields below, except the changed keys of serving
	serving          *serving
	host             hostTables
	frontendPrograms *bpf.Gateway // programs with the frontends
	current          bool         // the plans are completely written
	// worked is the time that planning and writing have taken since the last pause was over, and
	// lastEnded is when they ended last.
	worked    time.Duration
	lastEnded time.Time
}

// hostTables are the programs for the host's own sockets.
type hostTables struct {
	sock   *bpf.Sock
	lookup *bpf.Lookup
	tried  time.Time
	// settled reports that the tables of the host's sockets were complete once, or are known not to
	// work.
	settled bool
}

// Changed must be called when the objects of a key have changed.
func (s *Services) Changed(k service.Key) {
	s.serving.changed(k)
	s.loopWake.Trigger()
}

// Refused reports whether an object is not served because of a budget.
func (s *Services) Refused(k service.Key) bool {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.serving.accounts.Refused(k) != nil
}

// Redirects returns, in local gateway mode, the backends to which the host's nftables redirect
// packets for each frontend. The map is immutable.
func (s *Services) Redirects() map[verdict.ServiceKey]service.Redirect {
	if r := s.redirects.Load(); r != nil {
		return *r
	}

	return nil
}

// Counts returns the packets that arrived at the uplink for each Service port. uncounted is the
// number of ports beyond the limit.
func (s *Services) Counts() (counts []bpf.ServiceCount, uncounted int, err error) {
	if s.flows != nil {
		return s.flows.counts(s.readFlows)
	}

	if p := s.counting.Load(); p != nil {
		return p.ServiceCounts()
	}

	return nil, 0, nil
}

// Frontends returns the Service port of every frontend, counted or beyond the limit. It is empty
// where Services are not counted.
func (s *Services) Frontends() map[verdict.ServiceKey]bpf.ServicePort {
	if s.flows != nil {
		return s.flows.frontends()
	}

	if p := s.counting.Load(); p != nil {
		return p.Frontends()
	}

	return nil
}

// run writes changes of Services until ctx ends.
func (s *Services) run(ctx context.Context) error {
	return loop.Run(ctx, loop.Options{Name: "services", Wake: s.loopWake, Apply: func(ctx context.Context) error {
		if s.rest(ctx) && !s.update() {
			s.wake.Trigger()
		}

		return nil
	}, Log: s.log})
}

// Limits of the time that changes of Services take. Services with thousands of frontends that come
// and go again and again would keep the node's CPUs busy otherwise, and pods would start late.
const (
	restFactor  = 15 // a pause is this much longer than the work before it
	longestRest = time.Second
)

// rest waits until the tables may change again, and returns false when ctx ends. Changes that come
// meanwhile are merged. The time since the last work counts, so a change after a quiet time does
// not wait.
func (s *Services) rest(ctx context.Context) bool {
	s.mu.Lock()
	end := s.restEnd()
	s.mu.Unlock()

	return ctx.Err() == nil && loop.Pause(ctx, time.Until(end))
}

// restEnd returns when the tables may change again. The caller must hold the lock.
func (s *Services) restEnd() time.Time { return s.lastEnded.Add(min(restFactor*s.worked, longestRest)) }

// work counts the time that planning or writing takes. The caller must hold the lock until it calls
// the result.
func (s *Services) work() (end func()) {
	began := time.Now()
	if !began.Before(s.restEnd()) {
		s.worked = 0
	}

	return func() {
		s.lastEnded = time.Now()
		s.worked += s.lastEnded.Sub(began)
	}
}

// update plans and writes the changes. It returns false if a round of the gateway must do it.
func (s *Services) update() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.work()()

	if !s.current || s.s.CountsFlows() {
		return false
	}

	before := s.serving.vips()
	s.serving.plan(s.serving.node)
	s.publishRedirects()

	// The programs must learn an address before its ports.
	if !s.s.NoGateway && !slices.Equal(before, s.serving.vips()) {
		s.current = false
		return false
	}

	return s.writeTables() == nil // on an error the gateway's round writes again and reports
}

// plan plans everything for a node. The plans are kept until write.
func (s *Services) plan(h Host, n Node, f facts) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.work()()

	s.current = false
	s.serving.plan(s.serving.source.serviceNode(h, n, s.s, f))
	s.publishRedirects()
}

// Redirected must be called in local gateway mode when the host's nftables redirect UDP frontends
// to other destinations than before. Connections to others are deleted.
func (s *Services) Redirected(to map[netip.AddrPort][]netip.AddrPort) { s.untranslated.redirected(to) }

// publishRedirects publishes the redirects if they changed.
func (s *Services) publishRedirects() {
	if !s.s.Local || !s.serving.known {
		return
	}

	now := s.serving.redirects()
	if maps.EqualFunc(now, s.Redirects(), service.Redirect.Equal) {
		s.redirects.CompareAndSwap(nil, &now)
		return
	}

	s.redirects.Store(&now)
	s.changed()
}

// vips returns the Service addresses that OVN owns.
func (s *Services) vips() []netip.Addr {
	if s.s.NoGateway {
		return nil
	}

	s.mu.Lock()
	defer s.mu.Unlock()

	return s.serving.vips()
}

// frontends returns all frontends, for a backend without tables.
func (s *Services) frontends() map[verdict.ServiceKey]verdict.ServiceOwner {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.serving.frontends()
}

// settled reports whether the host's sockets reach Services without a route.
func (s *Services) settled() bool {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.host.settled
}

// openHost loads missing programs for the host's sockets, at most once per resync. behind includes
// the lookup of listeners behind externalTrafficPolicy Local. Only the programs at the uplink use
// that one, and its tables exist already.
func (s *Services) openHost(behind bool) {
	s.mu.Lock()
	defer s.mu.Unlock()

	x := &s.host
	if s.s.NoEBPF != "" || x.sock != nil && (x.lookup != nil || !behind) || time.Since(x.tried) < resync {
		return
	}

	x.tried = time.Now()

	if x.sock == nil {
		options := bpf.CgroupOptions{PinDir: s.s.PinDir, CgroupPath: s.s.CgroupPath, Sizes: s.s.sizes, Log: s.log}
		sock, err := bpf.OpenSock(options)
		s.record.degraded(partSockets, err)

		if err == nil {
			x.sock = sock
		}
	}

	if x.lookup == nil && behind {
		lookup, err := bpf.OpenLookup(bpf.LookupOptions{PinDir: s.s.PinDir, Sizes: s.s.sizes, Log: s.log})
		s.record.degraded(partLookup, err)

		if err == nil {
			x.lookup = lookup
		}
	}
}

// write updates the tables to the plans. programs are those at the uplink, or nil.
func (s *Services) write(programs *bpf.Gateway) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.work()()

	s.frontendPrograms = programs
	s.counting.Store(programs)

	return s.writeTables()
}

// writeTables writes the changes. The gateway's tables and those of the host's sockets are
// independent: an error in one does not stop the other.
func (s *Services) writeTables() (err error) {
	x := &s.host
	defer func() {
		x.settled = x.settled || s.serving.known // a failure has been recorded as degraded by now
		s.current = err == nil && s.serving.known
	}()

	err = s.serving.write(writers{gateway: s.frontendPrograms, sock: x.sock, lookup: x.lookup, flows: s.flows})
	s.recordUnwritten()
	s.record.degraded(partDestroy, s.serving.destroy(x.sock))

	if x.sock == nil {
		return err
	}

	if theirs := (sockError{}); errors.As(err, &theirs) {
		s.record.degraded(partSockets, theirs)
		x.sock.Close()
		x.sock = nil

		return s.serving.write(writers{gateway: s.frontendPrograms, lookup: x.lookup, flows: s.flows})
	}

	if !s.serving.known {
		return err // attached programs continue with their tables
	}

	attached, sockErr := x.sock.Attached()
	if sockErr == nil && !attached {
		sockErr = x.sock.Attach()
	}

	s.record.degraded(partSockets, sockErr)

	return err
}

// recordUnwritten records the entries that the tables have no room for.
func (s *Services) recordUnwritten() {
	if s.frontendPrograms != nil {
		s.record.unwritten(s.frontendPrograms.Unwritten())
	}

	if s.host.sock != nil {
		s.record.unwritten(s.host.sock.Unwritten())
	}

	if s.host.lookup != nil {
		s.record.unwritten(s.host.lookup.Unwritten())
	}
}

// await returns an error while writing would replace a working backend of an earlier agent before
// any Service is known. The new backend would pass connections to NodePorts to the host, which
// refuses them. It does not wait when:
//
//   - programs replace programs: they continue with the pinned tables
//   - the agent's flows are missing: then nothing decides about packets, and the host takes
//     precedence
func (s *Services) await(ctx context.Context) error {
	if _, known := s.serving.source.Keys(); known {
		return nil
	}

	first, others, err := ovs.OwnFlows(ctx, s.s.OVSRunDir, s.s.Bridge)
	if err != nil {
		return nil // no bridge, or ovs-vswitchd is down: no backend is active
	}

	byPrograms, byFlows := first > 0 && deciding(s.s.PinDir), others > 0
	if byFlows && !byPrograms || byPrograms && s.s.Backend == OpenFlow {
		return errors.New("Services are not known yet: the backend of an earlier agent stays active until then")
	}

	return nil
}

// close leaves attachments in place. Nothing is written afterwards.
func (s *Services) close() {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.host.sock != nil {
		s.host.sock.Close()
	}

	if s.host.lookup != nil {
		s.host.lookup.Close()
	}

	s.host, s.current = hostTables{}, false
}

// serviceNode returns the node as input of the plans.
func (s Source) serviceNode(h Host, n Node, set Settings, f facts) service.Node {
	ephemeral := set.ephemeral(h)

	var control model.ControlPlane
	if s.ControlPlane != nil {
		control = s.ControlPlane()
	}

	return service.Node{
		Ephemeral: ephemeral, UDP: openUDP(h, ephemeral), TCP: loopbackTCP(h, ephemeral),
		Name: s.Node, Zone: s.Zone(), NodePorts: set.NodePorts,
		Local: set.Local, Lookup: set.Backend == EBPF && set.NoEBPF == "",
		Addresses: nodeAddrs(n), Own: ownAddrs(h, set), Hosts: f.hosts,
		Cluster: model.Config{
			Pods: set.PodCIDRs, Services: set.ServiceCIDRs, Join: f.joins,
			ExternalIPs: set.ExternalIPs, ControlPlane: control, TrustEndpointSlices: set.TrustSlices,
		},
	}
}
