package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/agent/cniconf"
	"github.com/ovn-ebpf/ovn-ebpf/agent/gateway"
	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/agent/management"
	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
	"github.com/ovn-ebpf/ovn-ebpf/agent/status"
	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
	"github.com/ovn-ebpf/ovn-ebpf/loop"
	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// gatewaySettings detects the settings that are not configured. Its errors are permanent: no
// uplink, a bridge name that is too long, a missing encap address.
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

// bridgePrefix and the uplink's name form the bridge's name, as in ovn-kubernetes.
const bridgePrefix = "br"

// withUplink returns s with the uplink, and the names that depend on it.
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

// notHost returns the devices with addresses that the host must not use. In layout bridged, the
// bridge has the host's addresses.
func notHost(w gateway.Wiring) []string {
	if w.Layout == verdict.Bridged {
		return []string{management.Name}
	}

	return []string{w.Bridge, management.Name}
}

// resolve completes the settings from OVS. Its errors are permanent: a foreign bridge, or a name
// that is too long. After any other error of OVS, the settings stay as they are.
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

// allowSysctls makes the network sysctls writable where a container runtime has mounted them
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

// chassis is the node in OVN.
type chassis struct {
	id     string     // the system-id of Open vSwitch
	tunnel netip.Addr // address of the node's end of all tunnels
}

// tunnelAddress returns the address of the node's tunnels: the configured one, or else that of the
// gateway. In layout dedicated the gateway's address is not the host's.
func (a *agent) tunnelAddress() (netip.Addr, error) {
	cfg := a.cfg
	if cfg.EncapIP.IsValid() {
		return cfg.EncapIP, nil
	}

	if a.gateway != nil && cfg.Layout != verdict.Dedicated {
		n, _ := a.gateway.View().Node()
		if encap := n.TunnelAddress(cfg.EncapIP); encap.IsValid() {
			return encap, nil
		}
	}

	encap, err := gateway.EncapAddress(cfg.Settings)
	if err == nil && !encap.IsValid() {
		err = fmt.Errorf("encap address: the host has none on %s", cfg.Uplink)
	}

	return encap, err
}

// syncOVS writes the settings for ovn-controller, and updates a.chassis. The system-id changes when
// Open vSwitch is installed again, or an operator sets another one.
func (a *agent) syncOVS(ctx context.Context) error {
	cfg := a.cfg

	encap, err := a.tunnelAddress()
	if err != nil {
		return err
	}

	refused, err := a.refusedChassis(ctx)
	if err != nil {
		return err
	}

	id, err := a.ovs.SyncSettings(ctx, ovs.Settings{
		Remote: cfg.SBAddress, EncapIP: encap.String(), DatapathType: cfg.Datapath,
		Hostname: cfg.NodeName, SystemID: cfg.NodeName, FixedSystemID: cfg.ChassisOfNode, Refused: refused,
	})
	if err != nil {
		return err
	}

	now := chassis{id, encap}
	if before := a.chassis.Swap(&now); before != nil && *before != now {
		a.log.Info("the node's chassis has changed", "system-id", id, "tunnels", encap, "before", *before)
		a.nodeWake.Trigger()
	}

	return nil
}

// refusedChassis reports whether another node keeps this node's system-id. The controller decides
// that. Until it has decided, the system-id is refused if another node had it first, which means
// that this Node's annotation does not have it yet, or it was refused before. While the Node is not
// known, the result is that of the last agent, which OVS keeps.
func (a *agent) refusedChassis(ctx context.Context) (bool, error) {
	id, refused, err := a.ovs.Chassis(ctx, a.cfg.NodeName)
	node := a.cluster.Node()

	if err != nil || node == nil {
		return refused, err
	}

	if node.Annotations[annotation.ChassisTakenBy] != "" {
		return true, nil
	}

	return a.cluster.ChassisTaken(id) && (refused || node.Annotations[annotation.ChassisID] != id), nil
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

// paths returns the files, sockets and addresses that "ovnkube status" reads.
func (c Config) paths() status.Paths {
	p := status.Paths{
		PinDir:     c.PinDir,
		RunDir:     c.RunDir,
		OVSDB:      c.OVSDB,
		OVSRunDir:  c.OVSRunDir,
		OVNRunDir:  c.OVNRunDir,
		Metrics:    c.MetricsAddr,
		MetricsTLS: c.MetricsTLS.On(),
		CNISocket:  c.CNISocket,
	}
	if c.CNIConfDir != "" {
		p.ConfList = filepath.Join(c.CNIConfDir, cniconf.File)
	}

	return p
}

// Fail records for "ovnkube status" the error with which the agent has ended. The configuration may
// be invalid.
func (c Config) Fail(failure error) error {
	r := status.Record{Node: c.NodeName, Paths: c.paths(), Failure: failure.Error()}

	return status.Complete(c.RunDir, r)
}

// record writes the agent's configuration for "ovnkube status". An error is only logged, because
// nothing else reads the record.
func (a *agent) record() {
	c, s := a.cfg, a.cfg.Settings

	r := status.Record{
		Node: c.NodeName, Started: time.Now().UTC().Truncate(time.Second),
		Wiring: status.Wiring{
			Layout: s.Layout.String(), Backend: string(s.Backend), Mode: "shared", Datapath: s.Datapath,
			Uplink: s.Uplink, Bridge: s.Bridge, VLAN: s.VLAN, NoEBPF: s.NoEBPF, Shortcuts: s.Shortcuts,
		},
		Paths: c.paths(),
	}
	if s.Local {
		r.Wiring.Mode = "local"
	}

	if s.NoGateway {
		r.Wiring.Mode = "none"
	}

	if s.Shortcuts {
		r.Wiring.NoShortcuts = s.NoShortcuts()
	}

	r.Ports.First, r.Ports.Last, r.Ports.NodePorts = s.SNATPorts.First, s.SNATPorts.Last, s.NodePorts
	r.Ports.FirstNodePort, r.Ports.LastNodePort = s.NodePortRange.First, s.NodePortRange.Last

	if err := status.Write(c.RunDir, r); err != nil {
		a.log.Warn("cannot write the record for ovnkube status", "error", err)
	}
}
