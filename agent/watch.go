package agent

import (
	"context"
	"net/netip"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
	"github.com/ovn-ebpf/ovn-ebpf/loop"
)

// controllerCheck is the interval between checks of ovn-controller, which does not signal the loss
// of its database.
const controllerCheck = time.Second

// watchController reports to the gateway whether ovn-controller is in sync. When ovn-controller
// does not answer, it counts as out of sync: OVN must not announce addresses that may belong to
// another node by now.
func (a *agent) watchController(ctx context.Context) error {
	ticker := time.NewTicker(controllerCheck)
	defer ticker.Stop()

	was, said := false, ""

	for {
		is, err := ovs.ControllerConnected(ctx, a.cfg.OVNRunDir)
		if ctx.Err() != nil {
			return nil
		}

		text := ""
		if err != nil {
			text = err.Error()
		}

		if text != said && text != "" {
			a.log.Warn("ovn-controller did not answer, assuming that it is out of sync",
				"error", err, "ovn-rundir", a.cfg.OVNRunDir)
		}

		if is != was {
			a.log.Info("connection of ovn-controller to the southbound database changed", "connected", is)
			a.gateway.Inputs().SetInSync(is)
		}

		was, said = is, text

		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// followAddresses keeps connections to the API server from hanging on an address that the host has
// lost.
func (a *agent) followAddresses(ctx context.Context) error {
	wake := loop.NewSignal()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return link.Watch(ctx, a.log, func(string) { wake.Trigger() }) })
	group.Go(func() error {
		return loop.Run(ctx, loop.Options{
			Name:   "host addresses",
			Wake:   wake,
			Resync: time.Minute,
			Log:    a.log,
			Apply: func(context.Context) error {
				have, err := link.Addresses()
				if err != nil {
					return err
				}

				var addrs []netip.Addr
				for _, h := range have {
					addrs = append(addrs, h.Prefix.Addr())
				}

				a.cluster.FollowAddresses(addrs)

				return nil
			},
		})
	})

	return group.Wait()
}
