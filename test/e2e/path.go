package e2e

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// Requests is how many TCP connections, and how many UDP datagrams, a path
// gets for each family.
const Requests = 50

// Path is one way through the cluster.
type Path struct {
	Name   string
	From   string                     // lab host of the client
	To     func(v6 bool) netip.Addr   // the address it asks
	Port   uint16                     // TCP and UDP
	Server string                     // a name the reply must start with; by commas, any of them
	Client func(v6 bool) []netip.Addr // addresses that the server may see; nil: not checked
	SNAT   bool                       // the server must see a port of OVN's
	Class  map[string]Class           // by node name; a node left out must be Absent
}

// Result is what one run of a path moved, by node name.
type Result struct {
	Path     *Path
	Protocol string // "tcp" or "udp"
	V6       bool
	Moved    map[string]Tally
	Seen     string // the last reply: the server's name and the client it saw
	First    error  // why a first run did not count; see Run
}

// Family is "v4" or "v6".
func (r Result) Family() string {
	if r.V6 {
		return "v6"
	}
	return "v4"
}

// Run makes Requests requests over p and checks the replies and the counters.
// The Result is returned with an error too, as far as it got.
//
// A run that fails is repeated once, and Result.First tells why: connections
// that an earlier fault cut may still send a last segment across the counters,
// and ovs-vswitchd 3.1 now and then aborts on the userspace datapath
// (conntrack.c, "conn->conn_type == CT_CONN_TYPE_DEFAULT") and is started again by
// its monitor. What is decided wrongly is so the second time too.
func (c *Cluster) Run(ctx context.Context, p *Path, protocol string, v6 bool) (Result, error) {
	if protocol == "tcp" && c.Datapath() != "system" {
		c.meet(ctx, p.From, netip.AddrPortFrom(p.To(v6), p.Port))
	}
	result, err := c.runOnce(ctx, p, protocol, v6)
	if err == nil || ctx.Err() != nil {
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

// meet has the neighbours on the way resolved, by datagrams: the first packet to one
// is lost on the userspace datapath, and a SYN that is sent again goes wrong there.
// ovs-vswitchd 3.1 calls it new and translates its destination before OVN's load
// balancer has seen it, which therefore does not ask for the source's translation: the
// answer goes by another gateway. The kernel's datapath leaves it to the load balancer.
func (c *Cluster) meet(ctx context.Context, from string, target netip.AddrPort) {
	for range 3 { // if none is answered, the run says so
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

// tallies reads every node's counters. A gateway made of flows has none: there
// the paths' answers must do.
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

// settled reads the counters when they have stopped moving, but for at most a
// second: the last segments of a connection come after its answer.
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

// check holds every reply and every node's counters against the path.
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

// checkReply reads "NAME CLIENT", CLIENT being the address and port that the
// server saw.
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
		return fmt.Errorf("server saw client %s, whose port is not OVN's", seen)
	}
	return nil
}
