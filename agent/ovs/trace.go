package ovs

import (
	"context"
	"encoding/hex"
	"fmt"
	"strings"
)

// TraceInput is a packet to trace through a bridge's flows. It is given as a Frame or as a Flow.
type TraceInput struct {
	Bridge string
	Port   string // "1", "LOCAL"
	Mark   uint32 // pkt_mark
	Frame  []byte // an Ethernet frame
	Flow   string // in OVS' flow syntax, without in_port and pkt_mark; takes precedence over Frame
	// CTNext are the conntrack states that the packet's lookups find, in order, such as "trk,est".
	// OVS uses a default for further lookups.
	CTNext []string
}

// Trace is the result of a trace. Passes and Megaflows have an element for the packet, and one
// after each recirculation.
type Trace struct {
	Passes    []string // datapath actions
	Megaflows []string // matched fields of the datapath flow
	Text      string   // the complete output
}

// Trace traces a packet (ofproto/trace). Nothing is sent. A Frame causes learning and similar side
// effects like a real packet; a Flow does not.
func (c *Control) Trace(ctx context.Context, in TraceInput) (Trace, error) {
	args := []string{"--names"}
	for _, s := range in.CTNext {
		args = append(args, "--ct-next", s)
	}

	flow := fmt.Sprintf("in_port=%s,pkt_mark=%#x", in.Port, in.Mark)
	if in.Flow != "" {
		args = append(args, in.Bridge, flow+","+in.Flow)
	} else {
		args = append(args, in.Bridge, flow, hex.EncodeToString(in.Frame))
	}

	text, err := c.Call(ctx, "ofproto/trace", args...)
	if err != nil {
		return Trace{}, err
	}

	t := Trace{Text: text}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if s, ok := strings.CutPrefix(line, "Datapath actions: "); ok {
			t.Passes = append(t.Passes, s)
		}

		if s, ok := strings.CutPrefix(line, "Megaflow: "); ok {
			t.Megaflows = append(t.Megaflows, s)
		}
	}

	if len(t.Passes) == 0 {
		return t, fmt.Errorf("trace in %s: no datapath actions in %q", in.Bridge, text)
	}

	return t, nil
}

// Outputs returns the names of the output ports for a frame of size bytes, in order, over all
// passes.
func (t Trace) Outputs(size int) []string {
	var out []string
	for _, pass := range t.Passes {
		out = append(out, outputs(pass, size)...)
	}

	return out
}

// outputs returns the output ports in datapath actions, such as
//
//	clone(ct(zone=1),eth0),check_pkt_len(size=1514,gt(pop_vlan,breth0),le(eth1))
//
// An action without arguments that is not known here is the name of a port.
func outputs(actions string, size int) []string {
	var out []string

	for _, a := range split(actions) {
		name, args, ok := strings.Cut(strings.TrimSuffix(a, ")"), "(")
		switch {
		case ok && name == "clone":
			out = append(out, outputs(args, size)...)
		case ok && name == "check_pkt_len":
			out = append(out, outputs(branch(args, size), size)...)
		case !ok && a != "drop" && a != "pop_vlan" && a != "ct_clear":
			out = append(out, a)
		}
	}

	return out
}

// branch returns the actions that check_pkt_len executes for a frame of size bytes. args is
// "size=N,gt(...),le(...)".
func branch(args string, size int) string {
	limit, kind := 0, "le("
	for _, a := range split(args) {
		if _, err := fmt.Sscanf(a, "size=%d", &limit); err == nil && size > limit {
			kind = "gt("
		}

		if s, ok := strings.CutPrefix(a, kind); ok {
			return strings.TrimSuffix(s, ")")
		}
	}

	return ""
}

// split splits at commas outside parentheses.
func split(s string) []string {
	var parts []string

	depth, start := 0, 0

	for i, r := range s {
		switch {
		case r == '(':
			depth++
		case r == ')':
			depth--
		case r == ',' && depth == 0:
			parts = append(parts, s[start:i])
			start = i + 1
		}
	}

	return append(parts, s[start:])
}
