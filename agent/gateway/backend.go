package gateway

import (
	"context"
	"log/slog"

	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/agent/loop"
	"github.com/ovn-ebpf/ovn-ebpf/bpf"
)

// backend decides whose a packet is: programs or flows. Its methods are called by the gateway's
// loop, but for run and counters.
type backend interface {
	// run watches until ctx ends, and wakes the gateway's loop when the backend was changed.
	run(ctx context.Context) error
	// sync brings everything in line, in the order in which no packet is lost.
	sync(ctx context.Context, st state) error

	// prepare does what is slow before the uplink joins or leaves the bridge.
	prepare(config bpf.Config) error
	// syncFlows writes the bridge's flows, syncHooks the programs at uplink and bridge: at the
	// moment of a move the caller decides about the order.
	syncFlows(ctx context.Context, st state) error
	syncHooks(ctx context.Context, st state) error

	// pass leaves every packet to the host until the next sync.
	pass() error
	// detach takes everything off uplink and bridge.
	detach() error
	// counters returns what was decided since the start, by reason.
	counters(ctx context.Context) ([]bpf.Counter, error)
	// close ends the use of the backend, which goes on working.
	close() error
}

// parts are what both backends work with.
type parts struct {
	s        Settings
	log      *slog.Logger
	record   *recorder
	wake     loop.Signal // of the gateway's loop
	flows    *flowTable
	host     *hostUse
	services *Services
	tracker  *tracker
}

func newBackend(p parts) backend {
	leftover := leftover{s: p.s, log: p.log}
	if p.s.Backend == OpenFlow {
		return &flowBackend{parts: p, leftover: leftover, counts: newFlowCounts(p.s)}
	}
	return &programs{parts: p, leftover: leftover}
}

// leftover is programs of an earlier agent, which are not wanted any more.
type leftover struct {
	s    Settings
	log  *slog.Logger
	idle *bpf.Gateway // opened only to be detached
	gone bool
}

// open opens them if there are any, so that drop is quick.
func (l *leftover) open() error {
	if l.gone || !hooked(l.s.PinDir) {
		return nil
	}
	var err error
	l.idle, err = openIdle(l.s, l.log)
	return err
}

// drop takes them off the node.
func (l *leftover) drop() error {
	if l.gone {
		return nil
	}
	if !hooked(l.s.PinDir) { // pinned is at most what the host's sockets go on with
		err := removeFilters()
		l.gone = err == nil
		return err
	}
	idle := l.idle
	if l.idle = nil; idle == nil {
		var err error
		if idle, err = openIdle(l.s, l.log); err != nil {
			return err
		}
	}
	err := takeDown(idle)
	l.gone = err == nil
	return err
}

// clsactFuncs attach where the kernel has no tcx.
func clsactFuncs() bpf.ClsactFuncs {
	return bpf.ClsactFuncs{
		Attach: link.AttachClsact, Detach: link.DetachClsact,
		AttachAt: link.AttachClsactAt, DetachAt: link.DetachClsactAt, Attached: link.ClsactAttachedAt,
	}
}
