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
// traces it through the flows on the bridge (ofproto/trace). Nothing is counted, learned or sent.
type FlowExplainer struct {
	NodeMAC net.HardwareAddr // of the uplink, for callers that build a frame

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
type FlowSource struct {
	OVSDB     string // address of the OVSDB server, for ovs.Dial
	OVSRunDir string // contains ovs-vswitchd's control socket
	Bridge    string
	Uplink    string
}

// DialFlowExplainer returns an explainer for a bridge. It looks up the bridge's ports and connects
// to ovs-vswitchd. The caller must close the explainer.
func DialFlowExplainer(ctx context.Context, at FlowSource) (*FlowExplainer, error) {
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
	case verdict.FromHost: // through LOCAL
	case verdict.FromWire:
		in.Port = fmt.Sprint(e.ports.Uplink)
	case verdict.FromOVN:
		// Such packets make flows learn, and ovs-vswitchd does that for a traced frame, too. It
		// does not for a traced flow, so describe the packet as one.
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

// explanation interprets the steps of a frame of size bytes, up to the first flow that counts. This
// flow decides. If a flow checks the length of the packet, the trace has the flows of both results,
// because ofproto/trace does not evaluate the length. explanation leaves out the flows for other
// lengths.
func explanation(steps []ovs.Step, size int) (FlowExplanation, error) {
	var x FlowExplanation

	counts := map[uint8]openflow.Count{}
	for _, c := range openflow.Counts() {
		counts[c.Number] = c
	}

	lengthChecked, isTooLong := false, false

	for _, s := range steps {
		isForTooLong := s.Table == openflow.TableLonger && s.Match != ""
		if lengthChecked && isForTooLong != isTooLong {
			continue
		}

		x.Steps = append(x.Steps, flowStep(s))

		if limit, found := lengthLimit(s.Actions); found {
			lengthChecked, isTooLong = true, size > limit
		}

		c, isCounted := counts[s.Number]
		if isForTooLong { // the flow's number is that of short packets
			c, isCounted = openflow.CountOf(verdict.Oversized), true
		}

		if isCounted {
			x.Counter, x.Packet = counterOf(c), c.Packet
			return x, nil
		}
	}

	return x, errors.New("explain frame: no flow in the trace belongs to this agent's version")
}

// lengthLimit returns the length that the last check among the actions allows.
func lengthLimit(actions []string) (limit int, found bool) {
	for _, a := range actions {
		var n int
		if _, err := fmt.Sscanf(a, "check_pkt_larger(%d)", &n); err == nil {
			limit, found = n, true
		}
	}

	return limit, found
}

func flowStep(s ovs.Step) FlowStep {
	out := FlowStep{Table: openflow.TableName(s.Table), Match: s.Match}
	for _, a := range s.Actions {
		out.Actions = append(out.Actions, openflow.DescribeAction(a))
	}

	return out
}
