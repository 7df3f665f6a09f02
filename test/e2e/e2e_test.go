package e2e

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/test/lab"
	"github.com/ovn-ebpf/ovn-ebpf/test/tether"
)

// nameEnv names the lab, so that several can run side by side.
const nameEnv = "OVN_EBPF_E2E_NAME"

// Configuration of the agents' gateways, if not the default.
const (
	layoutEnv  = "OVN_EBPF_E2E_LAYOUT"
	backendEnv = "OVN_EBPF_E2E_BACKEND"
	localEnv   = "OVN_EBPF_E2E_LOCAL" // not empty: local gateway mode
)

// TestEndToEnd shares one cluster among its parts. Faults come last, and the very last one removes
// a node's networking.
func TestEndToEnd(t *testing.T) {
	c := start(t, lab.Options{})
	if !c.local && c.layout != dedicated { // otherwise the host does not share the gateway router's next hop
		t.Run("first packets", func(t *testing.T) { testFirstPackets(t, c) })
	}

	t.Run("paths", func(t *testing.T) { testPaths(t, c) })
	t.Run("geneve on the wire", func(t *testing.T) {
		frames, err := c.SeeGeneve(t.Context())
		if err != nil {
			t.Fatal(err)
		}

		t.Log(frames)
	})
	t.Run("metrics", func(t *testing.T) { testMetrics(t, c) })

	if c.layout == "direct" && !c.flows && !c.local { // other wirings lack some of the metrics
		t.Run("monitoring", func(t *testing.T) { testMonitoring(t, c) })
	}

	t.Run("tools", func(t *testing.T) { testTools(t, c) })
	t.Run("explain", func(t *testing.T) { testExplain(t, c) })
	t.Run("masquerade networks", func(t *testing.T) { testMasquerade(t, c) })
	t.Run("pods' tunnels", func(t *testing.T) { testPodTunnels(t, c) })
	t.Run("outsider", func(t *testing.T) { testOutsider(t, c) })
	t.Run("echo requests", func(t *testing.T) { testEcho(t, c) })
	t.Run("monitor", func(t *testing.T) { testMonitor(t, c) }) // its connections end at any time, so it follows the counting parts
	t.Run("top", func(t *testing.T) { testTop(t, c) })
	t.Run("a pod of the same name", func(t *testing.T) { testPodAgain(t, c) })
	t.Run("host ports at loopback", func(t *testing.T) { testLoopback(t, c) })
	t.Run("field", func(t *testing.T) { testField(t, c) })

	if c.hasShortcuts() {
		t.Run("shortcuts", func(t *testing.T) { testShortcuts(t, c) })
	}

	t.Run("agent restarts under load", func(t *testing.T) { testRestart(t, c) })
	t.Run("repair", func(t *testing.T) { testRepair(t, c) })
	t.Run("paths after the faults", func(t *testing.T) { testSomePaths(t, c, requiredPaths()...) })
	t.Run("shadow", func(t *testing.T) { testShadow(t, c) }) // after all other requests to agents

	if c.hasShortcuts() {
		t.Run("shortcuts were used", func(t *testing.T) { shortcutsUsed(t, c.Lab) })
	}

	t.Run("agent, vswitchd and bridge gone", func(t *testing.T) { testHostAlone(t, c) })
}

// start brings the cluster up. At the end of the test it takes the cluster down and fails if
// anything is left.
func start(t *testing.T, o lab.Options) *Cluster {
	t.Helper()
	o = labOptions(t, o)

	c, err := Start(t.Context(), o)
	if err != nil {
		t.Fatalf("%v\nlogs of the failed run: %s", err, o.FailedLogs)
	}

	downAfter(t, c.Lab, o)

	return c
}

// externalIPs are the allowed external IPs: networks outside of the lab, and the address of the API
// server and of OVN's databases. This address does not belong to a Node. Services must not get those
// servers' ports.
const externalIPs = "203.0.113.0/24,2001:db8:10::/64," + lab.CentralIP4 + "/32," + lab.CentralIP6 + "/128"

// labOptions adds the options from the environment.
func labOptions(t *testing.T, o lab.Options) lab.Options {
	t.Helper()

	if os.Getuid() != 0 {
		t.Fatal("not root: the lab makes network namespaces")
	}

	bin := os.Getenv("BIN_DIR")
	if bin == "" {
		t.Fatal("BIN_DIR is not set: the directory of the built programs")
	}

	o.Name = cmp.Or(os.Getenv(nameEnv), "e2e")
	o.Dir = "/run/ovn-ebpf-" + o.Name
	o.Owned = true

	o.BinDir, o.CacheDir, o.Progress = bin, os.Getenv("OVN_EBPF_CACHE"), os.Stdout
	if layout := os.Getenv(layoutEnv); layout == dedicated {
		o.Uplink = lab.UplinkOwn
	} else if layout != "" {
		o.AgentArgs = append(o.AgentArgs, "--gateway-layout="+layout)
	}

	if backend := os.Getenv(backendEnv); backend != "" {
		o.AgentArgs = append(o.AgentArgs, "--gateway-backend="+backend)
	}

	if os.Getenv(localEnv) != "" {
		o.AgentArgs = append(o.AgentArgs, "--gateway-mode=local")
	}

	o.AgentArgs = append(o.AgentArgs, shadowRate)
	o.ExternalIPs = externalIPs
	o.FailedLogs = failedLogs(t)

	return o
}

// downAfter takes the lab down at the end of the test and fails if anything is left.
func downAfter(t *testing.T, c *lab.Lab, o lab.Options) {
	t.Helper()
	t.Cleanup(func() {
		agreed(t, o.Dir)

		if t.Failed() {
			keepLogs(t, o.Dir)
		}

		if err := c.Down(context.Background()); err != nil {
			t.Error(err)
		}

		residue, err := lab.Residue(o.Dir, o.Name)
		if len(residue) > 0 || err != nil {
			t.Errorf("left behind: %v, %v", residue, err)
		}
	})
}

// keepLogs copies the lab's logs to a directory that outlives it.
func keepLogs(t *testing.T, dir string) {
	to := failedLogs(t)
	t.Logf("logs of the failed run: %s (%v)", to, os.CopyFS(to, os.DirFS(filepath.Join(dir, "log"))))
}

// runID names the logs of this run: in a tether, concurrent runs have the same process ID.
var runID = rand.Text()

// failedLogs returns a directory for the logs of a failed test, below OVN_EBPF_E2E_LOGS, if set. It
// does not exist: a test that runs again gets another one.
func failedLogs(t *testing.T) string {
	parent := cmp.Or(os.Getenv("OVN_EBPF_E2E_LOGS"), filepath.Join(tether.TempDir(), "ovn-ebpf-e2e-logs-"+runID))
	for n := 1; ; n++ {
		dir := filepath.Join(parent, fmt.Sprintf("%s.%d", t.Name(), n))
		if _, err := os.Stat(dir); err != nil {
			return dir
		}
	}
}

func testPaths(t *testing.T, c *Cluster) {
	for _, path := range c.Paths() {
		t.Run(path.Name, func(t *testing.T) { testPath(t, c, path) })
	}
}

func testPath(t *testing.T, c *Cluster, path *Path) {
	for _, v6 := range []bool{false, true} {
		for _, protocol := range []string{"tcp", "udp"} {
			t.Run(protocol+"/"+Result{V6: v6}.Family(), func(t *testing.T) {
				r, err := c.Run(t.Context(), path, protocol, v6)
				if err != nil {
					t.Errorf("%v\nmoved %+v", err, r.Moved)
				}

				if r.First != nil {
					t.Logf("run twice: %v", r.First)
				}
			})
		}
	}
}
