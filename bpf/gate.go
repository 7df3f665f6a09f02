package bpf

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
)

// Gate keeps the bitmap of ports that host sockets may have. Only for packets to these ports, the
// gateway's programs look up whether a host socket owns the packet.
//
// The programs of Gate set the bit of a port when a socket binds to it, and again when this socket
// connects. Sync clears the bits of ports that no socket has any more. When a raw socket is
// created, the programs also add its protocol to the protocols of the host, until
// Gateway.SyncHostProtos. They ignore sockets that are bound to IPv4 loopback. The methods are not
// safe for concurrent use.
type Gate struct {
	cgroupPrograms

	objs gateObjects
}

// LoadGate loads the programs. A Gateway must have been opened before, because its bitmap is
// shared. The error wraps ErrNoCgroup if the host has no cgroup v2 to attach to. Without a Gate,
// Gateway.SyncHostSockets writes the bitmap.
func LoadGate(opts CgroupOptions) (*Gate, error) {
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

// Sync sets exactly the bits of two sets of ports: those that scan returns, and those that sockets
// have bound since the previous call began. The second set is needed because sock_diag before Linux
// 6.8 does not list a TCP socket that is bound but neither listens nor is connected. The port of a
// socket that binds during Sync is missing for at most the duration of the call. If scan fails, the
// bitmap does not change.
func (g *Gate) Sync(scan func() ([]SocketKey, error)) error {
	if err := g.sync(scan); err != nil {
		return fmt.Errorf("sync gate: %w", err)
	}

	return nil
}

func (g *Gate) sync(scan func() ([]SocketKey, error)) error {
	if err := g.nextPeriod(); err != nil {
		return err
	}

	sockets, err := scan()
	if err != nil {
		return err
	}

	scanned, err := portBits(sockets)
	if err != nil {
		return err
	}

	return g.write(gatePortBits(scanned))
}

// nextPeriod begins a period: from one Sync to the next. The map gate_recent has a bitmap for ports
// bound in this period, and one for the period before. The programs take the lowest bit of period
// as index of the bitmap to write. It still has the ports of the period before the last one, so it
// is cleared first.
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

// write replaces the bitmap by scanned and the recently bound ports. It may overwrite the bit of a
// socket that binds at the same moment. The program has stored this port in gate_recent before, so
// write reads gate_recent again, and repeats until there are no new ports.
func (g *Gate) write(scanned gatePortBits) error {
	recent, err := g.recent()
	if err != nil {
		return err
	}

	for {
		bits := union(scanned, recent)
		if err := g.objs.HostSockets.Put(uint32(0), &bits); err != nil {
			return err
		}

		written := recent
		if recent, err = g.recent(); err != nil || recent == written {
			return err
		}
	}
}

// recent returns the ports that were bound in this period and in the one before.
func (g *Gate) recent() (gatePortBits, error) {
	var bitmaps [2]gatePortBits

	err := errors.Join(g.objs.GateRecent.Lookup(uint32(0), &bitmaps[0]),
		g.objs.GateRecent.Lookup(uint32(1), &bitmaps[1]))

	return union(bitmaps[0], bitmaps[1]), err
}

func union(a, b gatePortBits) gatePortBits {
	for i := range a.Tcp {
		a.Tcp[i] |= b.Tcp[i]
		a.Udp[i] |= b.Udp[i]
	}

	return a
}

// Detach detaches the programs and removes their pins, but keeps the bitmap, which belongs to the
// gateway. Afterwards only Close may be called.
func (g *Gate) Detach() error { return g.detach(gateMapGateRecent) }

// Close releases this load. Attached programs stay attached and pinned.
func (g *Gate) Close() error { return g.objs.Close() }
