package agent

import (
	"context"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
)

// controllerCheck is the interval between checks of ovn-controller, which does not signal the loss
// of its database.
const controllerCheck = time.Second

// watchController reports to the gateway whether ovn-controller is in sync. When ovn-controller
// does not answer, it counts as out of sync: OVN must not announce addresses that may belong to
// another node by now.
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
			a.log.Warn("ovn-controller did not answer, assuming that it is out of sync", "error", err, "ovn-rundir", a.cfg.OVNRunDir)
		}
		if is != was {
			a.log.Info("connection of ovn-controller to the southbound database changed", "connected", is)
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
