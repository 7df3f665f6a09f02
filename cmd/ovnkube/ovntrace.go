package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/ovn-ebpf/ovn-ebpf/agent/gateway/frame"
	"github.com/ovn-ebpf/ovn-ebpf/cmd/ovnkube/setting"
)

// trace runs ovn-trace for the frame, as the first packet of a connection that OVN receives from
// the uplink.
//
// OVN 25.03 applies ct_snat to every packet to an address of the gateway router's SNAT; OVN 23.03
// does so only if no load balancer has the address. ovn-trace stops at ct_snat, although OVN
// continues with a new connection unchanged. In this case, trace adds the logical flow of the load
// balancer, and a second trace that begins after it.
func (q *question) trace(ctx context.Context, f []byte) (string, error) {
	microflow := frame.Microflow(f)

	out, err := q.traceFrom(ctx, "ext_"+q.node, q.bridge+"_"+q.node, microflow)
	if err != nil || !endsAtCTSNAT(out) {
		return out, err
	}

	router := "GR_" + q.node

	flows, err := q.runOVNTool(ctx, "ovn-sbctl", "--no-leader-only", "lflow-list", router)
	if err != nil {
		return "", err
	}

	out += "\n# ovn-trace stops at ct_snat. OVN itself continues there for a new connection, which has no SNAT to undo."

	balancer, isFound := balancerOf(flows, microflow)
	if !isFound {
		return out + "\n# No load balancer of " + router + " has this destination.", nil
	}

	out += "\n# " + router + " has this load balancer:\n" + balancer.text
	if !balancer.backend.IsValid() {
		return out, nil
	}

	rest, err := q.traceFrom(ctx, router, "rtoe-"+router, balancer.translate(microflow))
	if err != nil {
		return "", err
	}

	return fmt.Sprintf("%s\n# Trace from the load balancer to its first backend, %s:\n%s", out, balancer.backend, rest), nil
}

// traceFrom runs ovn-trace for a packet that enters the datapath at a port. ovn-trace has no
// connection tracker: each --ct is the result of one lookup, so that no lookup finds a connection.
func (q *question) traceFrom(ctx context.Context, datapath, port, microflow string) (string, error) {
	return q.runOVNTool(ctx, "ovn-trace", "--no-leader-only", "--summary",
		"--ct=new", "--ct=new", "--ct=new", "--ct=new",
		datapath, fmt.Sprintf("inport == %q && %s", port, microflow))
}

// runOVNTool runs a tool of OVN on the Southbound database and returns its output.
func (q *question) runOVNTool(ctx context.Context, tool string, args ...string) (string, error) {
	if tls := q.cluster.sbTLS; tls.Key != "" {
		files := []string{"--private-key=" + tls.Key, "--certificate=" + tls.Certificate, "--ca-cert=" + tls.CA}
		args = slices.Concat(files, args)
	}

	if q.Origin("sb-address").Source != setting.Default {
		args = append([]string{"--db=" + q.cluster.sbAddress}, args...)
	}

	out, err := exec.CommandContext(ctx, tool, args...).Output()
	if err != nil {
		var stderr []byte
		if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
			stderr = exit.Stderr
		}

		return "", fmt.Errorf("ask %s: %w: %s", tool, err, strings.TrimSpace(string(stderr)+" "+string(out)))
	}

	return strings.TrimRight(string(out), "\n"), nil
}

// endsAtCTSNAT reports whether the last action of ovn-trace's summary is a ct_snat without an
// address, which undoes SNAT.
func endsAtCTSNAT(summary string) bool {
	lines := strings.Split(summary, "\n")
	for _, line := range slices.Backward(lines) {
		if action := strings.TrimSpace(line); action != "};" && action != "}" && action != "" {
			return action == "ct_snat;"
		}
	}

	return false
}

// balancerFlow is the logical flow of a load balancer for a VIP.
type balancerFlow struct {
	text       string // as lflow-list prints it
	vip        netip.AddrPort
	backend    netip.AddrPort // the first one; invalid if there is none
	forcesSNAT bool           // backends see the router's address as the source
}

// Patterns of `ovn-sbctl lflow-list` and of microflows. A flow of a load balancer is a line such as
//
//	table=7 (lr_in_dnat), priority=120, match=(ct.new && ip4.dst == 192.0.2.1 && tcp && tcp.dst == 80),
//	action=(flags.force_snat_for_lb = 1; ct_lb(backends=10.244.0.5:8080,10.244.1.7:8080);)
var (
	lflow       = regexp.MustCompile(`^\s*table=\d+\s*\(lr_in_dnat\s*\), priority=(\d+)\s*, match=\((.*)\), action=\((.*)\)$`)
	destination = regexp.MustCompile(`\bip[46]\.dst == ([0-9a-f.:]+)`)
	transport   = regexp.MustCompile(`\b(tcp|udp|sctp)\.dst == (\d+)`)
	backends    = regexp.MustCompile(`\bbackends=([^,;)]+)`)
)

// balancerOf returns the logical flow of a router that balances a new connection with this
// microflow. If several do, it is the one with the highest priority.
func balancerOf(flows, microflow string) (balancerFlow, bool) {
	var best balancerFlow

	highest := -1
	vip, proto := destinationOf(microflow)

	for line := range strings.Lines(flows) {
		fields := lflow.FindStringSubmatch(strings.TrimRight(line, "\n"))
		if fields == nil || !strings.Contains(fields[2], "ct.new") {
			continue
		}

		priority, err := strconv.Atoi(fields[1])
		match, actions := fields[2], fields[3]

		// A flow without a protocol is that of a load balancer for all ports.
		to, flowProto := destinationOf(match)
		if err != nil || priority <= highest || to.Addr() != vip.Addr() ||
			flowProto != "" && (flowProto != proto || to.Port() != vip.Port()) {
			continue
		}

		highest = priority
		best = balancerFlow{
			text:       strings.TrimSpace(fields[0]),
			vip:        vip,
			forcesSNAT: strings.Contains(actions, "flags.force_snat_for_lb = 1"),
		}

		if list := backends.FindStringSubmatch(actions); list != nil {
			best.backend = parseBackend(list[1], vip.Port())
		}
	}

	return best, highest >= 0
}

// destinationOf returns the address, port and protocol that an expression has for the destination.
func destinationOf(expression string) (netip.AddrPort, string) {
	var addr netip.Addr // invalid if the expression has none
	if m := destination.FindStringSubmatch(expression); m != nil {
		addr, _ = netip.ParseAddr(m[1])
	}

	m := transport.FindStringSubmatch(expression)
	if m == nil {
		return netip.AddrPortFrom(addr, 0), ""
	}

	port, _ := strconv.ParseUint(m[2], 10, 16) // the pattern has only digits

	return netip.AddrPortFrom(addr, uint16(port)), m[1]
}

// parseBackend parses an address with or without a port. Without one, the backend has the
// connection's port.
func parseBackend(text string, port uint16) netip.AddrPort {
	if b, err := netip.ParseAddrPort(text); err == nil {
		return b
	}

	a, _ := netip.ParseAddr(strings.Trim(text, "[]")) // invalid: an empty list

	return netip.AddrPortFrom(a, port)
}

// translate returns the microflow of the packet as the load balancer sends it on.
func (b balancerFlow) translate(microflow string) string {
	out := destination.ReplaceAllStringFunc(microflow, func(term string) string {
		name, _, _ := strings.Cut(term, " ")
		return name + " == " + b.backend.Addr().String()
	})

	out = transport.ReplaceAllString(out,
		fmt.Sprintf("${1}.dst == %d", cmp.Or(b.backend.Port(), b.vip.Port())))
	if b.forcesSNAT {
		out += " && flags.force_snat_for_lb == 1"
	}

	return out
}
