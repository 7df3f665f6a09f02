package e2e

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/test/lab"
)

func TestDiag(t *testing.T) {
	began := time.Now()
	c := start(t, lab.Options{})
	t.Logf("up after %s", time.Since(began))
	show := func(what string) {
		t.Log("==== " + what)
		for _, n := range []string{"node1", "node2"} {
			for _, argv := range [][]string{{"ovs-appctl", "-t", "ovs-vswitchd", "tnl/neigh/show"}, {"ip", "neigh"}, {"ovs-ofctl", "dump-flows", "br-int", "table=66"}, {"sh", "-c", "ovs-vsctl --db=" + c.Node(1).OVSDB + " --columns=name,options find interface type=geneve"}} {
				out, err := c.Exec(t.Context(), n, argv...)
				t.Logf("%s %v: %v\n%s", n, argv, err, out)
			}
		}
		out, _ := c.Exec(t.Context(), "central", "ovn-sbctl", "list", "MAC_Binding")
		t.Logf("%s", out)
	}
	show("fresh")
	dump := exec.Command("ip", "netns", "exec", c.Node(1).Netns, "timeout", "20", "tcpdump", "-lnei", "any", "icmp or icmp6 or arp or udp port 6081")
	dump.Stdout, _ = os.Create("/tmp/hc-dump.txt")
	if err := dump.Start(); err != nil {
		t.Log(err)
	}
	time.Sleep(time.Second)
	for _, p := range []struct {
		what string
		to   netip.Addr
	}{{"outside4", outside(false)}, {"outside6", outside(true)}, {"pod4", c.Pods["c"].IP4()}, {"pod6", c.Pods["c"].IP6()}} {
		out, err := c.Exec(t.Context(), host("a"), "ping", "-n", "-D", "-c", "4", "-i", "0.4", "-W", "3", p.to.String())
		t.Logf("%s: %v\n%s", p.what, err, out)
	}
	out, err := c.Exec(t.Context(), host("a"), "ping", "-n", "-D", "-c", "4", "-i", "0.4", "-W", "3", lab.BehindIP4)
	t.Logf("behind: %v\n%s", err, out)
	show("after")
	out, _ = exec.Command("sh", "-c", fmt.Sprintf("ls %s; tail -n 40 %s/log/*ovn-controller*; ovs-appctl -t %s/ovn-controller.*.ctl coverage/show", c.Node(1).RunDir, "/run/ovn-ebpf-e2e", c.Node(1).RunDir)).CombinedOutput()
	t.Logf("%s", out)
	_ = dump.Wait()
}
