package bpf

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
)

// Gate opens the gateway's gate for a host socket when it binds, and again when it connects. From
// then on the programs look up the owner of packets to its port. Sync closes the gate again. For a
// raw socket, the protocol belongs to the host from the socket's creation until
// Gateway.SyncHostProtos. IPv4 loopback is ignored. The methods are not safe for concurrent use.
type Gate struct {
	cgroupPrograms

	objs gateObjects
}

// OpenGate loads the programs, over the table of a gateway that was opened before. The error wraps
// ErrNoCgroup if there is no cgroup to attach to. Gateway.SyncHostSockets works without a Gate.
func OpenGate(opts CgroupOptions) (*Gate, error) {
	spec, err := loadGate()
	if err != nil {
		return nil, fmt.Errorf("read gate programs: %w", err)
	}

	g := &Gate{cgroupPrograms: cgroupPrograms{kind: "gate"}}
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

// Sync opens the gate for exactly two sets of ports: those that scan returns, and those that were
// bound since the Sync before the last one. The second set is needed because sock_diag before Linux
// 6.8 does not list a TCP socket that is bound but neither listens nor is connected. A socket that
// binds during Sync is missing for at most the duration of the call. If scan fails nothing changes.
func (g *Gate) Sync(scan func() ([]SocketKey, error)) error {
	if err := g.nextPeriod(); err != nil {
		return fmt.Errorf("sync gate: %w", err)
	}

	sockets, err := scan()
	if err != nil {
		return fmt.Errorf("sync gate: %w", err)
	}

	seen, err := portBits(sockets)
	if err == nil {
		err = g.write(gatePortBits(seen))
	}

	if err != nil {
		return fmt.Errorf("sync gate: %w", err)
	}

	return nil
}

// nextPeriod makes the hooks write to the half of gate_recent that is two periods old.
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

// write may overwrite the bit of a socket that binds at the same moment. The hook has stored the
// port in gate_recent before, so write reads gate_recent afterwards and repeats new ports.
func (g *Gate) write(seen gatePortBits) error {
	recent, err := g.recent()
	for err == nil {
		bits := union(seen, recent)
		if err = g.objs.HostSockets.Put(uint32(0), &bits); err != nil {
			break
		}

		previous := recent

		recent, err = g.recent()
		if recent == previous {
			return err
		}
	}

	return err
}

func (g *Gate) recent() (gatePortBits, error) {
	var halves [2]gatePortBits

	err := errors.Join(g.objs.GateRecent.Lookup(uint32(0), &halves[0]),
		g.objs.GateRecent.Lookup(uint32(1), &halves[1]))

	return union(halves[0], halves[1]), err
}

func union(a, b gatePortBits) gatePortBits {
	for i := range a.Tcp {
		a.Tcp[i] |= b.Tcp[i]
		a.Udp[i] |= b.Udp[i]
	}

	return a
}

// Detach detaches the programs and removes their pins, but keeps the gateway's table. Afterwards
// only Close may be called.
func (g *Gate) Detach() error { return g.detach(gateMapGateRecent) }

// Close releases this load. Attached programs stay attached and pinned.
func (g *Gate) Close() error { return g.objs.Close() }
