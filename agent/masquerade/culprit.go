package masquerade

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"time"
)

// culprits returns the chains that drop packets of a family, each as a phrase for Dropped.By. They
// are, in the order of certainty:
//
//   - The rule that drops a traced probe. Replies cannot be traced.
//   - Chains with the policy drop. They are added to a traced rule, because the packet does not reach
//     the chains behind that rule.
//   - If neither exists, chains of iptables-legacy, which nftables does not show.
//   - If these do not exist either, all chains of other programs on the hook.
func (p *Probe) culprits(ctx context.Context, f family, s source, replies bool) ([]string, error) {
	chains, err := otherChains(ctx, f)
	if err != nil {
		return nil, err
	}

	var found []string

	// Without chains, a trace would only write to the kernel's log, by iptables-legacy.
	if !replies && len(chains) > 0 {
		traced, err := p.trace(ctx, s)
		if err != nil {
			return nil, err
		}

		if traced != "" {
			found = append(found, traced)
		}
	}

	for _, c := range chains {
		isChain := func(s string) bool { return strings.HasPrefix(s, c.name()+" ") }
		if c.Policy == "drop" && !slices.ContainsFunc(found, isChain) {
			found = append(found, c.name()+" (policy drop)")
		}
	}

	if found != nil {
		return found, nil
	}

	if found, err = legacyTables(f); found != nil || err != nil {
		return found, err
	}

	for _, c := range chains {
		found = append(found, c.name())
	}

	if found == nil {
		found = []string{"a security module, an eBPF program or IPVS (no chain is on the hook forward)"}
	}

	return found, nil
}

// chain is a base chain in the output of nft -j list chains.
type chain struct {
	Family, Table, Name, Hook, Policy string
}

func (c chain) name() string { return c.Family + " " + c.Table + " " + c.Name }

// otherChains returns the base chains of other programs on the hook forward of a family.
func otherChains(ctx context.Context, f family) ([]chain, error) {
	out, err := runNFT(ctx, "", "-j", "list", "chains")
	if err != nil {
		return nil, fmt.Errorf("list chains: %w", err)
	}

	var list struct {
		Nftables []struct{ Chain chain }
	}
	if err := json.Unmarshal(out, &list); err != nil {
		return nil, fmt.Errorf("list chains: %w", err)
	}

	var chains []chain

	for _, l := range list.Nftables {
		c := l.Chain
		if c.Hook == "forward" && (c.Family == f.ip || c.Family == "inet") &&
			(c.Family != "inet" || c.Table != Table) {
			chains = append(chains, c)
		}
	}

	return chains, nil
}

// legacyTables returns the tables of iptables-legacy that have a chain FORWARD.
func legacyTables(f family) ([]string, error) {
	b, err := os.ReadFile("/proc/net/" + f.ip + "_tables_names")
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("list tables of iptables-legacy: %w", err)
	}

	program := map[string]string{"ip": "iptables-legacy", "ip6": "ip6tables-legacy"}[f.ip]

	tables := strings.Fields(string(b))
	if slices.Contains(tables, "filter") {
		return []string{program + " filter FORWARD"}, nil
	}

	var out []string

	for _, t := range []string{"mangle", "security"} {
		if slices.Contains(tables, t) {
			out = append(out, program+" "+t+" FORWARD")
		}
	}

	return out, nil
}

// traceFor bounds a trace, and traceGap is the time between two probes. Several are sent because
// nft does not say when it has begun to trace.
const traceFor, traceGap = 3 * time.Second, 200 * time.Millisecond

// trace sends traced probes and returns the chain and the rule or policy that drops them, or "".
func (p *Probe) trace(ctx context.Context, s source) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, traceFor)
	defer cancel()

	cmd := exec.CommandContext(ctx, "nft", "monitor", "trace")

	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", fmt.Errorf("trace a packet: %w", err)
	}

	if err := cmd.Start(); err != nil {
		return "", fmt.Errorf("trace a packet: %w", err)
	}

	result := make(chan string, 1)

	go func() {
		defer cancel()

		result <- readTrace(out)
	}()

	for i := 0; ctx.Err() == nil; i++ { // the host may have no route to some targets
		probe := packet{netip.AddrPortFrom(s.targets[i%len(s.targets)], probeKinds[0].port), probeKinds[0].proto}
		if err := p.send(ctx, s, probe, tracedPort); err != nil && ctx.Err() == nil {
			cancel()

			_ = cmd.Wait() // killed

			return "", err
		}

		select {
		case <-ctx.Done():
		case <-time.After(traceGap):
		}
	}

	found := <-result
	_ = cmd.Wait() // killed

	return found, nil
}

// traceLine matches a line of nft monitor trace about a packet: its ID, the family, table and name
// of a chain, and the event there. For example:
//
//	trace id 3e5d3e04 ip filter FORWARD packet: iif "ovn-k8s-mp0" oif "eth0" ...
//	trace id 3e5d3e04 ip filter FORWARD rule tcp dport 443 counter packets 1 bytes 40 drop (verdict drop)
//	trace id 3e5d3e04 ip filter FORWARD policy drop
var traceLine = regexp.MustCompile(`^trace id (\S+) (\S+) (\S+) (\S+) (.*)`)

// maxRule is the length of a rule in a message.
const maxRule = 80

// ruleCounter matches the counter of a rule, which would change the message at each look.
var ruleCounter = regexp.MustCompile(`counter packets \d+ bytes \d+ ?`)

// readTrace reads the output of nft monitor trace until a probe ends. It returns the chain and the
// rule or policy that dropped the probe, or "" if it was this package's own chain leave. A packet
// is a probe if its trace begins in this package's chain enter.
func readTrace(in io.Reader) string {
	own := "inet " + Table
	base := map[string]string{} // the base chain in which a probe is now, by trace ID

	for lines := bufio.NewScanner(in); lines.Scan(); {
		m := traceLine.FindStringSubmatch(lines.Text())
		if m == nil {
			continue
		}

		id, table, name, event := m[1], m[2]+" "+m[3], m[4], strings.TrimSpace(m[5])

		_, isProbe := base[id]

		switch rule, drops := strings.CutSuffix(event, " (verdict drop)"); {
		case !isProbe && (table != own || name != enterChain): // a packet of another trace
		case strings.HasPrefix(event, "packet:"): // the probe enters a base chain
			base[id] = table + " " + name
		case (drops || event == "policy drop") && table == own:
			return ""
		case drops: // by a rule of the base chain, or of a chain to which it jumps
			rule = ruleCounter.ReplaceAllString(strings.TrimPrefix(rule, "rule "), "")
			rule = strings.ReplaceAll(rule[:min(len(rule), maxRule)], ";", ",")

			if chain := table + " " + name; chain != base[id] {
				rule += " in chain " + name
			}

			return base[id] + " (rule " + strings.TrimSpace(rule) + ")"
		case event == "policy drop":
			return base[id] + " (policy drop)"
		}
	}

	return ""
}
