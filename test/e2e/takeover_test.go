package e2e

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/test/lab"
)

// A node whose pods have connections from ports outside the SNAT range, as after another gateway or
// with another range, is taken over under traffic. The connections survive until their own end,
// also when the agent is killed. Afterwards no state about them remains.
func TestTakeover(t *testing.T) {
	if testing.Short() {
		t.Skip(inFull)
	}

	c := start(t, lab.Options{})
	if c.flows {
		t.Skip("the OpenFlow backend has no table of the connections that are taken over")
	}

	const before = "--snat-port-range=20000-24999"
	c.reconfigureAgent(t, before)
	c.leavesFrom(t, 20000, 24999)

	var held []*background

	for _, v6 := range []bool{false, true} {
		to := port(outside(v6), outsidePort)
		family := Result{V6: v6}.Family()
		held = append(held,
			c.hold(t, "TCP "+family, host("a"), to, time.Hour, "-interval", "50ms", "-timeout", "1m"),
			c.hold(t, "UDP "+family, host("a"), to, time.Hour, "-interval", "50ms", "-timeout", "10s", "-udp"))
	}

	silent := c.run(t, "the remote speaks first", host("a"), c.traffic("later", port(outside(false), outsidePort).String(), "-duration", "20s", "-timeout", "1m")...)

	time.Sleep(2 * time.Second) // until they are there

	c.replaceAgent(t, syscall.SIGTERM, c.bin)
	c.leavesFrom(t, 49152, 65535)

	const most = 5 // those held; what else has not ended by then is a connection of before as well
	if n := c.tableEntries(t, "takeover"); n < most {
		t.Errorf("%d connections taken over, want at least %d", n, most)
	}

	c.replaceAgent(t, syscall.SIGKILL, c.bin)

	if n := c.tableEntries(t, "takeover"); n < most {
		t.Errorf("%d connections taken over after a kill, want at least %d", n, most)
	}

	if out := silent.wait(t); !strings.HasPrefix(out, "ext ") {
		t.Errorf("%s: %q", silent.name, out)
	}

	for _, b := range held {
		b.stop(t)
	}

	for _, b := range held {
		b.held(t)
	}
	// Connection tracking keeps closed connections for minutes; here the timeout is short.
	c.execute(t, "node1", "ovs-appctl", "dpctl/flush-conntrack")
	within(t, "drained", func() error {
		if n := c.tableEntries(t, "takeover"); n != 0 {
			return fmt.Errorf("%d connections of before are left", n)
		}

		return c.agentSaid("no connection from before the takeover is left", "Takeover:false")
	})
	c.leavesFrom(t, 49152, 65535)
}

// leavesFrom waits until the outside host sees a pod's connections with these source ports.
func (c *Cluster) leavesFrom(t *testing.T, first, last uint16) {
	t.Helper()

	for _, v6 := range []bool{false, true} {
		within(t, fmt.Sprintf("pods leave from ports %d-%d", first, last), func() error {
			out, err := c.Exec(t.Context(), host("a"), c.traffic("tcp", port(outside(v6), outsidePort).String(), "-timeout", "2s")...)
			if err != nil {
				return err
			}

			_, client, _ := strings.Cut(strings.TrimSpace(string(out)), " ")

			seen, err := netip.ParseAddrPort(client)
			if err == nil && (seen.Port() < first || seen.Port() > last) {
				err = fmt.Errorf("the outside host saw %s", seen)
			}

			return err
		})
	}
}

// tableEntries returns the size of a table from the metrics of node1's agent.
func (c *Cluster) tableEntries(t *testing.T, table string) int {
	t.Helper()

	client, err := c.Client("node1")
	if err != nil {
		t.Fatal(err)
	}

	_, rest, _ := strings.Cut(fetch(t, client, c.Node(1).MetricsURL), `ovnkube_gateway_table_entries{table="`+table+`"} `)
	value, _, _ := strings.Cut(rest, "\n")

	n, err := strconv.ParseFloat(value, 64)
	if err != nil {
		t.Fatalf("entries of table %s: %v", table, err)
	}

	return int(n)
}

// agentSaid returns an error unless the last match of the first text in the log of node1's agent is
// followed by the second.
func (c *Cluster) agentSaid(first, second string) error {
	log, err := c.agentLog()
	if err != nil {
		return err
	}

	i := strings.LastIndex(log, first)
	if i < 0 || !strings.Contains(log[i:], second) {
		return fmt.Errorf("the agent did not say %q and then %q", first, second)
	}

	return nil
}

// agentLog returns the log of node1's agent.
func (c *Cluster) agentLog() (string, error) {
	b, err := os.ReadFile(filepath.Join(c.dir, "log", "agent-node1.log"))
	return string(b), err
}
