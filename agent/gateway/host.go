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
// range, and protocols without ports. Only the gateway's loop uses it.
type hostUse struct {
	s      Settings
	log    *slog.Logger
	record *recorder

	gate      *bpf.Gate
	noGate    bool // no gate is wanted, and none is attached
	tried     time.Time
	sockets   []link.Socket // last scan
	scannedAt time.Time
	protos    []verdict.NSKey // last read
}

// openGate loads and attaches the gate, at most once per resync.
func (u *hostUse) openGate() {
	if u.s.NoEBPF != "" || u.gate != nil || u.noGate || time.Since(u.tried) < resync {
		return
	}

	u.tried = time.Now()
	u.record.degraded(partGate, u.attachGate())
}

// attachGate attaches the gate, or detaches an earlier layout's gate in layout dedicated. There the
// node's address belongs to OVN alone, so no gate is needed.
func (u *hostUse) attachGate() error {
	gate, err := bpf.OpenGate(bpf.CgroupOptions{PinDir: u.s.PinDir, CgroupPath: u.s.CgroupPath, Log: u.log})
	switch {
	case u.s.Layout == verdict.Dedicated && errors.Is(err, bpf.ErrNoCgroup):
		u.noGate = true
		return nil
	case err != nil:
		return err
	case u.s.Layout == verdict.Dedicated:
		err = errors.Join(gate.Detach(), gate.Close())
		u.noGate = err == nil

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

	sockets, scan := link.Sockets(u.s.SNATPorts.First, u.s.SNATPorts.Last)
	u.record.degraded(partScan, scan)

	if scan != nil && programs == nil {
		return scan
	}

	if err := u.syncGate(programs); err != nil {
		return err
	}

	if scan != nil {
		u.scannedAt = time.Now()
		return nil
	}

	now, before := listeners(sockets), listeners(u.sockets)
	for _, s := range now {
		if !slices.Contains(before, s) {
			u.log.Warn("a host socket listens inside the SNAT port range; it takes precedence over pods there and adds a cost per packet",
				"local", s.Local, "protocol", model.ProtocolName(s.Proto))
		}
	}

	u.sockets, u.scannedAt = sockets, time.Now()
	u.record.set(func(s *Stats) { s.Listeners = len(now) })

	return nil
}

// syncGate writes the ports for which the programs must look up the owning socket.
func (u *hostUse) syncGate(programs *bpf.Gateway) error {
	if programs == nil {
		return nil
	}

	if u.gate != nil {
		attached, err := u.gate.Attached()
		if err == nil && !attached {
			err = u.gate.Attach()
		}

		if err == nil {
			err = u.gate.Sync(func() ([]bpf.SocketKey, error) { return gated(u.s), nil })
		}

		u.record.degraded(partGate, err)

		if err == nil {
			return nil
		}
	}

	return programs.SyncHostSockets(gated(u.s))
}

// syncProtos reads the host's protocols and writes them to the programs, if any. After an error the
// previous ones stay.
func (u *hostUse) syncProtos(programs *bpf.Gateway) {
	scan := func() ([]verdict.NSKey, error) {
		protos, err := hostProtos(u.s)
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

	u.record.degraded(partProtos, err)
}

func (u *hostUse) close() {
	if u.gate != nil {
		u.gate.Close()
	}
}

// hostProtos returns the protocols without ports that the host uses: its tunnels by peer, and its
// raw sockets. A tunnel without a remote end is left out, because it would claim every peer's
// packets for the host. In layout dedicated the list is empty, because the node's address belongs
// to OVN alone.
func hostProtos(s Settings) ([]verdict.NSKey, error) {
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

// gated returns the ports of the SNAT range that a host socket uses, including sockets that may
// listen or connect later. In layout dedicated no host socket has the node's address.
func gated(s Settings) []bpf.SocketKey {
	if s.Layout == verdict.Dedicated {
		return nil
	}

	ports := s.SNATPorts
	sockets, scan := link.Sockets(ports.First, ports.Last)
	bound, scanBound := link.BoundTCP(ports.First, ports.Last)

	return gateKeys(append(sockets, bound...), errors.Join(scan, scanBound), ports)
}

// socketKeys returns the ports that host sockets use, sorted and without duplicates. For these the
// gateway must look up the owner of a packet in the kernel.
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

// gateKeys returns the ports to look up in the kernel, from a scan of the host's sockets in a
// range. If the scan failed, it returns every port of the range.
func gateKeys(sockets []link.Socket, scan error, ports cluster.PortRange) []bpf.SocketKey {
	if scan == nil {
		return socketKeys(sockets)
	}

	var out []bpf.SocketKey
	for port := int(ports.First); port <= int(ports.Last); port++ {
		out = append(out, bpf.SocketKey{Proto: unix.IPPROTO_TCP, Port: uint16(port)},
			bpf.SocketKey{Proto: unix.IPPROTO_UDP, Port: uint16(port)})
	}

	return out
}

// listeners returns the sockets that deserve a warning to the operator.
func listeners(sockets []link.Socket) []link.Socket {
	return slices.DeleteFunc(slices.Clone(sockets), func(s link.Socket) bool { return !s.Listening })
}
