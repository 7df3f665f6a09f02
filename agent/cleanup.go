package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/agent/gateway"
	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/agent/management"
	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
)

// Cleanup takes everything of ours off the node, in the reverse of Run's
// order: CNI configuration and socket, pods' interfaces, management port,
// gateway. The host's addresses and routes were never touched. Without OVSDB,
// or where OVS is somebody else's, it does the rest and says so. It may be
// repeated.
func Cleanup(ctx context.Context, cfg Config, log *slog.Logger) error {
	settings, err := gatewaySettings(cfg, log)
	if err != nil {
		return err
	}
	var errs []error
	if cfg.CNIConfDir != "" {
		errs = append(errs, removeFile(filepath.Join(cfg.CNIConfDir, ConfListName)))
	}
	errs = append(errs, removeFile(cfg.CNISocket))
	o, err := dialOwn(ctx, cfg, settings)
	if err != nil {
		errs = append(errs, fmt.Errorf("bridges and ports are left: %w", err))
	} else {
		defer o.Close()
		errs = append(errs, removePods(ctx, o), management.Cleanup(ctx, o))
	}
	return errors.Join(append(errs, gateway.Cleanup(ctx, settings, o, log))...)
}

// dialOwn connects to an OVS whose bridges are not somebody else's: there,
// deleting the gateway bridge would cut the host off.
func dialOwn(ctx context.Context, cfg Config, s gateway.Settings) (*ovs.Client, error) {
	dial, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	o, err := ovs.Dial(dial, cfg.OVSDB)
	if err != nil {
		return nil, err
	}
	if err := o.CheckGateway(ctx, s.Uplink, s.Bridge); err != nil {
		o.Close()
		return nil, err
	}
	return o, nil
}

func removePods(ctx context.Context, o *ovs.Client) error {
	names, err := o.SandboxPorts(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range names {
		errs = append(errs, o.RemovePort(ctx, name), link.Delete(name))
	}
	return errors.Join(errs...)
}
