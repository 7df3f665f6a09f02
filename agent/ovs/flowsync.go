package ovs

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strconv"
	"strings"
)

// LearnedCookie is the cookie of flows that the agent's flows learn: "ovnelrn" in ASCII. OVS adds
// and removes them, so a sync ignores them.
const LearnedCookie = "0x6f766e656c726e"

// FlowSync writes the agent's flows on a bridge: those with the agent's cookie. It leaves flows of
// other cookies alone, except those of Evict. All compares all flows, and Update writes known
// differences. A FlowSync is not safe for concurrent use.
//
// Flows use the syntax of ovs-ofctl dump-flows without cookie
// ("table=2,priority=10,ip,nw_dst=10.0.0.1 actions=LOCAL"). Table 0 is omitted and the priority is
// always present. A counted flow ends in its number, 1 to 255, as in "priority=1 actions=LOCAL #7".
// Several flows may have the same number; FlowCounts sums their counters.
type FlowSync struct {
	RunDir  string // contains the bridge's .mgmt socket
	Bridge  string
	Evict   string // a cookie; All removes its flows. "" for none
	OnlyOwn bool   // reads no foreign flows, which may be many; they must not conflict

	foreign map[string]string // cookies of foreign flows at the last read, by flowTable's key
}

// SyncBundle calls All of a new FlowSync for the bridge.
func SyncBundle(ctx context.Context, rundir, bridge string, want []string) (messages int, err error) {
	return (&FlowSync{RunDir: rundir, Bridge: bridge}).All(ctx, want)
}

// All sets the flows of the agent's cookie to exactly want. messages is the number of messages
// sent: one for each flow that is new, has other actions, or is deleted. It is 0 if nothing
// changed.
//
// The change is one atomic bundle, so no packet sees an intermediate state. An unchanged flow keeps
// its counters, unless its number changes. Afterwards All reads the flows again. It returns an
// error if the switch rejected a flow or formats it differently. It also returns an error, and
// writes nothing, if a flow of another cookie has the same table, priority and match as one of
// want.
func (s *FlowSync) All(ctx context.Context, want []string) (messages int, err error) {
	have, err := s.read(ctx)
	if err != nil {
		return 0, fmt.Errorf("read flows of %s: %w", s.Bridge, err)
	}

	mods, err := have.diff(want)
	if err != nil {
		return 0, fmt.Errorf("compare flows of %s: %w", s.Bridge, err)
	}

	if have.evicted {
		mods = append([]string{deleteCookie(s.Evict)}, mods...)
	}

	if len(mods) == 0 {
		return 0, nil
	}

	if err := s.write(ctx, mods); err != nil {
		return 0, err
	}

	if have, err = s.read(ctx); err != nil {
		return len(mods), fmt.Errorf("read flows of %s again: %w", s.Bridge, err)
	}

	left, err := have.diff(want)
	if err == nil && len(left) > 0 {
		err = fmt.Errorf("%d of them are not what was written, the first: %s",
			len(left), strings.TrimSpace(left[0]))
	}

	if err != nil {
		return len(mods), fmt.Errorf("verify flows of %s: %w", s.Bridge, err)
	}

	return len(mods), nil
}

// Update writes some flows and deletes others, as one atomic bundle, and returns the number of
// messages. A flow that gets another number must also be in gone. Update reads nothing, so its cost
// depends only on the size of the change. It relies on the last All for the other flows.
func (s *FlowSync) Update(ctx context.Context, write, gone []string) (messages int, err error) {
	have := flowTable{ours: map[string]string{}, foreign: s.foreign}

	for _, flow := range gone {
		key, actions, _ := strings.Cut(flow, " actions=")
		have.ours[key] = actions
	}

	mods, err := have.diff(write)
	if err != nil {
		return 0, fmt.Errorf("compare flows of %s: %w", s.Bridge, err)
	}

	if len(mods) == 0 {
		return 0, nil
	}

	return len(mods), s.write(ctx, mods)
}

// OwnFlows returns the number of flows of the agent's cookie in a bridge's first table, and in the
// others.
func OwnFlows(ctx context.Context, rundir, bridge string) (first, others int, err error) {
	have, err := (&FlowSync{RunDir: rundir, Bridge: bridge}).read(ctx)
	if err != nil {
		return 0, 0, fmt.Errorf("read flows of %s: %w", bridge, err)
	}

	for key := range have.ours {
		if strings.HasPrefix(key, "table=") {
			others++
		} else {
			first++
		}
	}

	return first, others, nil
}

// target is the bridge's address for ovs-ofctl.
func (s *FlowSync) target() string { return bridgeTarget(s.RunDir, s.Bridge) }

// read reads the bridge's flows, and notes the foreign ones for Update.
func (s *FlowSync) read(ctx context.Context) (flowTable, error) {
	var filter []string
	if s.OnlyOwn {
		filter = append(filter, "cookie="+Cookie+"/"+CookieMask)
	}

	out, err := dumpFlows(ctx, s.target(), filter...)
	if err != nil {
		return flowTable{}, err
	}

	t := parseTable(out)
	if s.Evict != "" {
		t.evicted = strings.Contains(out, "cookie="+s.Evict+",")
		maps.DeleteFunc(t.foreign, func(_, cookie string) bool { return cookie == s.Evict })
	}

	s.foreign = t.foreign

	return t, nil
}

// write runs the lines of ovs-ofctl as one atomic bundle.
func (s *FlowSync) write(ctx context.Context, mods []string) error {
	_, err := ofctl(ctx, []byte(strings.Join(mods, "")), "--bundle", "add-flows", s.target(), "-")
	if err != nil {
		return fmt.Errorf("write flows of %s: %w", s.Bridge, err)
	}

	return nil
}

// flowTable contains a bridge's flows. The key of a flow is the part of it before its actions:
// table, priority and match, such as "table=2,priority=10,ip".
type flowTable struct {
	ours    map[string]string // actions with the flow's number
	foreign map[string]string // cookies
	evicted bool              // flows to evict exist
}

// dumpFlows returns the flows that match a filter of ovs-ofctl, one per line. Without a filter it
// returns all.
func dumpFlows(ctx context.Context, target string, filter ...string) (string, error) {
	out, err := ofctl(ctx, nil, append([]string{"--no-stats", "dump-flows", target}, filter...)...)
	return string(out), err
}

// deleteCookie returns the line that deletes a cookie's flows in all tables.
func deleteCookie(cookie string) string { return "delete cookie=" + cookie + "/-1\n" }

// parseTable reads a dump of ovs-ofctl, which has lines such as
//
//	cookie=0x99, table=3, idle_timeout=9, priority=10,arp actions=drop
//
// A line without priority has the default one, which the agent does not use.
func parseTable(dump string) flowTable {
	t := flowTable{ours: map[string]string{}, foreign: map[string]string{}}

	for line := range strings.Lines(dump) {
		_, rest, ok := strings.Cut(strings.TrimSpace(line), "cookie=")
		if !ok {
			continue
		}

		cookie, rest, _ := strings.Cut(rest, ", ")
		rest, actions, _ := strings.Cut(rest, " actions=")
		before, match, hasPriority := strings.Cut(rest, "priority=")
		key := "priority=" + match

		if table, found := strings.CutPrefix(before, "table="); found {
			table, _, _ = strings.Cut(table, ",")
			if table != "0" {
				key = "table=" + table + "," + key
			}
		}

		number, ours := FlowNumber(cookie)
		switch {
		case ours && number != 0:
			t.ours[key] = fmt.Sprintf("%s #%d", actions, number)
		case ours:
			t.ours[key] = actions
		case hasPriority:
			t.foreign[key] = cookie
		}
	}

	return t
}

// diff returns the lines for ovs-ofctl that change the table to want: writes in want's order, then
// deletions. A flow that gets another number is deleted first, so that its count stays with the old
// number.
func (t flowTable) diff(want []string) ([]string, error) {
	gone := maps.Clone(t.ours)

	var mods []string

	for _, flow := range want {
		key, actions, ok := strings.Cut(flow, " actions=")
		if !ok {
			return nil, fmt.Errorf("flow %q has no actions", flow)
		}

		if cookie, taken := t.foreign[key]; taken {
			return nil, fmt.Errorf("flow %q already exists with foreign cookie %s", key, cookie)
		}

		have, found := t.ours[key]
		delete(gone, key)

		if found && have == actions {
			continue
		}

		actions, number, err := cutNumber(actions)
		if err != nil {
			return nil, fmt.Errorf("flow %q: %w", flow, err)
		}

		if _, oldNumber, _ := cutNumber(have); found && oldNumber != number {
			mods = append(mods, deletion(key))
		}

		flag := ""
		if number != 0 { // FlowCounts needs the final count
			flag = "send_flow_rem,"
		}

		mods = append(mods,
			fmt.Sprintf("add cookie=%#x,%s%s,actions=%s\n", numbered(number), flag, key, actions))
	}

	for _, key := range slices.Sorted(maps.Keys(gone)) {
		mods = append(mods, deletion(key))
	}

	return mods, nil
}

// deletion returns the line that deletes the agent's flow with this table, priority and match.
func deletion(key string) string {
	return fmt.Sprintf("delete_strict cookie=%s/%s,%s\n", Cookie, CookieMask, key)
}

// cutNumber removes a flow's number from its actions.
func cutNumber(actions string) (string, uint8, error) {
	actions, text, ok := strings.Cut(actions, " #")
	if !ok {
		return actions, 0, nil
	}

	n, err := strconv.ParseUint(text, 10, 8)

	return actions, uint8(n), err
}

// Cookie is the cookie of the agent's flows: "ovnebpf" in ASCII, 7 bytes. The most significant
// byte, outside of CookieMask, is the flow's number; 0 means none.
const (
	Cookie     = "0x6f766e65627066"
	CookieMask = "0xffffffffffffff"

	cookieBits = 0x6f766e65627066 // Cookie as a number
	cookieMask = 1<<numberAt - 1  // CookieMask as a number
	numberAt   = 56               // position of the flow's number in the cookie, in bits
)

// FlowNumber returns the number in a cookie, given in OVS' format. ours reports whether it is a
// cookie of the agent.
func FlowNumber(cookie string) (number uint8, ours bool) {
	n, err := strconv.ParseUint(cookie, 0, 64)
	return uint8(n >> numberAt), err == nil && n&cookieMask == cookieBits
}

// numbered returns the cookie of the agent's flows with a number.
func numbered(number uint8) uint64 { return uint64(number)<<numberAt | cookieBits }

// ofctl runs ovs-ofctl with OpenFlow 1.4, which has bundles, and returns its output.
func ofctl(ctx context.Context, stdin []byte, args ...string) ([]byte, error) {
	args = append([]string{"-O", "OpenFlow14", "--timeout=10"}, args...)
	cmd := exec.CommandContext(ctx, "ovs-ofctl", args...)
	cmd.Stdin = bytes.NewReader(stdin)

	var stderr bytes.Buffer

	cmd.Stderr = &stderr

	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("ovs-ofctl: %w: %s", err, firstLine(stderr.Bytes()))
	}

	return out, nil
}

// firstLine returns the first line of a program's output.
func firstLine(b []byte) string {
	line, _, _ := bytes.Cut(b, []byte("\n"))
	return string(line)
}
