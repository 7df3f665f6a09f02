package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
	"github.com/ovn-ebpf/ovn-ebpf/test/lab"
	"github.com/ovn-ebpf/ovn-ebpf/test/lab/traffic"
)

// otherEnv is a directory with ovnkube of another version, which agents are
// upgraded to and back from; without it another path of the same.
const otherEnv = "OVN_EBPF_E2E_OTHER"

// change is what an operator does to node1's gateway.
type change struct {
	name   string
	direct bool // its layout before and after
	make   func(*testing.T, *Cluster)
}

func flagged(name string, flags ...string) change {
	return change{name: name, make: func(t *testing.T, c *Cluster) { c.reconfigureAgent(t, flags...) }}
}

const toBridged, toOpenFlow = "--gateway-layout=bridged", "--gateway-backend=openflow"

var (
	upgraded = change{"agent upgraded, killed and started", true, func(t *testing.T, c *Cluster) { c.upgradeAgent(t) }}
	// changes need the kernel's datapath: programs in layout bridged do, and on the
	// other one connection tracking dies with ovs-vswitchd.
	changes = []change{
		upgraded,
		{"vswitchd restarted, direct", true, func(t *testing.T, c *Cluster) { c.restartVswitchd(t) }},
		flagged("direct to bridged", toBridged),
		{"vswitchd restarted, bridged", false, func(t *testing.T, c *Cluster) { c.restartVswitchd(t) }},
		flagged("eBPF to OpenFlow", toBridged, toOpenFlow),
		flagged("OpenFlow to eBPF", toBridged),
		flagged("bridged to direct"),
	}
	userspaceChanges = []change{
		upgraded,
		flagged("direct to bridged and OpenFlow", toBridged, toOpenFlow),
		flagged("bridged and OpenFlow to direct"),
	}
)

// TestSwitch: connections of every kind live through all that an operator does to
// a node's gateway: an upgrade of the agent, another backend, another layout, a
// restart of ovs-vswitchd. In layout direct the host does not lose a packet by any
// of it.
func TestSwitch(t *testing.T) {
	if testing.Short() {
		t.Skip("the VM's suite and the full run have it; a short one has the upgrade, in TestEndToEnd")
	}
	c := start(t, lab.Options{})
	todo := changes
	if c.Datapath() == ovs.DatapathNetdev {
		todo = userspaceChanges
		c.sumChecksums(t)
	}
	l := c.startLoad(t)
	for _, s := range todo {
		t.Run(s.name, func(t *testing.T) {
			pings := l.during(t, c, s.name, func() { s.make(t, c) })
			if s.direct {
				none(t, pings, false)
			}
		})
	}
	l.end(t)
}

// sumChecksums has the devices compute checksums before they send, for no hardware
// is behind the AF_PACKET sockets that OVS will read node1's uplink from.
func (c *Cluster) sumChecksums(t *testing.T) {
	t.Helper()
	for _, on := range []string{"ext", "node1", "node2"} {
		c.execute(t, on, "ethtool", "-K", "eth0", "tx", "off")
	}
}

// testRestart: nothing is lost on the host's path, and connections of every kind
// live on, while the agent is upgraded, and while it is killed and started.
func testRestart(t *testing.T, c *Cluster) {
	flood := c.ping(t, "10,000 pings", "ext", c.node(1)(false), "-c", "10000", "-i", "0.003")
	stream := c.run(t, "30 s stream", "ext", c.traffic("stream", port(c.node(1)(false), sshPort).String(), "-duration", "30s")...)
	l := c.startLoad(t)
	none(t, l.during(t, c, "agent upgraded, killed and started", func() { c.upgradeAgent(t) }), false)
	flood.pinged(t, 10000)
	var streamed traffic.StreamReport
	if err := json.Unmarshal([]byte(stream.wait(t)), &streamed); err != nil || streamed.Bytes == 0 {
		t.Errorf("stream: %+v, %v", streamed, err)
	}
	t.Logf("stream: %+v", streamed)
	l.end(t)
}

// reconfigureAgent is what an operator does who gives node1's agent other flags.
func (c *Cluster) reconfigureAgent(t *testing.T, flags ...string) {
	t.Helper()
	c.replaceAgent(t, syscall.SIGTERM, c.bin, flags...)
}

// replaceAgent ends node1's agent and starts one of that directory.
func (c *Cluster) replaceAgent(t *testing.T, signal syscall.Signal, dir string, flags ...string) {
	t.Helper()
	if err := c.StopAgent(1, signal); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Second) // the node without its agent
	if err := c.StartAgentFrom(t.Context(), dir, 1, flags...); err != nil {
		t.Fatal(err)
	}
	if err := c.AwaitAgent(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
}

// upgradeAgent replaces node1's agent by another version, and that, killed, by the
// lab's.
func (c *Cluster) upgradeAgent(t *testing.T) {
	t.Helper()
	dir := os.Getenv(otherEnv)
	if dir == "" {
		dir = t.TempDir()
		if err := os.Symlink(c.Binary("ovnkube"), filepath.Join(dir, "ovnkube")); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("from %s to %s", c.execute(t, "node1", c.Binary("ovnkube"), "version"), strings.TrimSpace(c.execute(t, "node1", filepath.Join(dir, "ovnkube"), "version")))
	c.replaceAgent(t, syscall.SIGTERM, dir)
	c.replaceAgent(t, syscall.SIGKILL, c.bin)
}

// restartVswitchd kills ovs-vswitchd of node1 and starts it again.
func (c *Cluster) restartVswitchd(t *testing.T) {
	t.Helper()
	if err := c.StopVswitchd(1); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Second) // the node without it
	if err := c.StartVswitchd(1); err != nil {
		t.Fatal(err)
	}
	within(t, "agent ready", func() error { return c.AwaitAgent(t.Context(), 1) })
}
