package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/test/lab"
)

const dir = "/run/ovn-ebpf-e2e"

// TestEndToEnd shares one cluster among its parts; the faults come last, and
// the one that takes a node's networking away comes at the very end.
func TestEndToEnd(t *testing.T) {
	c := start(t)
	t.Run("paths", func(t *testing.T) { testPaths(t, c) })
	t.Run("geneve on the wire", func(t *testing.T) {
		frames, err := c.SeeGeneve(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Log(frames)
	})
	t.Run("metrics", func(t *testing.T) { testMetrics(t, c) })
	t.Run("large packets", func(t *testing.T) { testLarge(t, c) })
	t.Run("echo requests", func(t *testing.T) { testEcho(t, c) })
	t.Run("a pod of the same name", func(t *testing.T) { testPodAgain(t, c) })
	t.Run("a pod that binds port 22", func(t *testing.T) { testSweep(t, c) })
	t.Run("agent restarts under load", func(t *testing.T) { testRestart(t, c) })
	t.Run("repair", func(t *testing.T) { testRepair(t, c) })
	t.Run("paths after the faults", func(t *testing.T) { testPaths(t, c) })
	t.Run("agent, vswitchd and bridge gone", func(t *testing.T) { testHostAlone(t, c) })
}

// start brings the cluster up, and takes it down with the test, failing it if
// anything is left.
func start(t *testing.T) *Cluster {
	t.Helper()
	if os.Getuid() != 0 {
		t.Fatal("not root: the lab makes network namespaces")
	}
	bin := os.Getenv("BIN_DIR")
	if bin == "" {
		t.Fatal("BIN_DIR is not set: run 'make e2e'")
	}
	c, err := Start(t.Context(), lab.Options{Dir: dir, Name: "e2e", BinDir: bin, CacheDir: os.Getenv("OVN_EBPF_CACHE"), Progress: os.Stdout})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			keepLogs(t)
		}
		if err := c.Down(context.Background()); err != nil {
			t.Error(err)
		}
		residue, err := lab.Residue(dir, "e2e")
		if len(residue) > 0 || err != nil {
			t.Errorf("left behind: %v, %v", residue, err)
		}
	})
	return c
}

// keepLogs copies the lab's logs to where they outlive it: the directory
// OVN_EBPF_E2E_LOGS if set, which must not be there yet.
func keepLogs(t *testing.T) {
	to := os.Getenv("OVN_EBPF_E2E_LOGS")
	if to == "" {
		to = filepath.Join(os.TempDir(), "ovn-ebpf-e2e-logs-"+strconv.Itoa(os.Getpid()))
	}
	t.Logf("logs of the failed run: %s (%v)", to, os.CopyFS(to, os.DirFS(filepath.Join(dir, "log"))))
}

func testPaths(t *testing.T, c *Cluster) {
	for _, path := range c.Paths() {
		for _, v6 := range []bool{false, true} {
			for _, protocol := range []string{"tcp", "udp"} {
				name := fmt.Sprintf("%s/%s/%s", path.Name, protocol, Result{V6: v6}.Family())
				t.Run(name, func(t *testing.T) {
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
}
