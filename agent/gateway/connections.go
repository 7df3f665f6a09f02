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

// connectionScan is how often the host's connections at frontends are listed for flows.
const connectionScan = 2 * time.Second

// connections are the host's connections at frontends on its own addresses. Such a connection may
// be older than the frontend, or bound to the port. The programs look it up in the kernel for each
// packet. Flows cannot do that, so each of these connections has a flow. Its methods are safe for
// concurrent use.
type connections struct {
	mu    sync.Mutex
	ports map[bpf.SocketKey]bool // of the frontends
	last  []link.Socket          // in the flows
}

// at sets the frontends and returns the connections for their flows.
func (c *connections) at(
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

func (c *connections) list() ([]link.Socket, error) {
	if len(c.ports) == 0 {
		return nil, nil
	}

	all, err := link.Sockets(1, math.MaxUint16)

	return slices.DeleteFunc(all, func(s link.Socket) bool {
		return !s.Remote.IsValid() || !c.ports[bpf.SocketKey{Proto: s.Proto, Port: s.Local.Port()}]
	}), err
}

// run triggers wake when the connections differ from those in the flows, until ctx ends.
func (c *connections) run(ctx context.Context, wake loop.Signal) error {
	return loop.Every(ctx, connectionScan, func() {
		if c.changed() {
			wake.Trigger()
		}
	})
}

// changed ignores errors, because the next round of the gateway reports them.
func (c *connections) changed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()

	now, err := c.list()

	return err != nil || !slices.Equal(now, c.last)
}
