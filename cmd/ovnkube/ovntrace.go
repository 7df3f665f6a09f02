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

// trace runs ovn-trace for the frame beyond the uplink, as the first packet of a connection.
//
// OVN 25.03 has ct_snat for every packet to an address of the gateway router's SNAT, and 23.03 not
// for those of a load balancer. ovn-trace ends there, although a new connection goes on unchanged.
// Then the output has the load balancer's logical flow, and a second trace that begins behind it.
func (q *question) trace(ctx context.Context, f []byte) (string, error) {
	flow := frame.Microflow(f)

	out, err := q.traceFrom(ctx, "ext_"+q.node, q.bridge+"_"+q.node, flow)
	if err != nil || !endsAtUnSNAT(out) {
		return out, err
	}

	router := "GR_" + q.node

	flows, err := q.askOVN(ctx, "ovn-sbctl", "--no-leader-only", "lflow-list", router)
	if err != nil {
		return "", err
	}

	out += "\n# ovn-trace stops at ct_snat. OVN itself continues there for a new connection, which has no SNAT to undo."

	lb, ok := balancedBy(flows, flow)
	if !ok {
		return out + "\n# No load balancer of " + router + " has this destination.", nil
	}

	out += "\n# " + router + " has this load balancer:\n" + lb.text
	if !lb.backend.IsValid() {
		return out, nil
	}

	rest, err := q.traceFrom(ctx, router, "rtoe-"+router, lb.translate(flow))
	if err != nil {
		return "", err
	}

	return fmt.Sprintf("%s\n# Trace from the load balancer to its first backend, %s:\n%s", out, lb.backend, rest), nil
}

func (q *question) traceFrom(ctx context.Context, datapath, port, flow string) (string, error) {
	// ovn-trace has no connection tracker, so the result is for new connections.
	return q.askOVN(ctx, "ovn-trace", "--no-leader-only", "--summary",
		"--ct=new", "--ct=new", "--ct=new", "--ct=new",
		datapath, fmt.Sprintf("inport == %q && %s", port, flow))
}

// askOVN runs a tool of OVN on the Southbound database and returns its output.
func (q *question) askOVN(ctx context.Context, tool string, args ...string) (string, error) {
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

// endsAtUnSNAT reports whether a summary's last action is a ct_snat without an address, which
// undoes SNAT.
func endsAtUnSNAT(summary string) bool {
	lines := strings.Split(summary, "\n")
	for _, line := range slices.Backward(lines) {
		if action := strings.TrimSpace(line); action != "};" && action != "}" && action != "" {
			return action == "ct_snat;"
		}
	}

	return false
}

// balancerFlow is a load balancer's logical flow.
type balancerFlow struct {
	text    string // as lflow-list prints it
	vip     netip.AddrPort
	backend netip.AddrPort // the first one; invalid if there is none
	forced  bool           // backends see the router's address as the source
}

var (
	lflow       = regexp.MustCompile(`^\s*table=\d+\s*\(lr_in_dnat\s*\), priority=(\d+)\s*, match=\((.*)\), action=\((.*)\)$`)
	destination = regexp.MustCompile(`\bip[46]\.dst == ([0-9a-f.:]+)`)
	transport   = regexp.MustCompile(`\b(tcp|udp|sctp)\.dst == (\d+)`)
	backends    = regexp.MustCompile(`\bbackends=([^,;)]+)`)
)

// balancedBy returns the logical flow of a router that balances a new connection whose microflow is
// given: that of the highest priority.
func balancedBy(flows, microflow string) (balancerFlow, bool) {
	var best balancerFlow

	highest := -1
	vip, proto := destinationOf(microflow)

	for line := range strings.Lines(flows) {
		m := lflow.FindStringSubmatch(strings.TrimRight(line, "\n"))
		if m == nil || !strings.Contains(m[2], "ct.new") {
			continue
		}

		priority, err := strconv.Atoi(m[1])

		to, of := destinationOf(m[2])
		if err != nil || priority <= highest || to.Addr() != vip.Addr() ||
			of != "" && (of != proto || to.Port() != vip.Port()) {
			continue
		}

		highest, best = priority, balancerFlow{
			text:   strings.TrimSpace(m[0]),
			vip:    vip,
			forced: strings.Contains(m[3], "flags.force_snat_for_lb = 1"),
		}
		if b := backends.FindStringSubmatch(m[3]); b != nil {
			best.backend = backend(b[1], vip.Port())
		}
	}

	return best, highest >= 0
}

// destinationOf returns the address, port and protocol that an expression has for the destination.
func destinationOf(expression string) (netip.AddrPort, string) {
	var a netip.Addr
	if m := destination.FindStringSubmatch(expression); m != nil {
		a, _ = netip.ParseAddr(m[1]) // invalid: no address
	}

	m := transport.FindStringSubmatch(expression)
	if m == nil {
		return netip.AddrPortFrom(a, 0), ""
	}

	port, _ := strconv.ParseUint(m[2], 10, 16)

	return netip.AddrPortFrom(a, uint16(port)), m[1]
}

// backend parses an address with a port, or one without, which keeps the connection's port.
func backend(text string, port uint16) netip.AddrPort {
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
	if b.forced {
		out += " && flags.force_snat_for_lb == 1"
	}

	return out
}
