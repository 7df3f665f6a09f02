package agent

import (
	"context"
	"net/netip"
	"os/exec"
	"slices"

	"github.com/ovn-ebpf/ovn-ebpf/agent/management"
	"github.com/ovn-ebpf/ovn-ebpf/agent/masquerade"
)

// syncMasquerade gives packets of pods that leave by the host the host's
// address, in local gateway mode. In another mode it removes what that mode has
// left.
func (a *agent) syncMasquerade(ctx context.Context, subnets []netip.Prefix) error {
	if !a.settings.Local {
		if a.notLocal {
			return nil
		}
		if err := removeMasquerade(ctx); err != nil { // a kernel without nftables never had it
			a.log.Info("cannot look for what local gateway mode has left", "error", err)
		}
		a.notLocal = true
		return nil
	}
	uplinks := []string{a.settings.HostDevice()}
	if b := a.settings.Bridge; !slices.Contains(uplinks, b) {
		uplinks = append(uplinks, b) // answers of Services, which the hairpin serves
	}
	c := masquerade.Config{
		Port: management.Name, Uplinks: uplinks, Pods: subnets,
		Cluster: slices.Concat(a.settings.PodCIDRs, a.settings.ServiceCIDRs), Redirects: a.gateway.Redirects(),
		Ports: a.settings.SNATPorts,
	}
	if a.settings.Routable {
		c.Routable = subnets
	}
	return masquerade.Sync(ctx, c)
}

// removeMasquerade needs no nft where local gateway mode cannot have been.
func removeMasquerade(ctx context.Context) error {
	if _, err := exec.LookPath("nft"); err != nil {
		return nil
	}
	return masquerade.Remove(ctx)
}
