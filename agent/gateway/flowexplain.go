package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/ovn-ebpf/ovn-ebpf/agent/gateway/openflow"
	"github.com/ovn-ebpf/ovn-ebpf/agent/gateway/verdict"
	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
	"github.com/ovn-ebpf/ovn-ebpf/bpf"
)

// FlowExplainer says what the flows of the OpenFlow backend would do with a packet:
// ovs-vswitchd follows it through those that are on the bridge. Nothing is counted,
// learned or sent.
type FlowExplainer struct {
	NodeMAC net.HardwareAddr

	bridge  string
	ports   openflow.Ports
	control *ovs.Control
}

// FlowExplanation is what would become of a packet.
type FlowExplanation struct {
	bpf.Counter            // what it counts as, without figures
	Packet      string     // which packets those are
	Steps       []FlowStep // the flows that it meets, in order; the last decides
}

// FlowStep is a flow that the packet meets.
type FlowStep struct {
	Table, Match string   // Match is "" for a flow of every packet
	Actions      []string // none: it drops
}

func (s FlowStep) String() string {
	return fmt.Sprintf("%s: %s: %s", s.Table, cmp.Or(s.Match, "any other"), cmp.Or(strings.Join(s.Actions, ", "), "drop"))
}

// FlowPlace is where the flows are.
type FlowPlace struct{ OVSDB, OVSRunDir, Bridge, Uplink string }

// OpenFlowExplainer finds the ports of the bridge, and asks its ovs-vswitchd.
func OpenFlowExplainer(ctx context.Context, at FlowPlace) (*FlowExplainer, error) {
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

// NewFlowExplainer asks control, which it closes, about a bridge with these ports.
func NewFlowExplainer(control *ovs.Control, bridge string, ports openflow.Ports, node net.HardwareAddr) *FlowExplainer {
	return &FlowExplainer{NodeMAC: node, bridge: bridge, ports: ports, control: control}
}

// Close ends the connection.
func (e *FlowExplainer) Close() error { return e.control.Close() }

// Explain says what becomes of an Ethernet frame now.
func (e *FlowExplainer) Explain(ctx context.Context, dir verdict.Direction, frame []byte) (FlowExplanation, error) {
	in := ovs.TraceInput{Bridge: e.bridge, Port: "LOCAL", Frame: frame}
	switch dir {
	case verdict.FromWire:
		in.Port = fmt.Sprint(e.ports.Uplink)
	case verdict.FromOVN: // whose packets teach flows
		if e.ports.Patch == 0 {
			return FlowExplanation{}, errors.New("explain frame: ovn-controller has not connected the bridge to OVN")
		}
		in.Port, in.Frame, in.Flow = fmt.Sprint(e.ports.Patch), nil, openflow.Spell(verdict.Parse(frame))
	}
	trace, err := e.control.Trace(ctx, in)
	if err != nil {
		return FlowExplanation{}, fmt.Errorf("explain frame: %w", err)
	}
	const ethernet = 14 // a tag is not counted
	return explanation(trace.Steps(), ethernet+verdict.Parse(frame).Length)
}

// explanation reads what a frame of size bytes meets. Where a flow looks at the
// length a trace has both ways.
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
		switch {
		case longer: // though OVS counts it as what it would be if it were short
			c := openflow.CountOf(verdict.Oversized)
			x.Counter, x.Packet = counterOf(c), c.Packet
			return x, nil
		case counted:
			x.Counter, x.Packet = counterOf(c), c.Packet
			return x, nil
		}
	}
	return x, errors.New("explain frame: none of the flows that it meets is of this agent's version")
}

func flowStep(s ovs.Step) FlowStep {
	out := FlowStep{Table: openflow.TableName(s.Table), Match: s.Match}
	for _, a := range s.Actions {
		out.Actions = append(out.Actions, openflow.DescribeAction(a))
	}
	return out
}
