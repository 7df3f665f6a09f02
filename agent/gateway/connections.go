package gateway

import (
	"context"
	"math"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/bpf"
	"github.com/ovn-ebpf/ovn-ebpf/loop"
	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// connectionScanInterval is how often run lists the host's connections at frontends.
const connectionScanInterval = 2 * time.Second

// frontendConnections are, for the OpenFlow backend, the host's own connections whose local address
// and port are those of a frontend. Such a connection may be older than the frontend, or bound to
// the port. The eBPF programs look it up in the kernel for each packet. Flows cannot do that, so
// each of these connections has a flow. Its methods are safe for concurrent use.
type frontendConnections struct {
	mu    sync.Mutex             // guards the fields below
	ports map[bpf.SocketKey]bool // of the frontends
	last  []link.Socket          // connections for which there are flows
}

// listAt sets the frontends and returns the connections at them, for which the caller writes flows.
func (c *frontendConnections) listAt(
	frontends map[verdict.ServiceKey]verdict.ServiceOwner,
	addrs map[netip.Addr]verdict.AddrKind,
) ([]link.Socket, error) {
	ports := map[bpf.SocketKey]bool{}

	for k, owner := range frontends {
		if owner == verdict.ServiceOVN && addrs[k.Addr] == verdict.AddrHost {
			ports[bpf.SocketKey{Proto: k.Proto, Port: k.Port}] = true
		}
	}

	c.mu.Lock()
	defer c.mu.Unlock()

	c.ports = ports

	now, err := c.list()
	if err == nil {
		c.last = now
	}

	return now, err
}

// list returns the connections at the frontends. The caller must hold mu.
func (c *frontendConnections) list() ([]link.Socket, error) {
	if len(c.ports) == 0 {
		return nil, nil
	}

	sockets, err := link.Sockets(1, math.MaxUint16) // every port

	return slices.DeleteFunc(sockets, func(s link.Socket) bool {
		isConnected := s.Remote.IsValid()
		return !isConnected || !c.ports[bpf.SocketKey{Proto: s.Proto, Port: s.Local.Port()}]
	}), err
}

// run triggers wake when the connections differ from those in the flows, until ctx ends.
func (c *frontendConnections) run(ctx context.Context, wake loop.Signal) error {
	return loop.Every(ctx, connectionScanInterval, func() {
		if c.haveChanged() {
			wake.Trigger()
		}
	})
}

// haveChanged also returns true after an error, because the next round of the gateway reports it.
func (c *frontendConnections) haveChanged() bool {
	c.mu.Lock()
	defer c.mu.Unlock()

	now, err := c.list()

	return err != nil || !slices.Equal(now, c.last)
}
