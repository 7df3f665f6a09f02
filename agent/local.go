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

// syncMasquerade makes the host translate packets of pods to its own address in local gateway mode,
// in which they leave through the host. In other modes it removes leftovers of local mode.
func (a *agent) syncMasquerade(ctx context.Context, subnets []netip.Prefix) error {
	if !a.cfg.Local {
		if a.noLeftovers {
			return nil
		}

		if err := removeMasquerade(ctx); err != nil { // a kernel without nftables never had leftovers
			a.log.Info("cannot check for leftovers of local gateway mode", "error", err)
		}

		a.noLeftovers = true // also after an error: see there

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

// Intervals of probes through the hook forward: in general, and after an unsure result.
const probeEvery, probeSoon = 10 * time.Second, 3 * time.Second

// watchForward probes, in local gateway mode, whether chains of other programs drop packets of
// pods.
func (a *agent) watchForward(ctx context.Context) error {
	probe := masquerade.NewProbe(management.Name, a.cfg.OVSRunDir)
	forwarding := 0 // families that the host forwarded at the last look

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

			if r.Forwards < forwarding { // others have changed the table or sysctls
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

// hostsInPodTunnels returns the addresses of other nodes in the networks of PodTunnels, which do
// not cover nodes.
func (a *agent) hostsInPodTunnels() []netip.Addr {
	if len(a.cfg.PodTunnels) == 0 {
		return nil
	}

	published, hosts := a.cluster.Peers()

	return slices.DeleteFunc(slices.Concat(published, hosts), func(host netip.Addr) bool {
		return !slices.ContainsFunc(a.cfg.PodTunnels, func(p netip.Prefix) bool { return p.Contains(host) })
	})
}

// dropRedirected makes the gateway delete the host's UDP connections to frontends with changed
// redirects, so that the kernel redirects them again.
func (a *agent) dropRedirected(redirects map[verdict.ServiceKey]service.Redirect) {
	targets := map[netip.AddrPort][]netip.AddrPort{} // by changed frontend; nil: it has no redirect now

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
