package agent

import (
	"context"
	"errors"
	"net/netip"
	"os/exec"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ovn-ebpf/ovn-ebpf/agent/management"
	"github.com/ovn-ebpf/ovn-ebpf/agent/masquerade"
	"github.com/ovn-ebpf/ovn-ebpf/agent/service"
	"github.com/ovn-ebpf/ovn-ebpf/loop"
	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// syncMasquerade writes the nftables table of local gateway mode, in which packets of pods leave
// through the host: the host translates them to its own address, and redirects frontends of
// Services to pods. In other modes it removes the table that an earlier agent may have left.
func (a *agent) syncMasquerade(ctx context.Context, subnets []netip.Prefix) error {
	if !a.cfg.Local {
		if a.noLeftovers {
			return nil
		}

		// An error is not retried: on a kernel without nftables, the removal fails, but such a
		// kernel has no table either.
		if err := removeMasquerade(ctx); err != nil {
			a.log.Info("cannot check for leftovers of local gateway mode", "error", err)
		}

		a.noLeftovers = true

		return nil
	}

	uplinks := []string{a.cfg.HostDevice()}
	if b := a.cfg.Bridge; !slices.Contains(uplinks, b) {
		uplinks = append(uplinks, b) // for replies of Services, which take the hairpin
	}

	c := masquerade.Config{
		Port:      management.Name,
		Uplinks:   uplinks,
		Pods:      subnets,
		Cluster:   slices.Concat(a.cfg.PodCIDRs, a.cfg.ServiceCIDRs),
		Redirects: a.gateway.Services().Redirects(),
		Ports:     a.cfg.SNATPorts,
		Tunnels:   slices.Concat(a.cfg.PodCIDRs, a.cfg.PodTunnels),
		Hosts:     a.hostsInPodTunnels(),
	}
	if a.cfg.Routable {
		c.Routable = subnets
	}

	if err := masquerade.Sync(ctx, c); err != nil {
		return err
	}

	if a.forwardFault.Load() == nil {
		a.forwardWake.Trigger() // the first probe
	}

	a.dropRedirected(c.Redirects)

	return nil
}

// Waits for the next probe: after a sure and after an unsure result.
const probeEvery, probeSoon = 10 * time.Second, 3 * time.Second

// watchForward probes, in local gateway mode, whether nftables chains of other programs on the hook
// forward drop packets of pods. It keeps the result in a.forwardFault.
func (a *agent) watchForward(ctx context.Context) error {
	probe := masquerade.NewProbe(management.Name, a.cfg.OVSRunDir)
	forwarding := 0 // number of families that the host forwarded at the last probe

	return loop.Run(ctx, loop.Options{
		Name:   "probes through the hook forward",
		Wake:   a.forwardWake,
		Resync: probeEvery,
		Log:    a.log,
		Apply: func(ctx context.Context) error {
			r, err := probe.Look(ctx)
			if errors.Is(err, masquerade.ErrNoTable) {
				// The node has no subnet yet, or other programs have removed the table.
				a.nodeWake.Trigger()
				return nil
			}

			if err != nil {
				return err
			}

			if r.Forwards < forwarding { // others have changed the table or sysctls: write them again
				a.nodeWake.Trigger()
			}

			forwarding = r.Forwards

			if r.Unsure {
				time.AfterFunc(probeSoon, a.forwardWake.Trigger)
			}

			text := masquerade.Describe(r.Dropped, management.Name)
			if before := a.forwardFault.Swap(&text); before == nil || *before != text {
				a.environment.Trigger()
			}

			return nil
		},
	})
}

// hostsInPodTunnels returns the addresses of other nodes that are in the networks of PodTunnels.
// Pods may send tunnel packets to these networks, but never to nodes.
func (a *agent) hostsInPodTunnels() []netip.Addr {
	if len(a.cfg.PodTunnels) == 0 {
		return nil
	}

	published, hosts := a.cluster.Peers()

	return slices.DeleteFunc(slices.Concat(published, hosts), func(host netip.Addr) bool {
		return !slices.ContainsFunc(a.cfg.PodTunnels, func(p netip.Prefix) bool { return p.Contains(host) })
	})
}

// dropRedirected makes the gateway delete the conntrack entries of UDP connections to frontends
// with new or changed targets. While such an entry lasts, the kernel keeps sending the client's
// packets to the old destination.
func (a *agent) dropRedirected(redirects map[verdict.ServiceKey]service.Redirect) {
	targets := map[netip.AddrPort][]netip.AddrPort{} // by changed frontend; nil: it has none now

	for k, r := range redirects {
		before, known := a.redirected[k]
		if k.Proto == unix.IPPROTO_UDP && (!known || !slices.Equal(before.To, r.To)) {
			targets[netip.AddrPortFrom(k.Addr, k.Port)] = r.To
		}
	}

	for k := range a.redirected {
		if _, still := redirects[k]; k.Proto == unix.IPPROTO_UDP && !still {
			targets[netip.AddrPortFrom(k.Addr, k.Port)] = nil
		}
	}

	a.gateway.Services().Redirected(targets)
	a.redirected = redirects
}

// removeMasquerade removes the table of local gateway mode. Without nft there is nothing to remove,
// because local gateway mode needs nft and so cannot have run.
func removeMasquerade(ctx context.Context) error {
	if _, err := exec.LookPath("nft"); err != nil {
		return nil
	}

	return masquerade.Remove(ctx)
}
