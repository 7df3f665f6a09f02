package gateway

import (
	"context"
	"log/slog"

	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
	"github.com/ovn-ebpf/ovn-ebpf/bpf"
	"github.com/ovn-ebpf/ovn-ebpf/loop"
)

// backend decides for each packet whether the host or OVN owns it. There are two: eBPF programs and
// OpenFlow flows. Only the gateway's loop calls its methods, except run and counters.
type backend interface {
	// run watches the backend until ctx ends and triggers the gateway's loop when another process
	// changed it.
	run(ctx context.Context) error
	// sync applies the state in an order that loses no packet.
	sync(ctx context.Context, st state) error

	// prepare does the slow work before the uplink joins or leaves the bridge.
	prepare(config bpf.Config) error
	// syncFlows writes the bridge's flows; syncHooks syncs the programs at uplink and bridge.
	// During a move the caller chooses the order.
	syncFlows(ctx context.Context, st state) error
	syncHooks(ctx context.Context, st state) error

	// passToHost leaves every packet to the host until the next sync. It is for a host that
	// cannot be read or has no address.
	passToHost() error
	// detach removes the backend from uplink and bridge.
	detach() error
	// counters returns the number of decisions since the start, by reason.
	counters(ctx context.Context) ([]bpf.Counter, error)
	// close releases the backend's handles. The backend continues to work in the kernel.
	close() error
}

// parts holds what both backends use.
type parts struct {
	s         Settings
	log       *slog.Logger
	record    *recorder
	wake      loop.Signal // triggers the gateway's loop
	flows     *flowTable
	host      *hostUse
	services  *Services
	tracker   *tracker
	shortcuts *ShortcutManager
}

func newBackend(p parts) backend {
	earlier := earlierPrograms{s: p.s, log: p.log}
	if p.s.Backend == OpenFlow {
		counts := ovs.NewFlowCounts(p.s.OVSRunDir, p.s.Bridge, flowNumbers())
		return &flowBackend{parts: p, earlier: earlier, counts: counts}
	}

	return &programs{parts: p, earlier: earlier}
}

// earlierPrograms removes programs that an earlier agent attached and this one does not use.
type earlierPrograms struct {
	s       Settings
	log     *slog.Logger
	opened  *bpf.Gateway // by open, for remove; nil: not opened
	removed bool
}

// open opens the pinned programs, if any, so that remove is fast.
func (e *earlierPrograms) open() error {
	if e.removed || !hasHookPins(e.s.PinDir) {
		return nil
	}

	var err error

	e.opened, err = openIdle(e.s, e.log)

	return err
}

// remove detaches the programs and removes their pins.
func (e *earlierPrograms) remove() error {
	if e.removed {
		return nil
	}

	if !hasHookPins(e.s.PinDir) { // pins that remain belong to the host's socket programs
		err := removeFilters()
		e.removed = err == nil

		return err
	}

	opened := e.opened
	e.opened = nil // takeDown closes it, also after an error

	if opened == nil {
		var err error
		if opened, err = openIdle(e.s, e.log); err != nil {
			return err
		}
	}

	err := takeDown(opened)
	e.removed = err == nil

	return err
}

// clsactFuncs returns the functions that attach programs where the kernel has no tcx.
func clsactFuncs() bpf.ClsactFuncs {
	return bpf.ClsactFuncs{
		Attach: link.AttachClsact, Detach: link.DetachClsact, Attached: link.ClsactAttached,
	}
}
