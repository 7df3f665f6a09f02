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

	"github.com/ovn-ebpf/ovn-ebpf/agent/loop"
	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
	"github.com/ovn-ebpf/ovn-ebpf/agent/service"
	"github.com/ovn-ebpf/ovn-ebpf/bpf"
	model "github.com/ovn-ebpf/ovn-ebpf/service"
)

// Services plans the front ends of Services and keeps the tables that have them: the programs',
// those of the host's sockets, and which Service the flows' counters are for.
//
// The gateway's loop plans for a node and writes for the first time. After that a loop of its own
// writes what a changed Service changes. It leaves a round to the gateway's loop where more than
// these tables changes: an address of a Service, a flow, or an error.
//
// Exported methods are safe for concurrent use.
type Services struct {
	s       Settings
	log     *slog.Logger
	record  *recorder
	own     loop.Signal
	wake    loop.Signal   // of the gateway's loop
	changed func()        // called when Redirects returns something else
	flows   *flowServices // nil: flows count nothing of Services

	counting  atomic.Pointer[bpf.Gateway] // programs that count
	redirects atomic.Pointer[map[bpf.ServiceKey]service.Redirect]

	mu      sync.Mutex // guards what follows, but not the changed keys of serving
	serving *serving
	host    hostTables
	front   *bpf.Gateway // programs that have the front ends
	current bool         // everything planned was written
}

// hostTables are the programs for the host's own sockets.
type hostTables struct {
	sock   *bpf.Sock
	lookup *bpf.Lookup
	tried  time.Time
	// settled: the tables of the host's sockets have had all Services once, or
	// are known not to work.
	settled bool
}

// Changed must be called when the objects of a key have changed.
func (s *Services) Changed(k service.Key) {
	s.serving.changed(k)
	s.own.Trigger()
}

// Redirects returns, in local gateway mode, the backends to which the host's nftables send what
// arrives at a front end. The map does not change.
func (s *Services) Redirects() map[bpf.ServiceKey]service.Redirect {
	if r := s.redirects.Load(); r != nil {
		return *r
	}
	return nil
}

// Counts returns what has arrived at the uplink for ports of Services, and how many of these are
// not counted for want of room.
func (s *Services) Counts() (counts []bpf.ServiceCount, uncounted int, err error) {
	if s.flows != nil {
		return s.flows.counts(s.readFlows)
	}
	if p := s.counting.Load(); p != nil {
		return p.ServiceCounts()
	}
	return nil, 0, nil
}

// FrontEnds returns the Service's port of every front end that is counted, or would be if there
// were room. It returns none where no Service is counted.
func (s *Services) FrontEnds() map[bpf.ServiceKey]bpf.ServicePort {
	if s.flows != nil {
		return s.flows.frontEnds()
	}
	if p := s.counting.Load(); p != nil {
		return p.FrontEnds()
	}
	return nil
}

// run writes what changed Services change until ctx ends.
func (s *Services) run(ctx context.Context) error {
	return loop.Run(ctx, loop.Options{Name: "services", Wake: s.own, Apply: func(context.Context) error {
		if !s.update() {
			s.wake.Trigger()
		}
		return nil
	}, Log: s.log})
}

// update plans and writes what has changed. It returns false if a round of the gateway must do it.
func (s *Services) update() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.current || s.s.CountsFlows() {
		return false
	}
	before := s.serving.vips()
	s.serving.plan(s.serving.node)
	s.publishRedirects()
	if !s.s.None && !slices.Equal(before, s.serving.vips()) { // programs learn an address before its ports
		s.current = false
		return false
	}
	return s.writeTables() == nil // the gateway's round writes again, and reports
}

// plan plans everything for a node. The plans are kept until write.
func (s *Services) plan(h Host, n Node, f facts) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current = false
	s.serving.plan(s.serving.source.serviceNode(h, n, s.s, f))
	s.publishRedirects()
}

// publishRedirects publishes them when they are others than before.
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

// vips returns the addresses that OVN has by Services.
func (s *Services) vips() []netip.Addr {
	if s.s.None {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.serving.vips()
}

// frontEnds returns all front ends, for a backend without tables.
func (s *Services) frontEnds() map[bpf.ServiceKey]bpf.ServiceOwner {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.serving.frontEnds()
}

// settled reports whether the host's sockets reach Services without a route.
func (s *Services) settled() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.host.settled
}

// openHost loads the programs for the host's sockets that are not loaded yet, at most once a
// resync. behind: also those for listeners behind externalTrafficPolicy Local, which only the
// programs at the uplink use; their tables are there already.
func (s *Services) openHost(behind bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := &s.host
	if s.s.NoEBPF != "" || x.sock != nil && (x.lookup != nil || !behind) || time.Since(x.tried) < resync {
		return
	}
	x.tried = time.Now()
	if x.sock == nil {
		sock, err := bpf.OpenSock(bpf.CgroupOptions{PinDir: s.s.PinDir, CgroupPath: s.s.CgroupPath, Log: s.log})
		s.record.degraded(partSockets, err)
		if err == nil {
			x.sock = sock
		}
	}
	if x.lookup == nil && behind {
		lookup, err := bpf.OpenLookup(bpf.LookupOptions{PinDir: s.s.PinDir, Log: s.log})
		s.record.degraded(partLookup, err)
		if err == nil {
			x.lookup = lookup
		}
	}
}

// write brings the tables in line with the plans. programs are those at the uplink, nil for none.
func (s *Services) write(programs *bpf.Gateway) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.front = programs
	s.counting.Store(programs)
	return s.writeTables()
}

// writeTables writes what has changed. An error of the tables of the host's sockets must not keep
// the gateway's from being written, nor the other way round.
func (s *Services) writeTables() (err error) {
	x := &s.host
	defer func() {
		x.settled = x.settled || s.serving.known // what failed is degraded by then
		s.current = err == nil && s.serving.known
	}()
	err = s.serving.write(writers{gateway: s.front, sock: x.sock, lookup: x.lookup, flows: s.flows})
	s.record.degraded(partDestroy, s.serving.endGone())
	if x.sock == nil {
		return err
	}
	if theirs := (sockError{}); errors.As(err, &theirs) {
		s.record.degraded(partSockets, theirs)
		x.sock.Close()
		x.sock = nil
		return s.serving.write(writers{gateway: s.front, lookup: x.lookup, flows: s.flows})
	}
	if !s.serving.known {
		return err // what is attached goes on with the tables it has
	}
	attached, sockErr := x.sock.Attached()
	if sockErr == nil && !attached {
		sockErr = x.sock.Attach()
	}
	s.record.degraded(partSockets, sockErr)
	return err
}

// await returns an error while the backend of an earlier agent, which decides about packets, is to
// be replaced by one that does not know any Service yet: connections to NodePorts would go to the
// host, which refuses them. Programs that replace programs go on with the tables that are pinned.
// Without flows of ours nothing decides, and the host comes first.
func (s *Services) await(ctx context.Context) error {
	if _, known := s.serving.source.Keys(); known {
		return nil
	}
	first, others, err := ovs.OwnFlows(ctx, s.s.OVSRunDir, s.s.Bridge)
	if err != nil {
		return nil // no bridge, or ovs-vswitchd does not run: nothing decides
	}
	byPrograms, byFlows := first > 0 && hooked(s.s.PinDir), others > 0
	if byFlows && !byPrograms || byPrograms && s.s.Backend == OpenFlow {
		return errors.New("the Services are not known yet: until they are, what an earlier agent left decides about packets")
	}
	return nil
}

// close leaves attached what is attached. Nothing is written after it.
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

// serviceNode returns the node as plans need it. No Service and no host port takes the ports of
// ssh, kubelet, API server and etcd away from an address of this host or another, also from one
// that a load balancer has given it.
func (s Source) serviceNode(h Host, n Node, set Settings, f facts) service.Node {
	return service.Node{
		Name: s.Node, Zone: s.Zone(), NodePorts: set.NodePorts,
		Local: set.Local, Lookup: set.Backend == EBPF && set.NoEBPF == "",
		Addresses: nodeAddrs(n), Own: ownAddrs(h, set), Hosts: f.hosts,
		Cluster: model.Config{Pods: set.PodCIDRs, Services: set.ServiceCIDRs, Join: f.joins, ExternalIPs: set.ExternalIPs},
	}
}
