package agent

import (
	"context"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/agent/cniconf"
	"github.com/ovn-ebpf/ovn-ebpf/loop"
)

// announce maintains the node's CNI configuration until ctx ends: it exists while the node is
// ready. It also triggers the fault otherNetworkFirst when the configuration of another network
// begins or ceases to be preferred.
func (a *agent) announce(ctx context.Context) error {
	announcer := cniconf.Announcer{
		Dir:       a.cfg.CNIConfDir,
		Socket:    a.cfg.CNISocket,
		Exclusive: a.cfg.CNIExclusive,
		Log:       a.log,
	}

	var prefersOther bool // the runtime prefers another network

	return loop.Run(ctx, loop.Options{
		Name: "CNI configuration", Wake: a.ready.Changed, Resync: 5 * time.Second, Log: a.log,
		Apply: func(ctx context.Context) error {
			if now := a.otherNetworkFirst(ctx) != nil; now != prefersOther {
				prefersOther = now

				a.environment.Trigger()
			}

			return announcer.Step(a.ready.Missing(), time.Now())
		},
	})
}
