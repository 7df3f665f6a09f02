package main

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/ovn-ebpf/ovn-ebpf/agent/gateway"
	"github.com/ovn-ebpf/ovn-ebpf/agent/status"
	"github.com/ovn-ebpf/ovn-ebpf/bpf"
	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// rules are the decision rules of this node, as programs or as flows.
type rules interface {
	packetContext() packetContext
	// explain returns the decision about the frame f from an origin: wire, ovn or host.
	explain(ctx context.Context, from string, f []byte) (answer, error)
	Close() error
}

// packetContext holds the properties common to packets of this node.
type packetContext struct {
	mac  net.HardwareAddr
	vlan uint16
}

// openRules returns the attached programs. If none are attached and the agent's record has the
// backend openflow, it returns the flows.
func openRules(ctx context.Context, found agentInfo) (rules, error) {
	e, err := bpf.OpenExplainer(found.pinDir)
	if err == nil {
		return programs{e}, nil
	}

	if !errors.Is(err, bpf.ErrNotAttached) {
		return nil, err
	}

	record := found.record
	if found.errRecord != nil || record.Wiring.Backend != string(gateway.OpenFlow) {
		return nil, fmt.Errorf("%w (does the agent run? %s)", err, found.where())
	}

	w := record.Wiring

	x, err := gateway.DialFlowExplainer(ctx, gateway.FlowSource{
		OVSDB: record.Paths.OVSDB, OVSRunDir: record.Paths.OVSRunDir, Bridge: w.Bridge, Uplink: w.Uplink,
	})
	if err != nil {
		return nil, fmt.Errorf("ask the flows of %s: %w", w.Bridge, err)
	}

	return flows{x, w}, nil
}

// programs are the rules as attached eBPF programs.
type programs struct{ *bpf.Explainer }

func (p programs) packetContext() packetContext {
	return packetContext{p.Config.NodeMAC[:], p.Config.VLAN}
}

func (p programs) explain(_ context.Context, from string, f []byte) (answer, error) {
	origin, _ := originOf(from) // question.run has checked it

	x, err := p.Explain(origin, f)
	if err != nil {
		return answer{}, err
	}

	var steps []step

	for _, s := range x.Steps {
		out := step{
			Kind:    s.Asked,
			Address: s.Addr,
			Port:    s.Port,
			Result:  s.Answer,
			Idle:    s.Age.Seconds(),
			text:    s.String(),
		}
		if s.Proto != 0 {
			out.Protocol = protocolName(s.Proto)
		}

		steps = append(steps, out)
	}

	packet := ""

	for _, r := range verdict.Rules() {
		if r.Name == x.Reason {
			packet = r.Packet
		}
	}

	return answerFor(f, from, p.Layout.String(), string(gateway.EBPF), x.Counter, packet, steps), nil
}

// flows are the rules as flows of the gateway bridge.
type flows struct {
	*gateway.FlowExplainer
	wiring status.Wiring
}

func (x flows) packetContext() packetContext { return packetContext{x.NodeMAC, x.wiring.VLAN} }

func (x flows) explain(ctx context.Context, from string, f []byte) (answer, error) {
	origin, _ := originOf(from)

	e, err := x.Explain(ctx, origin, f)
	if err != nil {
		return answer{}, err
	}

	var steps []step
	for _, s := range e.Steps {
		steps = append(steps, step{Kind: s.Table, Match: s.Match, Actions: s.Actions, text: s.String()})
	}

	return answerFor(f, from, x.wiring.Layout, string(gateway.OpenFlow), e.Counter, e.Packet, steps), nil
}
