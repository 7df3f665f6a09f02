package ovs

import (
	"fmt"
	"strings"
)

// Step is a flow that a traced packet has matched.
type Step struct {
	Table   int
	Match   string // as OVS prints it; "" for every packet
	Number  uint8  // of a flow of the agent (FlowSync); 0: not counted
	Actions []string
}

// Steps returns the matched flows in order, without tables that matched nothing.
func (t Trace) Steps() []Step {
	var out []Step

	for line := range strings.Lines(t.Text) {
		text := strings.TrimSpace(line)
		table, rest, ok := strings.Cut(text, ". ")

		var step Step

		_, err := fmt.Sscanf(table, "%d", &step.Table)
		if ok && err == nil && strings.Contains(rest, "priority ") {
			match, after, _ := strings.Cut(rest, "priority ")

			step.Match = strings.TrimSuffix(match, ", ")
			if _, cookie, ok := strings.Cut(after, "cookie "); ok {
				step.Number, _ = FlowNumber(cookie)
			}

			out = append(out, step)

			continue
		}

		// The actions of a flow follow it, indented deeper. OVS' remarks on them start with an arrow or
		// a parenthesis.
		if !ok && len(out) > 0 && strings.HasPrefix(line, "    ") && text != "" &&
			!strings.ContainsAny(text[:1], "->(") {
			last := &out[len(out)-1]
			last.Actions = append(last.Actions, text)
		}
	}

	return out
}
