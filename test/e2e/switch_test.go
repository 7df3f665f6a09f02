package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
	"github.com/ovn-ebpf/ovn-ebpf/test/lab"
	"github.com/ovn-ebpf/ovn-ebpf/test/lab/traffic"
)

// otherEnv is a directory with another version of ovnkube, to which agents are upgraded and back.
// Without it, another path of the same version is used.
const otherEnv = "OVN_EBPF_E2E_OTHER"

// change is an operator's change to node1's gateway.
type change struct {
	name   string
	direct bool // its layout before and after
	// After it no packet passes the tunnel between the nodes: on the userspace datapath the tunnels of
	// the layouts end at different addresses, and Open vSwitch has no route from one to the other.
	noTunnel bool
	make     func(*testing.T, *Cluster)
}

func flagged(name string, flags ...string) change {
	return change{name: name, make: func(t *testing.T, c *Cluster) { c.reconfigureAgent(t, flags...) }}
}

const toBridged, toOpenFlow = "--gateway-layout=bridged", "--gateway-backend=openflow"

var (
	upgraded = change{name: "agent upgraded, killed and started", direct: true, make: func(t *testing.T, c *Cluster) { c.upgradeAgent(t) }}
	// Some changes need the kernel datapath: programs in layout bridged require it, and on the
	// userspace datapath connection tracking ends with ovs-vswitchd.
	changes = []change{
		upgraded,
		{name: "vswitchd restarted, direct", direct: true, make: func(t *testing.T, c *Cluster) { c.restartVswitchd(t) }},
		flagged("direct to bridged", toBridged),
		{name: "vswitchd restarted, bridged", make: func(t *testing.T, c *Cluster) { c.restartVswitchd(t) }},
		flagged("eBPF to OpenFlow", toBridged, toOpenFlow),
		flagged("OpenFlow to eBPF", toBridged),
		flagged("bridged to direct"),
	}
	userspaceChanges = []change{
		upgraded,
		{name: "direct to bridged and OpenFlow", noTunnel: true, make: func(t *testing.T, c *Cluster) { c.reconfigureAgent(t, toBridged, toOpenFlow) }},
		flagged("bridged and OpenFlow to direct"),
	}
)

// Connections of every kind survive an operator's changes to a node's gateway: an upgrade of the
// agent, another backend, another layout, a restart of ovs-vswitchd. In layout direct the host
// loses no packet.
func TestSwitch(t *testing.T) {
	if testing.Short() {
		t.Skip(inFull + "; TestEndToEnd has the upgrade")
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
			l.noTunnel = s.noTunnel

			pings := l.during(t, c, s.name, func() { s.make(t, c) })
			if s.direct {
				none(t, pings, false)
			}
		})
	}

	l.end(t)
}

// sumChecksums makes the devices of all peers of node1 compute checksums before sending. No hardware
// computes them for the AF_PACKET socket through which OVS reads node1's uplink, and OVS 3.5 drops
// packets without them.
func (c *Cluster) sumChecksums(t *testing.T) {
	t.Helper()

	for on, device := range map[string]string{"central": "fab0", "ext": "eth0", "node1": "eth0", "node2": "eth0"} {
		c.execute(t, on, "ethtool", "-K", device, "tx", "off")
	}
}

// testRestart: the host's path loses no packets, and connections of every kind survive, while the
// agent is upgraded, killed and started. In layout bridged on the userspace datapath, packets of the
// host pass through ovs-vswitchd, which drops some when this machine is busy.
func testRestart(t *testing.T, c *Cluster) {
	pings, streaming := 10000, 30*time.Second
	if testing.Short() {
		pings, streaming = 4000, 12*time.Second
	}

	flood := c.ping(t, fmt.Sprintf("%d pings", pings), "ext", c.node(1)(false), "-c", strconv.Itoa(pings), "-i", "0.003")
	stream := c.run(t, "stream for "+streaming.String(), "ext", c.traffic("stream", port(c.node(1)(false), sshPort).String(), "-duration", streaming.String())...)
	l := c.startLoad(t)

	lost := l.during(t, c, "agent upgraded, killed and started", func() { c.upgradeAgent(t) })
	if c.layout == bridged && c.Datapath() == ovs.DatapathNetdev {
		flood.stop(t)
	} else {
		none(t, lost, false)
		flood.pinged(t, pings)
	}

	var streamed traffic.StreamReport
	if err := json.Unmarshal([]byte(stream.wait(t)), &streamed); err != nil || streamed.Bytes == 0 {
		t.Errorf("stream: %+v, %v", streamed, err)
	}

	t.Logf("stream: %+v", streamed)
	l.end(t)
}

// reconfigureAgent restarts node1's agent with other flags.
func (c *Cluster) reconfigureAgent(t *testing.T, flags ...string) {
	t.Helper()
	c.replaceAgent(t, syscall.SIGTERM, c.bin, flags...)
}

// replaceAgent stops node1's agent and starts the one of that directory.
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

// upgradeAgent replaces node1's agent by another version, and then, by SIGKILL, by the lab's
// version.
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

// restartVswitchd kills and restarts ovs-vswitchd of node1.
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
