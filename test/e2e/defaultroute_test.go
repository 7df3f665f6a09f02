package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/test/lab"
)

// routeKind is a way to give a host its default routes. set and unset are commands of ip. DEV,
// HOP4, HOP6 and LINKLOCAL are the uplink and the addresses of the outside host.
type routeKind struct {
	name       string
	long       bool // not with -short
	set, unset []string
	rows       []string // routes of the gateway router to other networks, sorted
}

// routeKinds is ordered: the gateway router's routes of each kind differ from those before, so that
// traffic shows that they have changed.
var routeKinds = []routeKind{
	{
		name:  "IPv6 next hop for IPv4, link-local one for IPv6",
		set:   []string{"route add 0.0.0.0/0 via inet6 LINKLOCAL dev DEV", "-6 route add default via LINKLOCAL dev DEV"},
		unset: []string{"route del default", "-6 route del default"},
		rows:  []string{"0.0.0.0/0 169.254.0.1", "::/0 LINKLOCAL"},
	},
	{
		name: "another table, with a rule for all",
		set: []string{
			"route add default via HOP4 table 100", "rule add pref 1000 lookup 100",
			"-6 route add default via HOP6 table 100", "-6 rule add pref 1000 lookup 100",
		},
		unset: []string{"rule del pref 1000", "route flush table 100", "-6 rule del pref 1000", "-6 route flush table 100"},
		rows:  []string{"0.0.0.0/0 HOP4", "::/0 HOP6"},
	},
	{
		name:  "on-link",
		set:   []string{"route add default dev DEV", "-6 route add default dev DEV"},
		unset: []string{"route del default", "-6 route del default dev DEV"},
		rows:  []string{"0.0.0.0/0 -", "::/0 -"},
	},
	{
		name:  "halves",
		set:   []string{"route add 0.0.0.0/1 via HOP4", "route add 128.0.0.0/1 via HOP4", "-6 route add ::/1 via HOP6", "-6 route add 8000::/1 via HOP6"},
		unset: []string{"route del 0.0.0.0/1", "route del 128.0.0.0/1", "-6 route del ::/1", "-6 route del 8000::/1"},
		rows:  []string{"0.0.0.0/0 HOP4", "::/0 HOP6"},
	},
	{
		name: "halves with different next hops", long: true,
		set:   []string{"route add 0.0.0.0/1 via 172.30.0.254", "route add 128.0.0.0/1 via inet6 LINKLOCAL dev DEV", "-6 route add 2000::/4 via LINKLOCAL dev DEV", "-6 route add 3000::/4 via HOP6"},
		unset: []string{"route del 0.0.0.0/1", "route del 128.0.0.0/1", "-6 route del 2000::/4", "-6 route del 3000::/4"},
		rows:  []string{"0.0.0.0/1 172.30.0.254", "128.0.0.0/1 169.254.0.1", "2000::/4 LINKLOCAL", "3000::/4 HOP6"},
	},
	{
		name: "rule for the uplink's address", long: true,
		set: []string{
			"route add default via 172.30.0.254", "route add default via HOP4 table 100", "rule add pref 1000 from OWN4 lookup 100",
			"-6 route add default via fd00:172:30::254", "-6 route add default via HOP6 table 100", "-6 rule add pref 1000 from OWN6 lookup 100",
		},
		unset: []string{
			"rule del pref 1000", "route flush table 100", "route del default",
			"-6 rule del pref 1000", "-6 route flush table 100", "-6 route del default",
		},
		rows: []string{"0.0.0.0/0 HOP4", "::/0 HOP6"},
	},
	{
		name: "nexthop objects", long: true,
		set: []string{
			"nexthop add id 5 via inet6 LINKLOCAL dev DEV", "route add default nhid 5",
			"nexthop add id 6 via LINKLOCAL dev DEV", "-6 route add default nhid 6",
		},
		unset: []string{"nexthop flush"},
		rows:  []string{"0.0.0.0/0 169.254.0.1", "::/0 LINKLOCAL"},
	},
	{
		name: "several next hops, a worse metric beside", long: true,
		set: []string{
			"route add default metric 10 nexthop via HOP4 nexthop via 172.30.0.254", "route add default metric 20 via 172.30.0.253",
			"-6 route add default metric 10 nexthop via HOP6 nexthop via fd00:172:30::254", "-6 route add default metric 20 via fd00:172:30::253",
		},
		unset: []string{"route flush exact 0.0.0.0/0", "-6 route flush exact ::/0"},
		rows:  []string{"0.0.0.0/0 HOP4", "::/0 HOP6"},
	},
	{
		name: "next hop outside of the uplink's network, with the flag onlink", long: true,
		set:   []string{"route add default via 192.0.2.254 dev DEV onlink", "-6 route add default via 2001:db8:99::254 dev DEV onlink"},
		unset: []string{"route del default", "-6 route del default"},
		rows:  []string{"0.0.0.0/0 192.0.2.254", "::/0 2001:db8:99::254"},
	},
}

// testDefaultRoutes changes the kind of node1's default routes. With each kind, its pods and the
// node itself reach a network behind the router, and nothing is reported. Without any, a fault is.
func testDefaultRoutes(t *testing.T, c *Cluster) {
	names := c.routeNames(t)
	ip := func(lines ...string) {
		t.Helper()

		var script []string
		for _, line := range lines {
			script = append(script, "ip "+names.Replace(line))
		}

		c.execute(t, "node1", "sh", "-ec", strings.Join(script, "\n"))
	}
	plain := routeKind{
		name:  "next hop",
		set:   []string{"route replace default via HOP4", "-6 route replace default via HOP6"},
		unset: []string{"route del default", "-6 route del default"},
		rows:  []string{"0.0.0.0/0 HOP4", "::/0 HOP6"},
	}

	for _, a := range []string{
		lab.BehindIP4 + "/32", "172.30.0.254/32", "192.0.2.254/32", lab.BehindIP6 + "/128", "fd00:172:30::254/128", "2001:db8:99::254/128",
	} { // also a neighbour, for routes without a next hop
		c.execute(t, "ext", append([]string{"ip", "addr", "add", a, "dev", c.ExtDevice()}, nodad(strings.Contains(a, "::"))...)...)
		defer func() {
			_, _ = c.Exec(context.WithoutCancel(t.Context()), "ext", "ip", "addr", "del", a, "dev", c.ExtDevice())
		}()
	}

	c.reachBeyond(t)
	c.hasFault(t, 1, noDefaultRoute, false)

	t.Run("none", func(t *testing.T) {
		c.withoutDefaultRoute(t, func() { ip(plain.unset...) }, func() { c.awaitRows(t, names, nil) })
	})

	last := routeKind{name: "none"}

	defer func() { // all of them, whatever has failed
		for _, k := range append(routeKinds, plain) {
			for _, line := range k.unset {
				_, _ = c.Exec(context.WithoutCancel(t.Context()), "node1", "sh", "-c", "ip "+names.Replace(line))
			}
		}

		ip(plain.set...)
		c.reachBeyond(t)
	}()

	for _, k := range append(routeKinds, plain) {
		if k.long && testing.Short() {
			continue
		}

		ok := t.Run(k.name, func(t *testing.T) {
			begun := time.Now()

			ip(append(append([]string{}, last.unset...), k.set...)...)
			c.awaitRows(t, names, k.rows)
			c.reachBeyond(t)

			for _, v6 := range []bool{false, true} {
				within(t, "the node", func() error { return c.ask(t, "node1", port(beyond(v6), outsidePort)) })
			}

			t.Logf("followed after %s", time.Since(begun).Round(100*time.Millisecond))
			c.hasFault(t, 1, noDefaultRoute, false)

			if strings.HasPrefix(k.name, "IPv6 next hop") {
				c.movedStandIn(t)
			}
		})
		if !ok {
			return
		}

		last = k
	}
}

// noDefaultRoute begins the fault of a node without default routes.
const noDefaultRoute = "no default route of IPv"

// withoutDefaultRoute removes the default routes. The node is degraded, and says so. Its pods still
// reach the uplink's network.
func (c *Cluster) withoutDefaultRoute(t *testing.T, remove, gone func()) {
	t.Helper()

	before := map[string][]string{}
	for _, family := range []string{"4", "6"} {
		before[family] = c.nodeEvents(t, "node1", "NoIPv"+family+"NextHop")
	}

	begun := time.Now()

	remove()

	for _, family := range []string{"4", "6"} {
		fault := noDefaultRoute + family + " by " + c.Uplink()
		within(t, "fault "+fault, func() error {
			code, body, err := c.readyz("node1")
			if err != nil || code != http.StatusOK || !strings.Contains(body, fault) {
				return fmt.Errorf("readyz %d, %w: %s", code, err, body)
			}

			out, err := c.Exec(t.Context(), "node1", c.Binary("ovnkube"), "status", "--run-dir", c.Node(1).RunDir)
			if !strings.Contains(string(out), fault) {
				return fmt.Errorf("status: %w: %s", err, out)
			}

			return nil
		})
		c.awaitNodeEvent(t, "node1", "NoIPv"+family+"NextHop", fault, before[family])
	}

	if took := time.Since(begun); took > 30*time.Second {
		t.Errorf("reported after %s", took)
	}

	gone()

	for _, v6 := range []bool{false, true} {
		if err := c.ask(t, host("a"), port(outside(v6), outsidePort)); err != nil {
			t.Errorf("pod to the uplink's network: %v", err)
		}
	}
}

// movedStandIn gives the IPv6 next hop of IPv4 routes another link-layer address.
func (c *Cluster) movedStandIn(t *testing.T) {
	t.Helper()

	first := c.extMAC(t)
	for _, mac := range []string{"02:ff:00:00:03:01", first} {
		c.setExtMAC(t, mac)

		for _, to := range []string{lab.ExtIP4, lab.ExtIP6, c.extLinkLocal(t)} {
			for _, n := range c.Nodes() {
				c.execute(t, n.Name, "ip", "neigh", "replace", to, "dev", c.Uplink(), "lladdr", mac, "nud", "reachable")
			}
		}

		c.reachBeyond(t)
	}
}

// routeNames replaces the names in routeKinds.
func (c *Cluster) routeNames(t *testing.T) *strings.Replacer {
	t.Helper()

	return strings.NewReplacer("DEV", c.Uplink(), "HOP4", lab.ExtIP4, "HOP6", lab.ExtIP6, "LINKLOCAL", c.extLinkLocal(t),
		"OWN4", c.node(1)(false).String(), "OWN6", c.node(1)(true).String())
}

func (c *Cluster) extLinkLocal(t *testing.T) string {
	t.Helper()

	f := strings.Fields(c.execute(t, "ext", "ip", "-6", "-o", "addr", "show", "dev", c.ExtDevice(), "scope", "link"))
	if len(f) < 4 {
		t.Fatalf("the outside host has no link-local address: %q", f)
	}

	a, _, _ := strings.Cut(f[3], "/")

	return a
}

// awaitRows waits until node1's gateway router has these routes by its external port.
func (c *Cluster) awaitRows(t *testing.T, names *strings.Replacer, want []string) {
	t.Helper()

	wanted := names.Replace(strings.Join(want, "\n"))
	within(t, "routes "+wanted, func() error {
		out := c.execute(t, "central", "ovn-nbctl", "--db="+c.NBAddress(), "--data=bare", "--no-headings", "--format=csv",
			"--columns=ip_prefix,nexthop", "find", "Logical_Router_Static_Route", "output_port=rtoe-GR_node1")

		var got []string

		for line := range strings.Lines(out) {
			prefix, hop, _ := strings.Cut(strings.TrimSpace(line), ",")
			if hop == "" {
				hop = "-"
			}

			if !strings.HasPrefix(hop, "169.254.169.") && !strings.HasPrefix(hop, "fd69:") {
				got = append(got, prefix+" "+hop)
			}
		}

		for _, w := range strings.Split(wanted, "\n") {
			if w != "" && !strings.Contains(strings.Join(got, "\n")+"\n", w+"\n") {
				return fmt.Errorf("got %q", got)
			}
		}

		if len(got) != len(want) {
			return errors.New(out)
		}

		return nil
	})
}
