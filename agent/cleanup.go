package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/agent/cniconf"
	"github.com/ovn-ebpf/ovn-ebpf/agent/gateway"
	"github.com/ovn-ebpf/ovn-ebpf/agent/management"
	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
	"github.com/ovn-ebpf/ovn-ebpf/agent/podnet/bridge"
	"github.com/ovn-ebpf/ovn-ebpf/agent/status"
)

// Cleanup removes all traces of the agent from the node, in this order: CNI configuration and
// socket, pods' interfaces, management port, gateway, settings in OVS. Host addresses on the bridge
// return to the uplink. On a node that was taken over from another network, the pods and the
// management port stay for that network. If OVSDB is down or another program owns the bridges,
// Cleanup does the rest and returns an error. Cleanup is idempotent, and works without the uplink.
func Cleanup(ctx context.Context, cfg Config, log *slog.Logger) error {
	errs := []error{allowSysctls(log)}
	if cfg.CNIConfDir != "" {
		errs = append(errs, cniconf.Remove(cfg.CNIConfDir))
	}

	errs = append(errs, removeFile(cfg.CNISocket), removeMasquerade(ctx), status.Remove(cfg.RunDir))
	errs = append(errs, ovs.RemoveAffinityFlows(ctx, cfg.OVSRunDir))

	// Read this before gateway.Cleanup, which removes the record of a takeover.
	takenOver := gateway.TakenOver(cfg.RunDir)

	o, settings, err := dialOwn(ctx, cfg)
	if err != nil {
		errs = append(errs, fmt.Errorf("leave bridges and ports: %w", err))
	} else {
		defer o.Close()

		if cfg.AvoidNullNAT {
			errs = append(errs, o.AllowNullNAT(ctx))
		}

		if takenOver { // pods and the management port keep working in the network that had the node before
			errs = append(errs, os.RemoveAll(podRecords(cfg)))
		} else {
			errs = append(errs, removePods(ctx, o, podRecords(cfg)), management.Cleanup(ctx, o))
		}
	}

	errs = append(errs, gateway.Cleanup(ctx, settings, o, log))
	if o != nil && !takenOver { // ovn-controller runs until the node no longer needs it
		errs = append(errs, o.RestoreSettings(ctx))
	}

	return errors.Join(errs...)
}

// dialOwn connects to OVS and completes the gateway's settings. It returns an error if another
// program owns the bridges, because deleting a foreign gateway bridge would cut the host off. With
// an error, the client is nil, and the settings are those known so far.
func dialOwn(ctx context.Context, cfg Config) (*ovs.Client, gateway.Settings, error) {
	s := cfg.Defaulted()
	if w, takenOver := gateway.TakeoverWiring(cfg.RunDir); takenOver {
		s.Wiring, s.NotHost = w, notHost(w)
		o, err := dialShortly(ctx, cfg)

		return o, s, err
	}

	uplink, uplinkErr := findUplink(cfg.Uplink)
	s = withUplink(s, cmp.Or(uplink, cfg.Uplink))

	o, err := dialShortly(ctx, cfg)
	if err != nil {
		return nil, s, err
	}

	if s.Uplink == "" { // the default route is gone, but the bridge is named after the uplink
		bridge, err := o.BridgeMapping(ctx, gateway.Network)
		if err != nil || bridge == "" {
			o.Close()
			return nil, s, errors.Join(uplinkErr, err)
		}

		s = withUplink(s, strings.TrimPrefix(bridge, bridgePrefix))
	}

	s, err = resolve(ctx, s, o)
	if err == nil {
		err = gateway.Recover(ctx, s, o)
	}

	if err != nil {
		o.Close()
		return nil, s, err
	}

	return o, s, nil
}

// dialShortly gives up after a few seconds, unlike the agent, because an operator waits for
// Cleanup.
func dialShortly(ctx context.Context, cfg Config) (*ovs.Client, error) {
	dial, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()

	return ovs.Dial(dial, cfg.OVSDB)
}

// removePods removes pods' interfaces, including those without a port in OVS, and their records.
func removePods(ctx context.Context, o *ovs.Client, records string) error {
	return errors.Join(bridge.Cleanup(ctx, o), os.RemoveAll(records))
}

// removeFile removes a file, if it exists.
func removeFile(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}

	return nil
}
