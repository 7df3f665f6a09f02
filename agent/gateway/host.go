package gateway

import (
	"cmp"
	"errors"
	"log/slog"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/bpf"
	"github.com/ovn-ebpf/ovn-ebpf/cluster"
	model "github.com/ovn-ebpf/ovn-ebpf/service"
	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// hostUse tracks which parts of the node's addresses the host itself uses: sockets inside the SNAT
// range, and protocols without ports. Packets for these are the host's, not OVN's. Only the
// gateway's loop uses it.
//
// With the eBPF backend, the gate (bpf.Gate) helps: programs that run when a socket of the host
// binds a port. They enter the port in the table of ports for which the gateway's programs look up
// the owner. Without them, a new socket is found by the next scan.
type hostUse struct {
	s      Settings
	log    *slog.Logger
	record *recorder

	gate         *bpf.Gate // nil: not loaded
	gateUnneeded bool      // the layout needs no gate, and none is attached
	gateTriedAt  time.Time // last attempt to load it

	sockets   []link.Socket   // inside the SNAT range, of the last scan
	scannedAt time.Time       // last scan of sockets
	protos    []verdict.NSKey // protocols without ports, of the last scan
}

// ensureGate attaches the gate, or removes it in layout dedicated. After an error it tries again in
// the next resync.
func (u *hostUse) ensureGate() {
	if u.s.NoEBPF != "" || u.gate != nil || u.gateUnneeded || time.Since(u.gateTriedAt) < resync {
		return
	}

	u.gateTriedAt = time.Now()

	if u.s.Layout == verdict.Dedicated {
		u.record.setFault(partGate, u.removeGate())
	} else {
		u.record.setFault(partGate, u.attachGate())
	}
}

// removeGate detaches the gate of an earlier layout. In layout dedicated the node's address belongs
// to OVN alone, so no gate is needed.
func (u *hostUse) removeGate() error {
	gate, err := bpf.LoadGate(u.gateOptions())
	if err == nil {
		err = errors.Join(gate.Detach(), gate.Close())
	} else if errors.Is(err, bpf.ErrNoCgroup) {
		err = nil // without a cgroup, none can be attached
	}

	u.gateUnneeded = err == nil

	return err
}

func (u *hostUse) gateOptions() bpf.CgroupOptions {
	return bpf.CgroupOptions{PinDir: u.s.PinDir, CgroupPath: u.s.CgroupPath, Log: u.log}
}

// attachGate loads and attaches the gate.
func (u *hostUse) attachGate() error {
	gate, err := bpf.LoadGate(u.gateOptions())
	if err != nil {
		return err
	}

	if err := gate.Attach(); err != nil {
		return errors.Join(err, gate.Close())
	}

	u.gate = gate

	return nil
}

// syncSockets lists the host's sockets inside the SNAT range, at most once per resync. The range is
// reserved, so new sockets come only from an explicit bind. If the kernel cannot list sockets,
// programs look the socket up for every packet. Flows cannot do that, so for them it is an error.
// programs is nil for flows.
func (u *hostUse) syncSockets(programs *bpf.Gateway) error {
	if time.Since(u.scannedAt) < resync {
		return nil
	}

	sockets, scanErr := link.Sockets(u.s.SNATPorts.First, u.s.SNATPorts.Last)
	u.record.setFault(partScan, scanErr)

	if programs == nil && scanErr != nil {
		return scanErr
	}

	if programs != nil {
		if err := u.syncLookups(programs); err != nil {
			return err
		}
	}

	if scanErr != nil { // syncLookups has scanned by itself
		u.scannedAt = time.Now()
		return nil
	}

	now, before := onlyListening(sockets), onlyListening(u.sockets)
	for _, s := range now {
		if !slices.Contains(before, s) {
			u.log.Warn("a host socket listens inside the SNAT port range; it takes precedence over pods there and adds a cost per packet",
				"local", s.Local, "protocol", model.ProtocolName(s.Proto))
		}
	}

	u.sockets, u.scannedAt = sockets, time.Now()
	u.record.change(func(s *Stats) { s.Listeners = len(now) })

	return nil
}

// syncLookups writes the ports for which the programs must look up the owning socket. It does so
// through the gate, which adds later binds. If that fails, it writes them without the gate. It
// lists the sockets again, after syncSockets, because the gate needs a list that is younger than
// the period that Sync begins.
func (u *hostUse) syncLookups(programs *bpf.Gateway) error {
	if u.gate != nil {
		err := u.syncGate()
		u.record.setFault(partGate, err)

		if err == nil {
			return nil
		}
	}

	return programs.SyncHostSockets(lookupPorts(u.s))
}

// syncGate attaches the gate again if it was detached, and writes the ports through it.
func (u *hostUse) syncGate() error {
	attached, err := u.gate.Attached()
	if err == nil && !attached {
		err = u.gate.Attach()
	}

	if err != nil {
		return err
	}

	return u.gate.Sync(func() ([]bpf.SocketKey, error) { return lookupPorts(u.s), nil })
}

// syncProtos reads the host's protocols and writes them to the programs, if any. After an error the
// previous ones stay.
func (u *hostUse) syncProtos(programs *bpf.Gateway) {
	scan := func() ([]verdict.NSKey, error) {
		protos, err := readHostProtos(u.s)
		if err == nil {
			u.protos = protos
		}

		return protos, err
	}

	var err error
	if programs != nil {
		err = programs.SyncHostProtos(scan)
	} else {
		_, err = scan()
	}

	u.record.setFault(partProtos, err)
}

func (u *hostUse) close() {
	if u.gate != nil {
		u.gate.Close()
	}
}

// readHostProtos returns the protocols without ports that the host uses: its tunnels by peer, and
// its raw sockets. A tunnel without a remote end is left out, because it would claim every peer's
// packets for the host. In layout dedicated the list is empty, because the node's address belongs
// to OVN alone.
func readHostProtos(s Settings) ([]verdict.NSKey, error) {
	if s.Layout == verdict.Dedicated {
		return nil, nil
	}

	tunnels, errTunnels := link.HostProtos()
	raw, errRaw := link.RawProtos()
	tunnels = slices.DeleteFunc(tunnels, func(p link.HostProto) bool { return p.Remote.IsUnspecified() })

	var out []verdict.NSKey
	for _, p := range append(tunnels, raw...) {
		out = append(out, verdict.NSKey{Remote: p.Remote, Proto: p.Proto})
	}

	return out, errors.Join(errTunnels, errRaw)
}

// lookupPorts returns the ports of the SNAT range that a host socket uses, including sockets that
// may listen or connect later. In layout dedicated no host socket has the node's address.
func lookupPorts(s Settings) []bpf.SocketKey {
	if s.Layout == verdict.Dedicated {
		return nil
	}

	ports := s.SNATPorts
	sockets, err := link.Sockets(ports.First, ports.Last)
	bound, boundErr := link.BoundTCP(ports.First, ports.Last)

	return lookupPortsOf(append(sockets, bound...), errors.Join(err, boundErr), ports)
}

// lookupPortsOf returns the ports to look up in the kernel, from a scan of the host's sockets in a
// range. If the scan failed, it returns every port of the range.
func lookupPortsOf(sockets []link.Socket, scanErr error, ports cluster.PortRange) []bpf.SocketKey {
	if scanErr == nil {
		return socketKeys(sockets)
	}

	var out []bpf.SocketKey
	for port := int(ports.First); port <= int(ports.Last); port++ { // an int, as the last may be 65535
		out = append(out, bpf.SocketKey{Proto: unix.IPPROTO_TCP, Port: uint16(port)},
			bpf.SocketKey{Proto: unix.IPPROTO_UDP, Port: uint16(port)})
	}

	return out
}

// socketKeys returns the ports that host sockets use, sorted and without duplicates.
func socketKeys(sockets []link.Socket) []bpf.SocketKey {
	var out []bpf.SocketKey
	for _, s := range sockets {
		out = append(out, bpf.SocketKey{Proto: s.Proto, Port: s.Local.Port()})
	}

	slices.SortFunc(out, func(a, b bpf.SocketKey) int {
		return cmp.Or(cmp.Compare(a.Proto, b.Proto), cmp.Compare(a.Port, b.Port))
	})

	return slices.Compact(out)
}

// onlyListening returns the listening sockets, about which the agent warns the operator.
func onlyListening(sockets []link.Socket) []link.Socket {
	return slices.DeleteFunc(slices.Clone(sockets), func(s link.Socket) bool { return !s.Listening })
}
