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
)

// hostUse is what of the node's addresses the host itself uses: sockets inside the SNAT range,
// and protocols without ports. Its one user is the gateway's loop.
type hostUse struct {
	s      Settings
	log    *slog.Logger
	record *recorder

	gate      *bpf.Gate
	gateless  bool // there is to be no gate, and there is none
	tried     time.Time
	sockets   []link.Socket // last scan
	scannedAt time.Time
	protos    []bpf.NSKey // last read
}

// openGate loads and attaches the gate, at most once a resync.
func (u *hostUse) openGate() {
	if u.s.NoEBPF != "" || u.gate != nil || u.gateless || time.Since(u.tried) < resync {
		return
	}
	u.tried = time.Now()
	u.record.degraded(partGate, u.attachGate())
}

// attachGate detaches the gate of an earlier layout in layout dedicated, which has none: there the
// node's address is OVN's alone.
func (u *hostUse) attachGate() error {
	gate, err := bpf.OpenGate(bpf.CgroupOptions{PinDir: u.s.PinDir, CgroupPath: u.s.CgroupPath, Log: u.log})
	switch {
	case u.s.Layout == Dedicated && errors.Is(err, bpf.ErrNoCgroup):
		u.gateless = true
		return nil
	case err != nil:
		return err
	case u.s.Layout == Dedicated:
		err = errors.Join(gate.Detach(), gate.Close())
		u.gateless = err == nil
		return err
	}
	if err := gate.Attach(); err != nil {
		return errors.Join(err, gate.Close())
	}
	u.gate = gate
	return nil
}

// syncSockets looks for sockets of the host inside the SNAT range, at most once a resync. The
// range is reserved, so new ones come only from an explicit bind. Where the kernel does not list
// them, programs ask it at every packet. Flows cannot: then it is an error. programs is nil for
// flows.
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
			u.log.Warn("a host socket listens inside the SNAT port range; it wins over pods there, at a cost per packet",
				"local", s.Local, "protocol", s.Proto)
		}
	}
	u.sockets, u.scannedAt = sockets, time.Now()
	u.record.setListeners(len(now))
	return nil
}

// syncGate writes for which ports the programs ask the kernel whose a packet is.
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

// syncProtos reads the host's protocols, and writes them for the programs if there are any.
// After an error those of before stay.
func (u *hostUse) syncProtos(programs *bpf.Gateway) {
	scan := func() ([]bpf.NSKey, error) {
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

// hostProtos returns the protocols without ports that the host uses: those of its tunnels, by
// peer, and those it has raw sockets for. A tunnel without a remote end is left out: every peer's
// packets would be the host's. In layout dedicated the node's address is OVN's alone.
func hostProtos(s Settings) ([]bpf.NSKey, error) {
	if s.Layout == Dedicated {
		return nil, nil
	}
	tunnels, errTunnels := link.HostProtos()
	raw, errRaw := link.RawProtos()
	tunnels = slices.DeleteFunc(tunnels, func(p link.HostProto) bool { return p.Remote.IsUnspecified() })
	var out []bpf.NSKey
	for _, p := range append(tunnels, raw...) {
		out = append(out, bpf.NSKey{Remote: p.Remote, Proto: p.Proto})
	}
	return out, errors.Join(errTunnels, errRaw)
}

// gated returns the ports of the SNAT range that a socket of the host has, also one that may
// listen or connect later. In layout dedicated no socket of the host has the node's address.
func gated(s Settings) []bpf.SocketKey {
	if s.Layout == Dedicated {
		return nil
	}
	ports := s.SNATPorts
	sockets, scan := link.Sockets(ports.First, ports.Last)
	bound, scanBound := link.BoundTCP(ports.First, ports.Last)
	return gateKeys(append(sockets, bound...), errors.Join(scan, scanBound), ports)
}

// socketKeys returns the ports for which the gateway must ask the kernel
// whose a packet is: those that a socket of the host uses. Sorted, without
// repetition.
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

// gateKeys returns the ports for which the gateway must ask the kernel after a
// look for the host's sockets in a range: if that failed, every one.
func gateKeys(sockets []link.Socket, scan error, ports bpf.PortRange) []bpf.SocketKey {
	if scan == nil {
		return socketKeys(sockets)
	}
	var out []bpf.SocketKey
	for port := int(ports.First); port <= int(ports.Last); port++ {
		out = append(out, bpf.SocketKey{Proto: unix.IPPROTO_TCP, Port: uint16(port)}, bpf.SocketKey{Proto: unix.IPPROTO_UDP, Port: uint16(port)})
	}
	return out
}

// listeners returns the sockets that the operator should be warned of.
func listeners(sockets []link.Socket) []link.Socket {
	return slices.DeleteFunc(slices.Clone(sockets), func(s link.Socket) bool { return !s.Listening })
}
