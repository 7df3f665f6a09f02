package ovs

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// PredecessorCookie marks the flows that ovn-kubernetes' node writes on its gateway
// bridge.
const PredecessorCookie = "0xdeff105"

// PredecessorFlows returns the bridge's flows of ovn-kubernetes, sorted, as ReturnFlows
// takes them.
func PredecessorFlows(ctx context.Context, rundir, bridge string) ([]string, error) {
	s := FlowSync{RunDir: rundir, Bridge: bridge}
	out, err := dumpFlows(ctx, s.target())
	if err != nil {
		return nil, fmt.Errorf("read flows of %s: %w", bridge, err)
	}
	var flows []string
	for line := range strings.Lines(out) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "cookie="+PredecessorCookie+",") {
			flows = append(flows, line)
		}
	}
	slices.Sort(flows)
	return flows, nil
}

// ReturnFlows takes our flows off the bridge and writes those of PredecessorFlows, and
// handover beside them, in one atomic bundle. Those of handover have our cookie: they
// are to go by themselves.
func ReturnFlows(ctx context.Context, rundir, bridge string, flows, handover []string) error {
	mods := []string{"delete cookie=" + Cookie + "/" + CookieMask + "\n", deleteCookie(LearnedCookie)}
	for _, f := range flows {
		mods = append(mods, "add "+f+"\n")
	}
	for _, f := range handover {
		mods = append(mods, "add cookie="+Cookie+","+f+"\n")
	}
	return (&FlowSync{RunDir: rundir, Bridge: bridge}).write(ctx, mods)
}
