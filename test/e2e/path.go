package e2e

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
)

// Requests is the number of TCP connections, and of UDP datagrams, per path and family.
const Requests = 50

// Path is one way through the cluster.
type Path struct {
	Name   string
	From   string                     // lab host of the client
	To     func(v6 bool) netip.Addr   // destination address
	Port   uint16                     // TCP and UDP
	Server string                     // prefix of valid replies, or several separated by commas
	Client func(v6 bool) []netip.Addr // valid client addresses at the server; nil: any
	SNAT   bool                       // the client port must be in OVN's range
	Class  map[string]Class           // by node name; the default is Absent
}

// Result holds the packet counts of one run of a path, by node name.
type Result struct {
	Path     *Path
	Protocol string // "tcp" or "udp"
	V6       bool
	Moved    map[string]Tally
	Seen     string // last reply: name of the server and its client address
	First    error  // error of a first run that was repeated; see Run
}

// Family is "v4" or "v6".
func (r Result) Family() string {
	if r.V6 {
		return "v6"
	}

	return "v4"
}

// Run makes Requests requests over p and checks the replies and the counters. On an error it also
// returns the incomplete Result.
//
// Where pods can abort ovs-vswitchd (mayAbort), a failed run is repeated once, and Result.First keeps
// its error. The monitor of ovs-vswitchd restarts it. A wrong decision fails the second run, too.
func (c *Cluster) Run(ctx context.Context, p *Path, protocol string, v6 bool) (Result, error) {
	if protocol == "tcp" && c.Datapath() != "system" {
		c.meet(ctx, p.From, netip.AddrPortFrom(p.To(v6), p.Port))
	}

	result, err := c.runOnce(ctx, p, protocol, v6)
	if err == nil || ctx.Err() != nil || !c.mayAbort(ctx) {
		return result, err
	}

	first := err

	select {
	case <-ctx.Done():
		return result, err
	case <-time.After(5 * time.Second):
	}

	result, err = c.runOnce(ctx, p, protocol, v6)
	result.First = first

	return result, err
}

// mayAbort reports whether connections of pods can abort ovs-vswitchd (conntrack.c,
// "conn->conn_type == CT_CONN_TYPE_DEFAULT"): its connection tracker is its own, and it is older than
// 3.3.
func (c *Cluster) mayAbort(ctx context.Context) bool {
	return c.Datapath() != ovs.DatapathSystem && oldSwitch(ctx)
}

// oldSwitch reports whether the platform's Open vSwitch is older than 3.3. A version that cannot be
// read counts as new.
func oldSwitch(ctx context.Context) bool {
	out, _ := exec.CommandContext(ctx, "ovs-vswitchd", "--version").Output()
	old, _ := ovs.VersionConfusesNullNAT(string(out))

	return old
}

// meet resolves the neighbours along the path with datagrams. On the userspace datapath the first
// packet to a neighbour is lost, and a retransmitted SYN fails: ovs-vswitchd 3.1 treats it as new
// and translates its destination before OVN's load balancer, which then does not request
// translation of the source. The reply leaves by another gateway. The kernel datapath leaves the
// translation to the load balancer.
func (c *Cluster) meet(ctx context.Context, from string, target netip.AddrPort) {
	for range 3 { // without replies, the run itself fails
		if _, err := c.Exec(ctx, from, c.traffic("udp", "-n", "8", target.String())...); err == nil || ctx.Err() != nil {
			return
		}
	}
}

func (c *Cluster) runOnce(ctx context.Context, p *Path, protocol string, v6 bool) (Result, error) {
	result := Result{Path: p, Protocol: protocol, V6: v6, Moved: map[string]Tally{}}

	before, err := c.settled()
	if err != nil {
		return result, err
	}

	target := netip.AddrPortFrom(p.To(v6), p.Port)

	out, err := c.Exec(ctx, p.From, c.traffic(protocol, "-n", strconv.Itoa(Requests), target.String())...)
	if err != nil {
		return result, fmt.Errorf("%s %s from %s to %s: %w (after %d replies)", protocol, result.Family(), p.From, target, err, strings.Count(string(out), "\n"))
	}

	after, err := c.settled()
	if err != nil {
		return result, err
	}

	for name := range after {
		result.Moved[name] = after[name].minus(before[name])
	}

	replies := strings.Split(strings.TrimSpace(string(out)), "\n")
	result.Seen = replies[len(replies)-1]

	return result, p.check(result, replies)
}

// tallies reads every node's counters. A gateway of flows has none; there the replies must suffice.
func (c *Cluster) tallies() (map[string]Tally, error) {
	all := map[string]Tally{}
	if c.flows {
		return all, nil
	}

	for _, n := range c.Nodes() {
		t, err := ReadTally(n.PinDir)
		if err != nil {
			return nil, fmt.Errorf("read counters of %s: %w", n.Name, err)
		}

		all[n.Name] = t
	}

	return all, nil
}

// settled reads the counters when they are stable, after at most a second: the last segments of a
// connection follow its reply.
func (c *Cluster) settled() (map[string]Tally, error) {
	last, err := c.tallies()

	for range 20 {
		time.Sleep(50 * time.Millisecond)

		now, err := c.tallies()
		if err != nil || maps.Equal(now, last) {
			return now, err
		}

		last = now
	}

	return last, err
}

// check compares every reply and every node's counters with the path.
func (p *Path) check(r Result, replies []string) error {
	if len(replies) != Requests {
		return fmt.Errorf("%d replies to %d requests", len(replies), Requests)
	}

	for _, reply := range replies {
		if err := p.checkReply(reply, r.V6); err != nil {
			return err
		}
	}

	for name, moved := range r.Moved {
		if err := p.Class[name].check(moved, Requests); err != nil {
			return fmt.Errorf("%s is %s on %s: %w", p.Name, p.Class[name], name, err)
		}
	}

	return nil
}

// checkReply parses "NAME CLIENT", where CLIENT is the client address and port at the server.
func (p *Path) checkReply(reply string, v6 bool) error {
	name, client, _ := strings.Cut(reply, " ")
	if !strings.Contains(","+p.Server+",", ","+name+",") {
		return fmt.Errorf("reply %q, want one of %s", reply, p.Server)
	}

	seen, err := netip.ParseAddrPort(client)
	if err != nil {
		return fmt.Errorf("reply %q: %w", reply, err)
	}

	if p.Client != nil {
		known := false
		for _, addr := range p.Client(v6) {
			known = known || addr == seen.Addr().Unmap()
		}

		if !known {
			return fmt.Errorf("server saw client %s, want %v", seen, p.Client(v6))
		}
	}

	if p.SNAT && seen.Port() < 49152 {
		return fmt.Errorf("server saw client %s, with a port outside OVN's range", seen)
	}

	return nil
}
