package openflow_test

import (
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/agent/testnode"
)

// TestRecirculations counts how often the userspace datapath recirculates a packet before it drops
// it, which bounds OVN's translations of one packet (docs/services.md): 6 times in Open vSwitch 3.1
// and 8 times in 3.5.
func TestRecirculations(t *testing.T) {
	r := newRig(t)
	read := func(argv ...string) int {
		t.Helper()

		m := regexp.MustCompile(`tx pkts=(\d+)|^(\d+)`).FindStringSubmatch(testnode.Run(t, argv...))
		if m == nil {
			t.Fatalf("no number in the output of %v", argv)
		}

		n, err := strconv.Atoi(m[1] + m[2])
		if err != nil {
			t.Fatal(err)
		}

		return n
	}
	target := "unix:" + r.Dir + "/" + bridge + ".mgmt"
	sent := func() int { return read("ovs-ofctl", "dump-ports", target, "patch") }
	dropped := func() int {
		return read("ovs-appctl", "-t", r.Dir+"/vswitchd.ctl", "coverage/read-counter", "datapath_drop_recirc_error")
	}

	most := 0
	for n := 1; n <= 12 && most == n-1; n++ {
		flows := "delete\n"
		for table := range n {
			flows += fmt.Sprintf("add table=%d,ip,actions=ct(table=%d,zone=%d)\n", table, table+1, table+1)
		}

		flows += fmt.Sprintf("add table=%d,ip,actions=output:%d\n", n, r.ports.Patch)
		cmd := exec.Command("ovs-ofctl", "-O", "OpenFlow14", "--bundle", "add-flows", target, "-")

		cmd.Stdin = strings.NewReader(flows)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}

		if _, err := r.ctl.Call(t.Context(), "revalidator/purge"); err != nil { // the last round's flows of the datapath
			t.Fatal(err)
		}

		beforeSent, beforeDropped := sent(), dropped()

		frame := "02000000001102000000000108004500001c000000004011" + "66cd0a0000010a000002" + "0001000200080000"
		if _, err := r.ctl.Call(t.Context(), "netdev-dummy/receive", "uplink", frame); err != nil {
			t.Fatal(err)
		}

		testnode.Eventually(t, fmt.Sprintf("the packet with %d recirculations", n), func() error {
			switch {
			case sent() > beforeSent:
				most = n
			case dropped() == beforeDropped:
				return errors.New("it is neither sent nor dropped")
			}

			return nil
		})
	}

	want := map[string]int{"false": 6, "true": 8}[testnode.AvoidedZeroSNAT(t)] // before and after 3.3
	if most != want {
		t.Errorf("%d recirculations, want %d", most, want)
	}
}
