package main

import (
	"context"

	"github.com/ovn-ebpf/ovn-ebpf/bench"
)

// overlayOnly is the name of a variant that only profiles have (bench/run -profile). It shows what
// part of the overlay's cost is that of OVS without any gateway.
const overlayOnly = "overlay-only"

// overlay is OVS with br-int but without a gateway: the uplink belongs to the host alone.
type overlay struct{ ovs ovs }

func (*overlay) traits() traits {
	return traits{
		name: overlayOnly, layout: "none",
		tests: []string{bench.HostUDPRR, bench.OverlayUDPRR},
	}
}

func (v *overlay) setup(ctx context.Context) error {
	if err := v.ovs.start(ctx); err != nil {
		return err
	}

	if err := hostAddresses(ctx, "eth0"); err != nil {
		return err
	}

	return v.ovs.integration(ctx, "", "")
}

func (v *overlay) watch(ctx context.Context, _ test) (func(int) error, error) {
	return func(int) error { return v.ovs.settle(ctx) }, v.ovs.settle(ctx)
}
