package gateway

import (
	"fmt"
	"log/slog"
	"net/netip"
	"reflect"
	"sync"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
)

// View is the gateway's state as published to other parts of the agent. Its methods are safe for
// concurrent use.
type View struct {
	s         Settings
	changed   func()
	cluster   func() (internal, annotated []netip.Addr) // Source.Addresses, or nil
	addresses *addressKeeper

	mu      sync.Mutex // guards the fields below
	host    Host       // as read last; zero before
	node    Node
	hasNode bool   // node was observed
	fault   string // why the state differs from the desired one, or ""
}

// Node returns the node as last observed, and false before the first observation.
func (v *View) Node() (Node, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()

	return v.node, v.hasNode
}

// Overlap is CheckOverlap for the host as last observed.
func (v *View) Overlap() error { return checkOverlap(v.lastHost(), v.s) }

// DefaultRoutes returns the host's default routes as last observed.
func (v *View) DefaultRoutes() []link.DefaultRoute { return v.lastHost().Defaults }

func (v *View) lastHost() Host {
	v.mu.Lock()
	defer v.mu.Unlock()

	return v.host
}

// Missing returns the reason why the gateway is not ready, or "".
func (v *View) Missing() string {
	v.mu.Lock()
	defer v.mu.Unlock()

	return v.fault
}

// deriveNode returns the node, with the addresses that it keeps although the host has lost them.
func (v *View) deriveNode(h Host, s Settings) Node {
	n := nodeOf(h, s)

	areConfigured := len(s.Addresses) > 0 // and not the host's
	if areConfigured {
		return n
	}

	return v.addresses.keepAddresses(n, h, time.Now())
}

// setNode publishes a changed node.
func (v *View) setNode(n Node, log *slog.Logger) {
	v.mu.Lock()

	changed := !reflect.DeepEqual(n, v.node)
	if changed {
		v.node, v.hasNode = n, true
	}
	v.mu.Unlock()

	if !changed {
		return
	}

	v.changed()

	for _, p := range n.Stranded() {
		log.Warn("no next hop: no default route through the uplink and no --gateway-nexthop; pods reach only the uplink's network",
			"uplink", v.s.Uplink, "address", p)
	}
}

// setFault publishes the result of one round of the loop.
func (v *View) setFault(err error) {
	fault := ""
	if err != nil {
		fault = fmt.Sprintf("gateway: %v", err)
	}

	v.mu.Lock()
	changed := v.fault != fault
	v.fault = fault
	v.mu.Unlock()

	if changed {
		v.changed()
	}
}

// observe reads the host, with the ports that its own sockets use, and the addresses by which the
// node is known.
func (v *View) observe() (Host, error) {
	var known knownAddresses
	if v.cluster != nil {
		known.Internal, known.Annotated = v.cluster()
	}

	known.InUse = v.addresses.inUse()

	h, err := observe(v.s.Wiring, known)
	if err != nil {
		return h, err
	}

	v.mu.Lock()
	v.host = h
	v.mu.Unlock()

	if h.Ephemeral, err = readEphemeral(); err != nil {
		return h, err
	}

	h.TCP, h.UDP, err = link.Receivers()

	return h, err
}
