package ovs

import (
	"fmt"
	"strings"
)

// Step is a flow that a traced packet has met.
type Step struct {
	Table   int
	Match   string // as OVS prints it; "" for all
	Number  uint8  // of a flow of ours (FlowSync); 0: it is not counted
	Actions []string
}

// Steps returns what a packet has met, in order. Tables in which it has met
// nothing are left out.
func (t Trace) Steps() []Step {
	var out []Step
	for line := range strings.Lines(t.Text) {
		text := strings.TrimSpace(line)
		table, rest, ok := strings.Cut(text, ". ")
		var step Step
		if _, err := fmt.Sscanf(table, "%d", &step.Table); ok && err == nil && strings.Contains(rest, "priority ") {
			match, after, _ := strings.Cut(rest, "priority ")
			step.Match = strings.TrimSuffix(match, ", ")
			if _, cookie, ok := strings.Cut(after, "cookie "); ok {
				step.Number, _ = FlowNumber(cookie)
			}
			out = append(out, step)
			continue
		}
		// Under a flow stand its actions, deeper than itself; what OVS says of
		// them begins with an arrow or a parenthesis.
		if len(out) > 0 && strings.HasPrefix(line, "    ") && text != "" && !strings.ContainsAny(text[:1], "->(") && !ok {
			last := &out[len(out)-1]
			last.Actions = append(last.Actions, text)
		}
	}
	return out
}
