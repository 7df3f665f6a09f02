package bpf

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
)

// Gate opens the gateway's gate for a host socket the moment it binds, and again when it connects:
// the kernel is asked for its port from then on. Sync closes it again. The protocol of a raw socket
// is the host's from the moment the socket is made, until Gateway.SyncHostProtos. Loopback does not
// count over IPv4. Its methods are not for concurrent use.
type Gate struct {
	opts  CgroupOptions
	objs  gateObjects
	hooks []cgroupHook
}

// OpenGate loads the programs, over the table of the gateway that was opened
// there before. The error wraps ErrNoCgroup if there is nothing to attach to:
// Gateway.SyncHostSockets does without.
func OpenGate(opts CgroupOptions) (*Gate, error) {
	spec, err := loadGate()
	if err != nil {
		return nil, fmt.Errorf("read gate programs: %w", err)
	}
	g := &Gate{}
	if g.opts, err = opts.load(spec, spec.Variables[gateVarHostNetns], &g.objs); err != nil {
		return nil, fmt.Errorf("load gate programs: %w", err)
	}
	g.hooks = []cgroupHook{
		{gateProgGatePostBind4, g.objs.GatePostBind4, ebpf.AttachCGroupInet4PostBind},
		{gateProgGatePostBind6, g.objs.GatePostBind6, ebpf.AttachCGroupInet6PostBind},
		{gateProgGateConnect4, g.objs.GateConnect4, ebpf.AttachCGroupInet4Connect},
		{gateProgGateConnect6, g.objs.GateConnect6, ebpf.AttachCGroupInet6Connect},
		{gateProgGateSockCreate, g.objs.GateSockCreate, ebpf.AttachCGroupInetSockCreate},
	}
	return g, nil
}

// Attach puts the programs on the cgroup, beside those of others. Programs of an
// earlier load are replaced, each atomically. It is idempotent.
func (g *Gate) Attach() error {
	for _, h := range g.hooks {
		if err := attachCgroup(g.opts.PinDir, g.opts.CgroupPath, h); err != nil {
			return fmt.Errorf("attach gate programs: %w", err)
		}
	}
	return nil
}

// Attached tells whether all programs are on the cgroup, and are those of this load.
func (g *Gate) Attached() (bool, error) {
	return attachedCgroup(g.opts.PinDir, g.opts.CgroupPath, g.hooks)
}

// Sync opens the gate for exactly the ports that scan names and those that were
// bound since the Sync before the last one: a TCP socket that is bound but
// neither listens nor is connected is not seen by sock_diag before Linux 6.8. A socket that
// binds meanwhile is never lost for longer than the call takes. If scan fails nothing changes.
func (g *Gate) Sync(scan func() ([]SocketKey, error)) error {
	if err := g.nextPeriod(); err != nil {
		return fmt.Errorf("sync gate: %w", err)
	}
	sockets, err := scan()
	if err != nil {
		return fmt.Errorf("sync gate: %w", err)
	}
	var seen gatePortBits
	for _, s := range sockets {
		switch s.Proto {
		case protoTCP:
			setBit(&seen.Tcp, s.Port)
		case protoUDP:
			setBit(&seen.Udp, s.Port)
		default:
			return fmt.Errorf("sync gate: protocol %d is neither TCP nor UDP", s.Proto)
		}
	}
	if err := g.write(seen); err != nil {
		return fmt.Errorf("sync gate: %w", err)
	}
	return nil
}

// nextPeriod has the hooks write to the half of gate_recent that is two periods old.
func (g *Gate) nextPeriod() error {
	var period uint32
	if err := g.objs.Period.Get(&period); err != nil {
		return err
	}
	period++
	if err := g.objs.GateRecent.Put(period&1, gatePortBits{}); err != nil {
		return err
	}
	return g.objs.Period.Set(period)
}

// write may overwrite the bit of a socket that binds at this moment. The hook
// has put it into gate_recent before: what is new there afterwards is written again.
func (g *Gate) write(seen gatePortBits) error {
	recent, err := g.recent()
	for err == nil {
		bits := union(seen, recent)
		if err = g.objs.HostSockets.Put(uint32(0), &bits); err != nil {
			break
		}
		before := recent
		recent, err = g.recent()
		if recent == before {
			return err
		}
	}
	return err
}

func (g *Gate) recent() (gatePortBits, error) {
	var halves [2]gatePortBits
	err := errors.Join(g.objs.GateRecent.Lookup(uint32(0), &halves[0]), g.objs.GateRecent.Lookup(uint32(1), &halves[1]))
	return union(halves[0], halves[1]), err
}

func union(a, b gatePortBits) gatePortBits {
	for i := range a.Tcp {
		a.Tcp[i] |= b.Tcp[i]
		a.Udp[i] |= b.Udp[i]
	}
	return a
}

// Detach takes the programs off and removes their pins, but not the gateway's
// table. The Gate can still be closed, and nothing else.
func (g *Gate) Detach() error {
	for _, h := range g.hooks {
		if err := detachCgroup(g.opts.PinDir, h.name); err != nil {
			return err
		}
	}
	return unpinMaps(g.opts.PinDir, gateMapGateRecent)
}

// Close releases this load. What is attached stays attached, and pinned.
func (g *Gate) Close() error { return g.objs.Close() }
