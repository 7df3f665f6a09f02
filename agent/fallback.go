package agent

import (
	"context"
	"fmt"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/agent/gateway"
	"github.com/ovn-ebpf/ovn-ebpf/loop"
	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// fallBack returns the settings for a kernel that cannot run eBPF for the reason noEBPF. A nil
// reason means that it can. In layout bridged, flows replace the programs. The other layouts have
// no replacement: the gateway leaves the host alone and reports the fault.
func fallBack(s gateway.Settings, noEBPF error) gateway.Settings {
	if noEBPF == nil {
		return s
	}

	s.NoEBPF = noEBPF.Error()
	if s.Layout == verdict.Bridged {
		s.Backend = gateway.OpenFlow
	}

	return s
}

// Reasons of Kubernetes Events about the Node.
const (
	eventFallback  = "GatewayFallback"
	eventNoGateway = "NoGateway"
)

// fallbackEvent returns the Event for a node that cannot run eBPF, or "".
func fallbackEvent(s gateway.Settings) (reason, message string) {
	switch {
	case s.NoEBPF == "":
		return "", ""
	case s.NoGateway:
		return eventFallback, "this node's own sockets do not reach Services: " + s.NoEBPF
	case s.Backend == gateway.OpenFlow:
		return eventFallback, "gateway uses OpenFlow flows instead of eBPF: " + s.NoEBPF
	default:
		text := fmt.Sprintf("this node serves no North-South traffic in layout %s: %s", s.Layout, s.NoEBPF)
		return eventNoGateway, text
	}
}

// reportFallback logs the fallback and writes one Event about the Node.
func (a *agent) reportFallback(ctx context.Context) error {
	reason, message := fallbackEvent(a.cfg.Settings)
	if reason == "" {
		<-ctx.Done()
		return nil
	}

	a.log.Warn("kernel cannot run the eBPF programs", "reason", reason, "message", message)

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
