package ovs

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"time"
)

// Control is a connection to the control socket of ovs-vswitchd or another daemon of OVS, as used
// by ovs-appctl. It is not safe for concurrent use.
type Control struct {
	conn net.Conn
	in   *json.Decoder
	id   int
}

// DialControl connects to the socket at path.
func DialControl(ctx context.Context, path string) (*Control, error) {
	var d net.Dialer

	conn, err := d.DialContext(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", path, err)
	}

	return &Control{conn: conn, in: json.NewDecoder(conn)}, nil
}

// DialSwitch connects to ovs-vswitchd through run directory rundir.
func DialSwitch(ctx context.Context, rundir string) (*Control, error) {
	path, err := controlSocket(rundir, "ovs-vswitchd")
	if err != nil {
		return nil, err
	}

	return DialControl(ctx, path)
}

// Close closes the connection.
func (c *Control) Close() error { return c.conn.Close() }

// Call runs one command and returns its output. After a connection error, including the end of ctx,
// the connection is unusable.
func (c *Control) Call(ctx context.Context, method string, params ...string) (string, error) {
	if err := ctx.Err(); err != nil { // otherwise the reply could arrive before AfterFunc runs
		return "", fmt.Errorf("call %s: %w", method, err)
	}
	// A deadline in the past ends the reads and writes. The returned function cancels that.
	defer context.AfterFunc(ctx, func() { _ = c.conn.SetDeadline(time.Unix(1, 0)) })()

	c.id++

	if params == nil {
		params = []string{} // as JSON [], because OVS rejects null
	}

	request, err := json.Marshal(map[string]any{"id": c.id, "method": method, "params": params})
	if err != nil {
		return "", err
	}

	if _, err := c.conn.Write(request); err != nil {
		return "", fmt.Errorf("call %s: %w", method, err)
	}

	var reply struct {
		ID     int
		Result string
		Error  any
	}
	if err := c.in.Decode(&reply); err != nil {
		return "", fmt.Errorf("call %s: read reply: %w", method, err)
	}

	if reply.ID != c.id {
		return "", fmt.Errorf("call %s: reply to %d instead of %d", method, reply.ID, c.id)
	}

	if reply.Error != nil {
		return "", fmt.Errorf("call %s: %v", method, reply.Error)
	}

	return reply.Result, nil
}

// TraceInput is a packet to trace through a bridge's flows.
type TraceInput struct {
	Bridge string
	Port   string // "1", "LOCAL"
	Mark   uint32 // of the packet
	Frame  []byte
	Flow   string   // instead of Frame, in OVS' flow syntax: no learning
	CTNext []string // conntrack states in order of lookup; then "trk,new" ("trk,est")
}

// Trace is the result of a trace.
type Trace struct {
	Passes    []string // datapath actions: of the packet, then after each recirculation
	Megaflows []string // matched fields of the datapath flow, by pass
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

// outputs reads the datapath's actions. A name that is not an action is a port.
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

// branch returns the actions of "size=N,gt(...),le(...)" for a frame of size bytes.
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
