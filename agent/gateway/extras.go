package gateway

import (
	"errors"
	"maps"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/bpf"
)

// Names of what a node can do without, in the log and in metrics.
const (
	extraSockets = "host_to_service" // translation of the host's own sockets
	extraGate    = "bind_gate"       // the gate opens when a socket binds, not at the next scan
	extraScan    = "sockets"         // the host's sockets in the SNAT range are listed
	extraProtos  = "host_protocols"  // which protocols without ports are the host's
	extraAhead   = "foreign_program" // somebody's program stands before ours
	extraLookup  = "service_host"    // sockets of the host behind externalTrafficPolicy Local
	extraDestroy = "socket_destroy"  // end of UDP sockets whose endpoint is gone
)

// noFaults has every part, and that it lacks nothing.
func noFaults() map[string]string {
	out := map[string]string{}
	for _, part := range []string{extraSockets, extraGate, extraScan, extraProtos, extraAhead, extraLookup, extraDestroy} {
		out[part] = ""
	}
	return out
}

// newStats has everything that may happen at zero: so the first time is seen to be one.
func newStats() Stats {
	return Stats{Repairs: map[string]uint64{"flows": 0, "uplink_port": 0, "attach_bridge": 0, "attach_uplink": 0, "bridge_device": 0}, Degraded: noFaults()}
}

// extras are programs that the gateway can do without. What fails is said,
// counted and tried again, and keeps nothing else from its work.
type extras struct {
	sock *bpf.Sock
	gate *bpf.Gate
	// gateless: there is to be no gate, and there is none.
	gateless bool
	lookup   *bpf.Lookup
	tried    time.Time
	// settled: the tables of the host's sockets have had all Services once, or
	// are known not to work.
	settled bool
	faults  map[string]string // by part
}

// openExtras loads what is not loaded yet, now and then. The gateway's own
// tables are there already.
func (g *Gateway) openExtras() {
	x := &g.extras
	if g.s.NoEBPF != "" || x.sock != nil && (x.gate != nil || x.gateless) && (x.lookup != nil || g.bpf == nil) || time.Since(x.tried) < resync {
		return
	}
	x.tried = time.Now()
	if x.sock == nil {
		sock, err := bpf.OpenSock(bpf.CgroupOptions{PinDir: g.s.PinDir, CgroupPath: g.s.CgroupPath, Log: g.log})
		g.degraded(extraSockets, err)
		if err == nil {
			x.sock = sock
		}
	}
	if x.lookup == nil && g.bpf != nil {
		lookup, err := bpf.OpenLookup(bpf.LookupOptions{PinDir: g.s.PinDir, Log: g.log})
		g.degraded(extraLookup, err)
		if err == nil {
			x.lookup = lookup
		}
	}
	if x.gate == nil && !x.gateless && g.bpf != nil {
		g.degraded(extraGate, g.openGate())
	}
}

// openGate attaches the gate. In layout dedicated, where the node's address is OVN's
// alone, there is none, nor that of another layout before.
func (g *Gateway) openGate() error {
	gate, err := bpf.OpenGate(bpf.CgroupOptions{PinDir: g.s.PinDir, CgroupPath: g.s.CgroupPath, Log: g.log})
	switch {
	case g.s.Layout == Dedicated && errors.Is(err, bpf.ErrNoCgroup):
		g.extras.gateless = true
		return nil
	case err != nil:
		return err
	case g.s.Layout == Dedicated:
		err = errors.Join(gate.Detach(), gate.Close())
		g.extras.gateless = err == nil
		return err
	}
	if err := gate.Attach(); err != nil {
		return errors.Join(err, gate.Close())
	}
	g.extras.gate = gate
	return nil
}

// writeServices brings the tables of services in line; those of the host's
// sockets must not keep the gateway's from it, nor the other way round.
func (g *Gateway) writeServices() error {
	x := &g.extras
	defer func() { x.settled = x.settled || g.serving.known }() // what failed is degraded by then
	err := g.serving.write(writers{gateway: g.frontDoor(), sock: x.sock, lookup: x.lookup, flows: g.flowServices})
	g.degraded(extraDestroy, g.serving.endGone())
	if x.sock == nil {
		return err
	}
	if theirs := (sockError{}); errors.As(err, &theirs) {
		g.degraded(extraSockets, theirs)
		x.sock.Close()
		x.sock = nil
		return g.serving.write(writers{gateway: g.frontDoor(), lookup: x.lookup, flows: g.flowServices})
	}
	if !g.serving.known {
		return err // what is attached goes on with the tables it has
	}
	attached, sockErr := x.sock.Attached()
	if sockErr == nil && !attached {
		sockErr = x.sock.Attach()
	}
	g.degraded(extraSockets, sockErr)
	return err
}

// syncGate writes which ports' sockets are to be asked for.
func (g *Gateway) syncGate() error {
	if g.bpf == nil {
		return nil
	}
	if x := &g.extras; x.gate != nil {
		attached, err := x.gate.Attached()
		if err == nil && !attached {
			err = x.gate.Attach()
		}
		if err == nil {
			err = x.gate.Sync(func() ([]bpf.SocketKey, error) { return g.gated(), nil })
		}
		g.degraded(extraGate, err)
		if err == nil {
			return nil
		}
	}
	return g.bpf.SyncHostSockets(g.gated())
}

// gated are the ports that a socket of the host has now, also one that may listen
// or connect later. In layout dedicated no socket of the host has the node's address.
func (g *Gateway) gated() []bpf.SocketKey {
	if g.s.Layout == Dedicated {
		return nil
	}
	ports := g.s.SNATPorts
	sockets, scan := link.Sockets(ports.First, ports.Last)
	bound, scanBound := link.BoundTCP(ports.First, ports.Last)
	return gateKeys(append(sockets, bound...), errors.Join(scan, scanBound), ports)
}

// degraded notes what an optional part lacks, nil for nothing.
func (g *Gateway) degraded(part string, err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	x := &g.extras
	if x.faults[part] == text {
		return
	}
	if text == "" {
		g.log.Info("optional part works", "part", part)
	} else {
		g.log.Warn("an optional part does not work", "part", part, "error", err)
	}
	next := maps.Clone(x.faults)
	if next == nil {
		next = noFaults()
	}
	next[part] = text
	x.faults = next
	g.mu.Lock()
	g.stats.Degraded = next // never changed again
	g.mu.Unlock()
}

func (g *Gateway) closeExtras() {
	if g.extras.sock != nil {
		g.extras.sock.Close()
	}
	if g.extras.gate != nil {
		g.extras.gate.Close()
	}
	if g.extras.lookup != nil {
		g.extras.lookup.Close()
	}
	g.extras = extras{}
}
