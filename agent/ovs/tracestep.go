package ovs

import (
	"fmt"
	"strings"
)

// Step is a flow that a traced packet has matched.
type Step struct {
	Table   int
	Match   string // as OVS prints it; "" for every packet
	Number  uint8  // of a flow of the agent (FlowSync); 0 for uncounted and foreign flows
	Actions []string
}

// Steps returns the matched flows in order, without tables that matched nothing. In the output of
// ofproto/trace, a flow is a line such as "2. ip, priority 10, cookie 0x76f766e65627066". Its
// actions follow on lines of their own.
func (t Trace) Steps() []Step {
	var out []Step

	for line := range strings.Lines(t.Text) {
		text := strings.TrimSpace(line)
		table, rest, hasTable := strings.Cut(text, ". ")

		if step, isStep := parseStep(table, rest); hasTable && isStep {
			out = append(out, step)
			continue
		}

		// OVS' remarks on actions are indented like actions. They start with an arrow or a
		// parenthesis.
		isIndented := strings.HasPrefix(line, "    ") && text != ""
		if !hasTable && len(out) > 0 && isIndented && !strings.ContainsAny(text[:1], "->(") {
			last := &out[len(out)-1]
			last.Actions = append(last.Actions, text)
		}
	}

	return out
}

// parseStep returns the flow of a line, which is its table's number and the rest. It returns false
// for other lines.
func parseStep(table, rest string) (step Step, isStep bool) {
	match, after, hasPriority := strings.Cut(rest, "priority ")
	if _, err := fmt.Sscanf(table, "%d", &step.Table); err != nil || !hasPriority {
		return Step{}, false
	}

	step.Match = strings.TrimSuffix(match, ", ")
	if _, cookie, hasCookie := strings.Cut(after, "cookie "); hasCookie {
		step.Number, _ = FlowNumber(cookie)
	}

	return step, true
}
