package agent

import (
	"context"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/agent/gateway"
	"github.com/ovn-ebpf/ovn-ebpf/agent/loop"
)

// fallBack takes the backend that the kernel can do; noEBPF is why it cannot do eBPF, nil if it
// can. In layout bridged flows do the programs' work. In the other layouts nothing replaces them:
// the gateway leaves the host alone, and reports that.
func fallBack(s gateway.Settings, noEBPF error) gateway.Settings {
	if noEBPF == nil {
		return s
	}
	s.NoEBPF = noEBPF.Error()
	if s.Layout == gateway.Bridged {
		s.Backend = gateway.OpenFlow
	}
	return s
}

// Reasons of Kubernetes Events about the Node.
const (
	eventFallback  = "GatewayFallback"
	eventNoGateway = "NoGateway"
)

// fallback returns the Event for a node whose kernel cannot do eBPF, "" for none.
func fallback(s gateway.Settings) (reason, message string) {
	switch {
	case s.NoEBPF == "":
		return "", ""
	case s.None:
		return eventFallback, "this node's own sockets do not reach Services: " + s.NoEBPF
	case s.Backend == gateway.OpenFlow:
		return eventFallback, "gateway uses OpenFlow flows instead of eBPF: " + s.NoEBPF
	default:
		return eventNoGateway, "this node serves no North-South traffic in layout " + string(s.Layout) + ": " + s.NoEBPF
	}
}

// reportFallback logs it and writes an Event about the Node, once.
func (a *agent) reportFallback(ctx context.Context) error {
	reason, message := fallback(a.cfg.Settings)
	if reason == "" {
		<-ctx.Done()
		return nil
	}
	a.log.Warn(message)
	reported := false
	return loop.Run(ctx, loop.Options{
		Name: "event " + reason, Wake: loop.NewSignal(), Resync: time.Hour, Log: a.log,
		Apply: func(ctx context.Context) error {
			if reported {
				return nil
			}
			err := a.cluster.Warn(ctx, reason, message)
			reported = err == nil
			return err
		},
	})
}
