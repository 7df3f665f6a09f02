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

// watchController reports to the gateway whether ovn-controller is in sync: connected to the
// Southbound database. When it does not answer, it counts as out of sync: OVN must not announce
// addresses that may belong to another node by now. watchController logs each change once.
func (a *agent) watchController(ctx context.Context) error {
	ticker := time.NewTicker(controllerCheck)
	defer ticker.Stop()

	wasConnected, lastError := false, ""

	for {
		isConnected, err := ovs.ControllerConnected(ctx, a.cfg.OVNRunDir)
		if ctx.Err() != nil {
			return nil
		}

		text := ""
		if err != nil {
			text = err.Error()
		}

		if text != lastError && text != "" {
			a.log.Warn("ovn-controller did not answer, assuming that it is out of sync",
				"error", err, "ovn-rundir", a.cfg.OVNRunDir)
		}

		if isConnected != wasConnected {
			a.log.Info("connection of ovn-controller to the southbound database changed", "connected", isConnected)
			a.gateway.Inputs().SetInSync(isConnected)
		}

		wasConnected, lastError = isConnected, text

		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// followAddresses passes the host's addresses to the client of the API server until ctx ends. The
// client closes connections from an address that the host has lost, which would otherwise hang.
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
				addresses, err := link.Addresses()
				if err != nil {
					return err
				}

				var ips []netip.Addr
				for _, a := range addresses {
					ips = append(ips, a.Prefix.Addr())
				}

				a.cluster.FollowAddresses(ips)

				return nil
			},
		})
	})

	return group.Wait()
}
