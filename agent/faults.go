package agent

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/agent/cniconf"
	"github.com/ovn-ebpf/ovn-ebpf/agent/environment"
	"github.com/ovn-ebpf/ovn-ebpf/agent/gateway"
	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/agent/management"
	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// The methods of this file with a context are checks of package environment (environment.Check).
// Each finds one fault that the agent cannot repair. addParts registers them. They are ordered by
// subject: addresses, routes, chassis, datapath, others.

// addressGone finds a gateway address that the host has lost. The gateway keeps it for 30 s.
func (a *agent) addressGone(context.Context) *environment.Fault {
	n, known := a.gateway.View().Node()
	if !known || len(n.Gone) == 0 {
		return nil
	}

	text := fmt.Sprintf("the gateway's address %s is gone from %s: traffic between pods and other networks waits for it, "+
		"and after 30 s the gateway takes another address of the device; "+
		"restore the address in the host's network configuration", n.Gone[0], a.cfg.HostDevice())

	return &environment.Fault{Reason: environment.GatewayAddressGone, Text: text}
}

// addressDiffers finds a gateway whose address is not the Node's InternalIP, because no device of
// the host has the InternalIP. In layout dedicated, the gateway's address is never the host's.
func (a *agent) addressDiffers(context.Context) *environment.Fault {
	n, known := a.gateway.View().Node()
	if !known || a.cfg.Layout == verdict.Dedicated {
		return nil
	}

	internalIPs, _ := a.cluster.Addresses()
	onHost := func(ip netip.Addr) bool {
		return slices.ContainsFunc(n.HostCIDRs, func(p netip.Prefix) bool { return p.Addr() == ip })
	}

	for _, is4 := range []bool{true, false} {
		otherFamily := func(ip netip.Addr) bool { return ip.Is4() != is4 }
		internal := slices.DeleteFunc(slices.Clone(internalIPs), otherFamily)

		used := n.Address(is4)
		if !used.IsValid() || len(internal) == 0 || slices.ContainsFunc(internal, onHost) {
			continue
		}

		text := fmt.Sprintf(
			"the gateway uses %s, because no device of the host has the Node's InternalIP %s; "+
				"restore that address in the host's network configuration, or start kubelet with --node-ip=%s",
			used, internal[0], used)

		return &environment.Fault{Reason: environment.GatewayAddressDiffers, Text: text}
	}

	return nil
}

// networksOverlap finds an address of the host that was added to a network of pods or of the
// tunnels.
func (a *agent) networksOverlap(context.Context) *environment.Fault {
	err := a.gateway.View().Overlap()
	if err == nil {
		return nil
	}

	return &environment.Fault{Reason: environment.NetworksOverlap, Text: err.Error() +
		": packets for one of the two go to the other; remove the address from the host, or give the cluster another network"}
}

// defaultRouteElsewhere finds a gateway without next hops because every default route has moved
// from the detected uplink to other devices.
func (a *agent) defaultRouteElsewhere(context.Context) *environment.Fault {
	n, known := a.gateway.View().Node()
	if !known || len(n.NextHops) > 0 || len(n.Routes) > 0 {
		return nil
	}

	routes := a.gateway.View().DefaultRoutes()
	if len(routes) == 0 || !a.detected.uplink || a.cfg.NoGateway || a.cfg.Local {
		return nil
	}

	if slices.ContainsFunc(routes, func(r link.DefaultRoute) bool { return r.Device == a.cfg.HostDevice() }) {
		return nil
	}

	text := fmt.Sprintf("the default route is on %s, but the agent found uplink %s when it started: "+
		"pods reach only the uplink's network; "+
		"restart the agent to use %[1]s, or restore the default route of %[3]s",
		routes[0].Device, a.cfg.Uplink, a.cfg.HostDevice())

	return &environment.Fault{Reason: environment.DefaultRouteElsewhere, Text: text}
}

// noIPv4NextHop is noNextHop for IPv4.
func (a *agent) noIPv4NextHop(ctx context.Context) *environment.Fault { return a.noNextHop(ctx, true) }

// noIPv6NextHop is noNextHop for IPv6.
func (a *agent) noIPv6NextHop(ctx context.Context) *environment.Fault { return a.noNextHop(ctx, false) }

// noNextHop finds a gateway that has an address of a family but no route to other networks, in a
// cluster whose pods have addresses of that family.
func (a *agent) noNextHop(ctx context.Context, is4 bool) *environment.Fault {
	reason, family := environment.NoIPv6NextHop, "IPv6"
	if is4 {
		reason, family = environment.NoIPv4NextHop, "IPv4"
	}

	n, known := a.gateway.View().Node()
	if !known || a.cfg.NoGateway || a.cfg.Local {
		return nil
	}

	inFamily := func(p netip.Prefix) bool { return p.Addr().Is4() == is4 }
	if !slices.ContainsFunc(a.cfg.PodCIDRs, inFamily) || !slices.ContainsFunc(n.Stranded(), inFamily) {
		return nil
	}

	if a.defaultRouteElsewhere(ctx) != nil {
		return nil // that fault names the cause, and has better advice
	}

	elsewhere := ""

	device, err := link.OutsideDevice(is4)
	if err == nil && device != "" && device != a.cfg.HostDevice() {
		elsewhere = " (the host uses " + device + ")"
	}

	text := fmt.Sprintf(
		"no default route of %[1]s by %[2]s%[3]s: pods of this node reach only the network of %[2]s over %[1]s; "+
			"add such a route to the host, or configure --gateway-nexthop", family, a.cfg.HostDevice(), elsewhere)

	return &environment.Fault{Reason: reason, Text: text}
}

// nextHopDiffers finds next hops that do not answer, or for which the gateway router and the host
// use different link-layer addresses.
func (a *agent) nextHopDiffers(context.Context) *environment.Fault {
	if text := a.neighbours.Fault(); text != "" {
		return &environment.Fault{Reason: environment.NextHopUnreachable, Text: text}
	}

	return nil
}

// shownAfterwards is how long removed routes are reported after the agent has added them again.
const shownAfterwards = time.Minute

// routesRemoved finds routes of the host that were removed and that the agent has added again. The
// next removal may interrupt traffic, so the fault is reported although it is repaired.
func (a *agent) routesRemoved(context.Context) *environment.Fault {
	last := a.gateway.Stats().Restored
	if at := a.management.Restored(); at.After(last.At) {
		last = gateway.RestoredRoutes{Device: management.Name, At: at}
	}

	if last.At.IsZero() || time.Since(last.At) > shownAfterwards {
		return nil
	}

	text := fmt.Sprintf("routes of %s were removed at %s and added again; find out who flushes them: "+
		"a network manager (journalctl -u systemd-networkd -u NetworkManager), or an operator",
		last.Device, last.At.UTC().Format(time.RFC3339))

	return &environment.Fault{Reason: environment.RoutesRemoved, Text: text}
}

// chassisTaken returns why the node has no chassis in OVN, or "". It is a line of /readyz.
func (a *agent) chassisTaken() string {
	node := a.cluster.Node()
	if node == nil || node.Annotations[annotation.ChassisTakenBy] == "" {
		return ""
	}

	return fmt.Sprintf("node %s has the system-id %q of node %s, which keeps it: "+
		"give this node's Open vSwitch another one (ovs-vsctl set Open_vSwitch . external_ids:system-id=%s)",
		a.cfg.NodeName, a.chassis.Load().id, node.Annotations[annotation.ChassisTakenBy], a.cfg.NodeName)
}

// chassisTakenFault returns the text of chassisTaken as a fault, so that it also gets an Event.
func (a *agent) chassisTakenFault(context.Context) *environment.Fault {
	if text := a.chassisTaken(); text != "" {
		return &environment.Fault{Reason: environment.ChassisTaken, Text: text}
	}

	return nil
}

// chassisDiffers finds a chassis in the Southbound database that does not match the node. The
// controller compares the two, and annotates the Node with the difference.
func (a *agent) chassisDiffers(context.Context) *environment.Fault {
	node := a.cluster.Node()
	if node == nil || node.Annotations[annotation.ChassisFault] == "" {
		return nil
	}

	return &environment.Fault{
		Reason: environment.ChassisDiffers,
		Text:   node.Annotations[annotation.ChassisFault],
	}
}

// certificateInvalid finds a certificate for the Southbound database that is missing, damaged, for
// another node or not valid now, so ovn-controller cannot connect.
func (a *agent) certificateInvalid(context.Context) *environment.Fault {
	file := a.cfg.CertificateFile
	if !a.cfg.ChassisOfNode || file == "" {
		return nil
	}

	if _, err := os.Stat(filepath.Dir(file)); errors.Is(err, fs.ErrNotExist) {
		return nil // see Config.CertificateFile
	}

	const advice = "; look at the log of container certificate in the node's pod of ovn-ebpf-ovn-controller, " +
		"and at that of Deployment ovn-ebpf-certificates"

	invalid := func(format string, args ...any) *environment.Fault {
		text := "the node's certificate for the Southbound database " + fmt.Sprintf(format, args...) +
			", so ovn-controller cannot connect" + advice

		return &environment.Fault{Reason: environment.CertificateInvalid, Text: text}
	}

	pair, err := tls.LoadX509KeyPair(file, file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return invalid("is missing (%s)", file)
	case err != nil:
		return invalid("is damaged: %v", err)
	case pair.Leaf.Subject.CommonName != a.cfg.NodeName:
		return invalid("is of %q, not of node %q", pair.Leaf.Subject.CommonName, a.cfg.NodeName)
	case time.Now().After(pair.Leaf.NotAfter):
		return invalid("expired at %s", pair.Leaf.NotAfter.UTC().Format(time.RFC3339))
	case time.Now().Before(pair.Leaf.NotBefore):
		return invalid("is valid from %s, which is later than this node's clock",
			pair.Leaf.NotBefore.UTC().Format(time.RFC3339))
	}

	return nil
}

// kernelDatapathMissing finds a kernel without the datapath that the node uses. Open vSwitch
// reports this only in its log.
func (a *agent) kernelDatapathMissing(context.Context) *environment.Fault {
	if a.cfg.Userspace() || link.HasGenericFamily(ovs.KernelFamily) {
		return nil
	}

	return &environment.Fault{
		Reason: environment.KernelDatapathMissing,
		Text: "the kernel has no openvswitch, so Open vSwitch forwards nothing; " +
			"load the module (modprobe openvswitch), " +
			"or use the slower userspace datapath (--datapath netdev, in the chart ovs.datapath=netdev)",
	}
}

// kernelDatapathUnused finds a kernel that got the module openvswitch after the agent had chosen
// the userspace datapath.
func (a *agent) kernelDatapathUnused(context.Context) *environment.Fault {
	if !a.detected.datapath || !a.cfg.Userspace() || !link.HasGenericFamily(ovs.KernelFamily) {
		return nil
	}

	return &environment.Fault{
		Reason: environment.KernelDatapathUnused,
		Text: "the kernel has openvswitch since the agent started, " +
			"and the node still uses the slower userspace datapath; restart the agent, or configure --datapath netdev",
	}
}

// affinityLosesPackets finds a node that cannot write its flows for session affinity.
func (a *agent) affinityLosesPackets(context.Context) *environment.Fault {
	err := a.affinity.Fault()
	if err == nil {
		return nil
	}

	text := fmt.Sprintf("Services with sessionAffinity ClientIP lose the first packet of each client: %v; "+
		"find out what keeps ovs-ofctl from the flows of %s", err, ovs.IntegrationBridge)

	return &environment.Fault{Reason: environment.AffinityLosesPackets, Text: text}
}

// forwardDropped finds chains of other programs that drop packets of pods in local gateway mode.
func (a *agent) forwardDropped(context.Context) *environment.Fault {
	if text := a.forwardFault.Load(); text != nil && *text != "" {
		return &environment.Fault{Reason: environment.ForwardDropped, Text: *text}
	}

	return nil
}

// otherNetworkFirst finds CNI configurations of other networks that container runtimes read before
// ours.
func (a *agent) otherNetworkFirst(context.Context) *environment.Fault {
	if a.cfg.CNIConfDir == "" || a.cfg.CNIExclusive {
		return nil
	}

	others, err := cniconf.Others(a.cfg.CNIConfDir)
	if err != nil {
		return nil // the agent's own file cannot be written there, either, and that is logged
	}

	var paths []string
	for _, o := range cniconf.Preferred(others) {
		paths = append(paths, o.Path)
	}

	if paths == nil {
		return nil
	}

	text := fmt.Sprintf("new pods get another network: the container runtime takes %s before %s; "+
		"remove that network and then its file, "+
		"or start the agent with --cni-exclusive (in the chart config.CNI_EXCLUSIVE=true)",
		strings.Join(paths, ", "), cniconf.File)

	return &environment.Fault{Reason: environment.OtherNetworkFirst, Text: text}
}

// followGrace is the time for which the agent's copies of the cluster's objects may be behind, for
// example while the API server is restarted.
const followGrace = 30 * time.Second

// clusterNotFollowed returns a check for copies of the cluster's objects that have been behind for
// a while. The node continues with them. behind returns the reason why a copy is behind, or nil.
func clusterNotFollowed(behind func() error) environment.Check {
	var behindSince time.Time // zero: the copies are up to date

	return func(context.Context) *environment.Fault {
		err := behind()
		switch {
		case err == nil:
			behindSince = time.Time{}
			return nil
		case behindSince.IsZero():
			behindSince = time.Now()
		}

		if time.Since(behindSince) < followGrace {
			return nil
		}

		text := fmt.Sprintf(
			"changes of Services and pods do not reach the node: %v; check that the node reaches the API server", err)

		return &environment.Fault{Reason: environment.ClusterNotFollowed, Text: text}
	}
}
