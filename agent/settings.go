package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/ovn-ebpf/ovn-ebpf/agent/gateway"
	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/agent/management"
	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
	"github.com/ovn-ebpf/ovn-ebpf/loop"
	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// gatewaySettings completes the gateway's settings of cfg without OVS: the backend, the uplink and
// the names that follow from it, the datapath, and the address of the tunnels. Its errors are
// permanent: no uplink, a bridge name that is too long, a missing or useless encap address.
// Afterwards, resolve completes them from OVS.
func gatewaySettings(cfg Config, log *slog.Logger) (gateway.Settings, error) {
	s := cfg.Defaulted()
	s.Tunnel = cfg.EncapIP

	uplink, err := findUplink(s.Uplink)
	if err != nil {
		return s, err
	}

	s = withUplink(s, uplink)
	if s.Layout != verdict.Bridged { // in layout bridged, OVS may know another name
		if err := checkBridgeName(s); err != nil {
			return s, err
		}
	}

	reason := "configured"
	if s.Datapath == "" {
		s.Datapath, reason = ovs.DetectDatapath(link.HasGenericFamily)
	}

	log.Info("datapath", "type", s.Datapath, "reason", reason)

	if s.Userspace() && s.Layout == verdict.Direct {
		if !cfg.EncapIP.IsValid() {
			return s, fmt.Errorf("encap address: none given: the userspace datapath needs one of its own, "+
				"in a subnet that the node has no address in (datapath netdev: %s)", reason)
		}

		s.Encap = cfg.encapPrefix()
	}

	if s.Userspace() && s.Layout == verdict.Bridged && cfg.EncapIP.IsValid() {
		return s, fmt.Errorf("encap address %s: layout bridged on the userspace datapath tunnels from the node's own",
			cfg.EncapIP)
	}

	return s, s.Validate()
}

// findUplink returns the configured name if there is such a device, or else the device of the
// default route.
func findUplink(name string) (string, error) {
	if name != "" {
		if _, err := link.Get(name); err != nil {
			return "", fmt.Errorf("find uplink %s: %w", name, err)
		}

		return name, nil
	}

	device, err := link.DefaultDevice()
	if err != nil {
		return "", fmt.Errorf("find uplink: %w", err)
	}

	if device == "" {
		return "", errors.New("find uplink: the host has no default route, and no interface is configured")
	}

	return device, nil
}

// bridgePrefix and the uplink's name form the name of the gateway bridge, as in ovn-kubernetes.
const bridgePrefix = "br"

// withUplink returns s with the uplink, and the bridge and NotHost, which depend on it.
func withUplink(s gateway.Settings, uplink string) gateway.Settings {
	s.Uplink, s.Bridge = uplink, bridgePrefix+uplink
	s.NotHost = notHost(s.Wiring)

	return s
}

// maxDeviceName is the kernel's limit (IFNAMSIZ) without the final zero.
const maxDeviceName = 15

// checkBridgeName returns an error if the kernel cannot have a device with the name of the bridge.
func checkBridgeName(s gateway.Settings) error {
	if len(s.Bridge) > maxDeviceName {
		return fmt.Errorf("uplink %s: the bridge's name %s is longer than %d characters",
			s.Uplink, s.Bridge, maxDeviceName)
	}

	return nil
}

// notHost returns the devices whose addresses are not addresses of the host: the management port,
// and the bridge. In layout bridged, the bridge has the host's addresses.
func notHost(w gateway.Wiring) []string {
	if w.Layout == verdict.Bridged {
		return []string{management.Name}
	}

	return []string{w.Bridge, management.Name}
}

// resolve completes the settings from OVS, where an existing bridge may have another name. Its
// errors are permanent: a foreign bridge, or a name that is too long. After any other error of OVS,
// the settings stay as they are.
func resolve(ctx context.Context, s gateway.Settings, o *ovs.Client) (gateway.Settings, error) {
	w, err := gateway.Resolve(ctx, o, s)
	if errors.Is(err, ovs.ErrForeign) {
		return s, err
	}

	if err == nil {
		s.Wiring, s.NotHost = w, notHost(w)
	}

	return s, checkBridgeName(s)
}

// allowSysctls makes the network sysctls writable in a container whose runtime has mounted them
// read-only.
func allowSysctls(log *slog.Logger) error {
	changed, err := link.AllowSysctls()
	if err != nil {
		return fmt.Errorf("write sysctls of the network: %w", err)
	}

	if changed {
		log.Info("network sysctls were read-only in this container, made them writable")
	}

	return nil
}

// awaitMove waits until no NIC is being moved to or from a bridge. During such a move, the host's
// addresses and routes change from one device to another. It returns an error when ctx ends.
func awaitMove(ctx context.Context, rundir string, log *slog.Logger) error {
	report := func(move string) { // "": there is none any more
		if move != "" {
			log.Info("waiting for a move of the host's addresses", "move", move)
		}
	}

	return loop.Insist(ctx, report, func() error { return gateway.Moving(rundir) })
}
