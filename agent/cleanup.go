package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/agent/cniconf"
	"github.com/ovn-ebpf/ovn-ebpf/agent/gateway"
	"github.com/ovn-ebpf/ovn-ebpf/agent/management"
	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
	"github.com/ovn-ebpf/ovn-ebpf/agent/podnet"
	"github.com/ovn-ebpf/ovn-ebpf/agent/status"
)

// Cleanup takes everything of ours off the node, in the reverse of Run's
// order: CNI configuration and socket, pods' interfaces, management port, gateway, OVS's
// settings. A node that was taken over is given back instead, with its pods. Host addresses that
// Run had moved to the bridge go back to the uplink. Without OVSDB, or where another program owns
// OVS, it does the rest and reports that. It may be repeated, also after the uplink is gone.
func Cleanup(ctx context.Context, cfg Config, log *slog.Logger) error {
	errs := []error{allowSysctls(log)}
	if cfg.CNIConfDir != "" {
		errs = append(errs, removeFile(filepath.Join(cfg.CNIConfDir, ConfListName)), cniconf.Restore(cfg.CNIConfDir))
	}
	errs = append(errs, removeFile(cfg.CNISocket), removeMasquerade(ctx), status.Remove(cfg.RunDir))
	inherited := gateway.Inherited(cfg.RunDir)
	o, settings, err := dialOwn(ctx, cfg)
	if err != nil {
		errs = append(errs, fmt.Errorf("bridges and ports are left: %w", err))
	} else {
		defer o.Close()
		if cfg.AvoidNullNAT {
			errs = append(errs, o.AllowNullNAT(ctx))
		}
		if inherited { // pods go on, by the port that was there
			errs = append(errs, os.RemoveAll(podRecords(cfg)))
		} else {
			errs = append(errs, removePods(ctx, o, podRecords(cfg)), management.Cleanup(ctx, o))
		}
	}
	errs = append(errs, gateway.Cleanup(ctx, settings, o, log))
	if o != nil && !inherited { // ovn-controller goes on until nothing of the node needs it
		errs = append(errs, o.RestoreSettings(ctx))
	}
	return errors.Join(errs...)
}

// dialOwn connects to an OVS whose bridges are not somebody else's: there,
// deleting the gateway bridge would cut the host off. Without one it returns
// what of the settings is known.
func dialOwn(ctx context.Context, cfg Config) (*ovs.Client, gateway.Settings, error) {
	s := cfg.Defaulted()
	if w, is := gateway.InheritedWiring(cfg.RunDir); is {
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
	if s.Uplink == "" { // no default route any more: what the bridge was made for
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

func dialShortly(ctx context.Context, cfg Config) (*ovs.Client, error) {
	dial, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return ovs.Dial(dial, cfg.OVSDB)
}

// removePods removes pods' interfaces, those too whose ports are gone.
func removePods(ctx context.Context, o *ovs.Client, records string) error {
	return errors.Join(podnet.Cleanup(ctx, o), os.RemoveAll(records))
}
