package e2e

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/test/lab/traffic"
)

// testSourcePort: a pod connects fifty times from one source port to a pod on another node. Each
// connection is answered, and ovs-vswitchd does not abort on either node. Where it would,
// ovnkube status says so.
func testSourcePort(t *testing.T, c *Cluster) {
	const from, times = 40000, 50

	cmd, err := c.Command(t.Context(), "node1", c.Binary("ovnkube"), "status", "--run-dir", c.Node(1).RunDir)
	if err != nil {
		t.Fatal(err)
	}

	status, _ := cmd.Output() // its exit status covers other checks, too

	mayAbort := c.mayAbort(t.Context())
	if warns := strings.Contains(string(status), "any pod can abort ovs-vswitchd"); warns != mayAbort {
		t.Errorf("ovnkube status, where pods can abort ovs-vswitchd: %v:\n%s", mayAbort, status)
	}

	if mayAbort {
		t.Skip("pods can abort this ovs-vswitchd")
	}

	switches := func() string {
		return c.execute(t, "node1", "cat", c.Node(1).RunDir+"/ovs-vswitchd.pid", c.Node(2).RunDir+"/ovs-vswitchd.pid")
	}
	before := switches()

	bothFamilies(t, func(t *testing.T, v6 bool) {
		var all traffic.SweepReport

		for range times {
			out, err := c.Exec(t.Context(), host("a"), c.traffic("sweep", port(c.pod("c")(v6), 0).String(),
				"-sport", strconv.Itoa(from), "-ports", strconv.Itoa(podPort), "-timeout", "3s")...)
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}

			var one traffic.SweepReport
			if err := json.Unmarshal(out, &one); err != nil {
				t.Fatal(err)
			}

			all.Attempts += one.Attempts
			all.Connected += one.Connected
		}

		if all.Attempts != times || all.Connected != times {
			t.Errorf("%d of %d attempts connected, want %d of %[3]d", all.Connected, all.Attempts, times)
		}
	})

	if after := switches(); after != before {
		t.Errorf("process IDs of ovs-vswitchd: before %q, after %q", before, after)
	}
}
