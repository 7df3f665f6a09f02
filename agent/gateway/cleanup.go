package gateway

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"

	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
	"github.com/ovn-ebpf/ovn-ebpf/bpf"
)

// Cleanup takes the gateway off the node: mapping, programs and pins, bridge,
// reserved ports; in this order OVN is silent before anything else goes. o may
// be nil when OVSDB is not to be reached. It does all it can and returns all
// errors.
func Cleanup(ctx context.Context, s Settings, o *ovs.Client, log *slog.Logger) error {
	var errs []error
	if o != nil {
		errs = append(errs, o.SyncBridgeMapping(ctx, Network, ""))
	}
	errs = append(errs, detach(s, log))
	if o != nil {
		errs = append(errs, o.RemoveBridge(ctx, s.Bridge))
	}
	return errors.Join(append(errs, releasePorts(s.RunDir))...)
}

// detach opens what is pinned with settings that pass everything, and takes it
// off.
func detach(s Settings, log *slog.Logger) error {
	if _, err := os.Stat(s.PinDir); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	idle := bpf.Config{NodeMAC: make(net.HardwareAddr, 6), SNATPorts: s.SNATPorts, GenevePort: genevePort}
	gw, err := bpf.Open(bpf.Options{
		PinDir: s.PinDir, Config: idle, Log: log,
		Clsact: bpf.ClsactFuncs{Attach: link.AttachClsact, Detach: link.DetachClsact},
	})
	if err != nil {
		return err
	}
	return errors.Join(gw.Detach(), gw.Close())
}
