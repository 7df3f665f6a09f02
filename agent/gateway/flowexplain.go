package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/ovn-ebpf/ovn-ebpf/agent/gateway/openflow"
	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
	"github.com/ovn-ebpf/ovn-ebpf/bpf"
	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// FlowExplainer reports what the flows of the OpenFlow backend would do with a packet. ovs-vswitchd
// traces it through the flows on the bridge. Nothing is counted, learned or sent.
type FlowExplainer struct {
	NodeMAC net.HardwareAddr

	bridge  string
	ports   openflow.Ports
	control *ovs.Control
}

// FlowExplanation is the predicted decision for a packet.
type FlowExplanation struct {
	bpf.Counter            // the counter that it increments, without count
	Packet      string     // description of the packets with this decision
	Steps       []FlowStep // the flows it matches, in order; the last one decides
}

// FlowStep is a flow that the packet matches.
type FlowStep struct {
	Table, Match string   // Match is "" for a flow that matches every packet
	Actions      []string // empty: drop
}

func (s FlowStep) String() string {
	return fmt.Sprintf("table %s, %s: %s",
		s.Table, cmp.Or(s.Match, "any other packet"), cmp.Or(strings.Join(s.Actions, ", "), "drop"))
}

// FlowSource locates the flows.
type FlowSource struct{ OVSDB, OVSRunDir, Bridge, Uplink string }

// OpenFlowExplainer returns an explainer for a bridge. It looks up the bridge's ports and connects
// to ovs-vswitchd.
func OpenFlowExplainer(ctx context.Context, at FlowSource) (*FlowExplainer, error) {
	uplink, err := link.Get(at.Uplink)
	if err != nil {
		return nil, fmt.Errorf("uplink: %w", err)
	}

	client, err := ovs.Dial(ctx, at.OVSDB)
	if err != nil {
		return nil, err
	}
	defer client.Close()

	ports, err := bridgePorts(ctx, client, at.Bridge, at.Uplink)
	if err != nil {
		return nil, err
	}

	control, err := ovs.DialSwitch(ctx, at.OVSRunDir)
	if err != nil {
		return nil, err
	}

	return NewFlowExplainer(control, at.Bridge, ports, uplink.MAC), nil
}

// NewFlowExplainer returns an explainer for a bridge with these ports. It owns control and closes
// it.
func NewFlowExplainer(
	control *ovs.Control,
	bridge string,
	ports openflow.Ports,
	node net.HardwareAddr,
) *FlowExplainer {
	return &FlowExplainer{NodeMAC: node, bridge: bridge, ports: ports, control: control}
}

// Close closes the connection.
func (e *FlowExplainer) Close() error { return e.control.Close() }

// Explain traces an Ethernet frame through the current flows.
func (e *FlowExplainer) Explain(
	ctx context.Context,
	dir verdict.Direction,
	frame []byte,
) (FlowExplanation, error) {
	in := ovs.TraceInput{Bridge: e.bridge, Port: "LOCAL", Frame: frame}

	switch dir {
	case verdict.FromWire:
		in.Port = fmt.Sprint(e.ports.Uplink)
	case verdict.FromOVN: // these packets make flows learn
		if e.ports.Patch == 0 {
			return FlowExplanation{}, errors.New("explain frame: ovn-controller has not connected the bridge to OVN")
		}

		in.Port, in.Frame, in.Flow = fmt.Sprint(e.ports.Patch), nil, openflow.Spell(verdict.Parse(frame))
	}

	trace, err := e.control.Trace(ctx, in)
	if err != nil {
		return FlowExplanation{}, fmt.Errorf("explain frame: %w", err)
	}

	const ethernet = 14 // without a VLAN tag

	return explanation(trace.Steps(), ethernet+verdict.Parse(frame).Length)
}

// explanation interprets the steps of a frame of size bytes. A flow that checks the packet length
// yields both branches in the trace.
func explanation(steps []ovs.Step, size int) (FlowExplanation, error) {
	var x FlowExplanation

	counts := map[uint8]openflow.Count{}
	for _, c := range openflow.Counts() {
		counts[c.Number] = c
	}

	asked, long := false, false

	for _, s := range steps {
		longer := s.Table == openflow.TableLonger && s.Match != ""
		if asked && longer != long {
			continue
		}

		x.Steps = append(x.Steps, flowStep(s))

		most := 0
		for _, a := range s.Actions {
			if _, err := fmt.Sscanf(a, "check_pkt_larger(%d)", &most); err == nil {
				asked, long = true, size > most
			}
		}

		c, counted := counts[s.Number]
		if longer { // although OVS counts the branch for short packets
			c, counted = openflow.CountOf(verdict.Oversized), true
		}

		if counted {
			x.Counter, x.Packet = counterOf(c), c.Packet
			return x, nil
		}
	}

	return x, errors.New("explain frame: no flow in the trace belongs to this agent's version")
}

func flowStep(s ovs.Step) FlowStep {
	out := FlowStep{Table: openflow.TableName(s.Table), Match: s.Match}
	for _, a := range s.Actions {
		out.Actions = append(out.Actions, openflow.DescribeAction(a))
	}

	return out
}
