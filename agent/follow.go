package agent

import (
	"context"
	"net/netip"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/agent/loop"
)

// followAddresses keeps connections to the API server from hanging on an address that the host has
// lost.
func (a *agent) followAddresses(ctx context.Context) error {
	wake := loop.NewSignal()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return link.Watch(ctx, a.log, func(string) { wake.Trigger() }) })
	group.Go(func() error {
		return loop.Run(ctx, loop.Options{Name: "host addresses", Wake: wake, Resync: time.Minute, Log: a.log, Apply: func(context.Context) error {
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
		}})
	})
	return group.Wait()
}
