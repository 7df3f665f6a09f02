package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/netip"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/agent/gateway"
	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/agent/management"
	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
)

// IntegrationBridge is OVN's.
const IntegrationBridge = "br-int"

const maxDeviceName = 15

// gatewaySettings resolves what the configuration leaves to detection. It
// fails for what cannot heal: no uplink, a name that is too long, no encap
// address where one is needed.
func gatewaySettings(cfg Config, log *slog.Logger) (gateway.Settings, error) {
	s := gateway.Settings{
		NextHops: cfg.NextHops, SNATPorts: cfg.SNATPorts, NodePorts: cfg.NodePorts,
		ServiceCIDRs: cfg.ServiceCIDRs, PodCIDRs: cfg.ClusterSubnets,
		PinDir: cfg.PinDir, RunDir: cfg.RunDir, OVSRunDir: cfg.OVSRunDir,
	}
	var err error
	if s.Uplink, err = findUplink(cfg.Uplink); err != nil {
		return s, err
	}
	s.Bridge = "br" + s.Uplink
	if len(s.Bridge) > maxDeviceName {
		return s, fmt.Errorf("uplink %s: the bridge's name %s is longer than %d characters", s.Uplink, s.Bridge, maxDeviceName)
	}
	s.NotHost = []string{s.Bridge, management.Name}
	reason := "configured"
	if s.Datapath = cfg.Datapath; s.Datapath == "" {
		s.Datapath, reason = ovs.DetectDatapath(link.HasGenericFamily)
	}
	log.Info("datapath", "type", s.Datapath, "reason", reason)
	if s.Datapath == ovs.DatapathNetdev {
		if !cfg.EncapIP.IsValid() {
			return s, errors.New("encap address: none given: the userspace datapath needs one of its own, in a subnet that the node has no address in")
		}
		s.Encap = cfg.encapPrefix()
	}
	return s, nil
}

// canEnterNamespaces says what is missing to set pods' interfaces up.
func canEnterNamespaces() error {
	err := link.InNetns("/proc/self/ns/net", func() error { return nil })
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("set up pods' interfaces: missing CAP_SYS_ADMIN: %w", err)
	}
	return err
}

func findUplink(name string) (string, error) {
	if name != "" {
		if _, err := link.Get(name); err != nil {
			return "", fmt.Errorf("find uplink %s: %w", name, err)
		}
		return name, nil
	}
	routes, err := link.DefaultRoutes()
	if err != nil {
		return "", fmt.Errorf("find uplink: %w", err)
	}
	if len(routes) == 0 {
		return "", errors.New("find uplink: the host has no default route, and no interface is configured")
	}
	return routes[0].Device, nil
}

// encapAddress is the configured one or the node's.
func encapAddress(cfg Config, n gateway.Node) netip.Addr {
	if cfg.EncapIP.IsValid() {
		return cfg.EncapIP
	}
	if a := n.Address(true); a.IsValid() {
		return a
	}
	return n.Address(false)
}

// syncOVS writes the settings that ovn-controller reads, and returns the
// chassis' name.
func syncOVS(ctx context.Context, cfg Config, s gateway.Settings, o *ovs.Client) (systemID string, err error) {
	n, err := gateway.ReadNode(s)
	if err != nil {
		return "", err
	}
	encap := encapAddress(cfg, n)
	if !encap.IsValid() {
		return "", fmt.Errorf("encap address: uplink %s has no address", s.Uplink)
	}
	return o.SyncSettings(ctx, ovs.Settings{
		Remote: cfg.SBAddress, EncapIP: encap.String(), DatapathType: s.Datapath,
		Hostname: cfg.NodeName, SystemID: cfg.NodeName,
	})
}

// insist calls do until it succeeds or ctx ends, and tells report why it has
// not yet; "" at success.
func insist(ctx context.Context, report func(string), do func() error) error {
	const first, most = 100 * time.Millisecond, 5 * time.Second
	for wait := first; ; wait = min(2*wait, most) {
		err := do()
		if err == nil {
			report("")
			return nil
		}
		report(err.Error())
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
	}
}
