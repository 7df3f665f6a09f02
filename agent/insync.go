package agent

import (
	"context"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
)

// controllerCheck is how often ovn-controller is asked: nothing tells when it
// loses its database.
const controllerCheck = time.Second

// watchController tells the gateway whether ovn-controller is in sync. Where it
// cannot be asked it is taken not to be: OVN then announces no address that
// could be another node's by now.
func (a *agent) watchController(ctx context.Context) error {
	ticker := time.NewTicker(controllerCheck)
	defer ticker.Stop()
	was, said := false, ""
	for {
		is, err := ovs.ControllerConnected(ctx, a.cfg.OVNRunDir)
		if ctx.Err() != nil {
			return nil
		}
		text := ""
		if err != nil {
			text = err.Error()
		}
		if text != said && text != "" {
			a.log.Warn("cannot tell whether ovn-controller is in sync", "error", err, "ovn-rundir", a.cfg.OVNRunDir)
		}
		if is != was {
			a.log.Info("ovn-controller and the southbound database", "connected", is)
			a.gateway.Inputs().SetInSync(is)
		}
		was, said = is, text
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}
