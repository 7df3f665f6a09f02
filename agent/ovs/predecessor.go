package ovs

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// PredecessorCookie is the cookie of flows that ovnkube-node of ovn-kubernetes writes on its
// gateway bridge.
const PredecessorCookie = "0xdeff105"

// PredecessorFlows returns the bridge's flows of ovn-kubernetes, sorted, as input for ReturnFlows.
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

// ReturnFlows replaces the agent's flows on the bridge by those of PredecessorFlows and handover,
// in one atomic bundle. handover flows get the agent's cookie, because they expire.
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
