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

// rules are the decision rules of this node.
type rules interface {
	packetContext() packetContext
	explain(ctx context.Context, from string, f []byte) (answer, error)
	Close() error
}

// packetContext holds the properties common to packets of this node.
type packetContext struct {
	mac  net.HardwareAddr
	vlan uint16
}

// rulesOf returns the attached programs, or else the flows according to the agent's record.
func rulesOf(ctx context.Context, at agentInfo) (rules, error) {
	e, err := bpf.OpenExplainer(at.pinDir)
	if err == nil {
		return programs{e}, nil
	}

	if !errors.Is(err, bpf.ErrNotAttached) {
		return nil, err
	}

	record := at.record
	if at.errRecord != nil || record.Wiring.Backend != string(gateway.OpenFlow) {
		return nil, fmt.Errorf("%w (does the agent run? %s)", err, at.where())
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

type programs struct{ *bpf.Explainer }

func (p programs) packetContext() packetContext {
	return packetContext{p.Config.NodeMAC[:], p.Config.VLAN}
}

func (p programs) explain(_ context.Context, from string, f []byte) (answer, error) {
	x, err := p.Explain(sides[from], f)
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

	return describe(f, from, p.Layout.String(), string(gateway.EBPF), x.Counter, packet, steps), nil
}

type flows struct {
	*gateway.FlowExplainer
	wiring status.Wiring
}

func (x flows) packetContext() packetContext { return packetContext{x.NodeMAC, x.wiring.VLAN} }

var sides = map[string]verdict.Direction{
	"wire": verdict.FromWire,
	"ovn":  verdict.FromOVN,
	"host": verdict.FromHost,
}

func (x flows) explain(ctx context.Context, from string, f []byte) (answer, error) {
	e, err := x.Explain(ctx, sides[from], f)
	if err != nil {
		return answer{}, err
	}

	var steps []step
	for _, s := range e.Steps {
		steps = append(steps, step{Kind: s.Table, Match: s.Match, Actions: s.Actions, text: s.String()})
	}

	return describe(f, from, x.wiring.Layout, string(gateway.OpenFlow), e.Counter, e.Packet, steps), nil
}
