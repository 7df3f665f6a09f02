package nicbridge

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/agent/testnode"
)

// rig is a host with a NIC that has every kind of configuration, a second device, and a peer as its
// gateway.
type rig struct {
	sw   *testnode.Switch
	peer string // process in the peer's network namespace
	dir  string
	opts Options
}

// everything is the host's configuration. Lines are arguments of ip.
const everything = `
addr add 10.5.0.2/24 brd + dev nic0
addr add 10.5.0.3/24 brd + dev nic0
addr add 10.5.0.4/24 brd + dev nic0 label nic0:x
addr add 10.6.0.2/24 dev nic0 valid_lft 3600 preferred_lft 1800
addr add 10.7.0.1 peer 10.7.0.2/32 dev nic0
addr add 10.8.0.2/24 dev nic0 metric 77
addr add 10.9.0.2/24 dev nic0 noprefixroute
addr add fd05::2/64 dev nic0 nodad
addr add fd05::3/64 dev nic0 valid_lft 3600 preferred_lft 0
addr add fd06::2/128 dev nic0
addr add 10.5.0.200/24 dev other
addr add 10.99.0.2/24 dev other
route add default via 10.5.0.1 dev nic0 metric 100
route add default via 10.5.0.9 dev nic0 metric 200 proto static
route add 192.168.1.0/24 via 10.5.0.1 dev nic0 src 10.5.0.3 mtu 1400 initcwnd 20
route add 192.168.2.0/24 dev nic0
route add 192.168.3.0/24 nexthop via 10.5.0.1 dev nic0 weight 1 nexthop via 10.5.0.7 dev nic0 weight 3
route add 192.168.4.0/24 nexthop via 10.5.0.1 dev nic0 weight 1 nexthop via 10.99.0.1 dev other weight 2
route add 192.168.5.0/24 via 172.16.0.1 dev nic0 onlink
route add 192.168.6.0/24 via 10.5.0.1 dev nic0
route append 192.168.6.0/24 via 10.99.0.1 dev other
route append 192.168.6.0/24 via 10.5.0.7 dev nic0
route add 192.168.7.0/24 via 10.99.0.1 dev other
route append 192.168.7.0/24 via 10.5.0.1 dev nic0
route add default via 10.5.0.1 dev nic0 table 100
route add 10.5.0.0/24 dev nic0 table 100
route add local 10.66.0.0/16 dev nic0 table local proto static
route add 192.168.8.0/24 via inet6 fd05::1 dev nic0
-6 route add default via fd05::1 dev nic0 metric 100
-6 route add fd77::/48 via fe80::1 dev nic0 mtu 1300
-6 route add fd78::/48 nexthop via fd05::1 dev nic0 nexthop via fd05::7 dev nic0
-6 route add fd79::/48 dev nic0
-6 route append fd79::/48 dev other
-6 route add default via fd05::1 dev nic0 table 100
-6 route add fd7a::/48 via fd05::1 dev nic0 src fd05::2
rule add iif nic0 lookup 100 prio 1000
rule add oif nic0 fwmark 0x7/0xf lookup 100 prio 1001
rule add not from 10.5.0.2 iif nic0 lookup 100 prio 1002
rule add from 10.5.0.2 lookup 100 prio 1003
-6 rule add iif nic0 lookup 100 prio 1000
neigh add 10.5.0.50 lladdr 02:00:00:00:00:50 dev nic0 nud permanent
-6 neigh add fd05::50 lladdr 02:00:00:00:00:51 dev nic0 nud permanent
`

// nics are kinds of NICs. PEER is the process in the peer's namespace.
var nics = map[string]string{
	"veth": `link add nic0 type veth peer name wire netns PEER`,
	"bond": `link add nic0 type bond mode active-backup
link add e0 type veth peer name wire netns PEER
link set e0 master nic0
link set e0 up`,
	"vlan": `link add e0 type veth peer name w0 netns PEER
link set e0 up
link add link e0 name nic0 type vlan id 100
-n PEER link set w0 up
-n PEER link add link w0 name wire type vlan id 100`,
}

func newRig(t *testing.T) *rig { return newRigOn(t, "veth") }

func newRigOn(t *testing.T, kind string) *rig {
	t.Helper()
	r := &rig{peer: testnode.Netns(t), sw: testnode.StartSwitch(t, true)}
	t.Setenv(ovsdbEnv, r.sw.Address)

	dir, err := os.MkdirTemp("", "nic")
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { os.RemoveAll(dir) })

	r.dir = dir
	if r.opts, err = options(dir); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		r.opts.Watchdog, r.opts.hook = nil, nil

		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()

		if err := Restore(ctx, r.opts); err != nil {
			t.Log("clean up:", err)
		}

		_ = nft("add table netdev steal; delete table netdev steal")

		testnode.Run(t, "ip", "rule", "flush")
		testnode.Run(t, "ip", "rule", "add", "lookup", "main", "prio", "32766")
		testnode.Run(t, "ip", "-6", "rule", "flush")
		testnode.Run(t, "ip", "-6", "rule", "add", "lookup", "main", "prio", "32766")

		for _, d := range []string{nicName, "e0", "other", bridgeName} {
			_ = link.Delete(d)
		}
	})
	r.addNIC(t, kind)
	ip(t, "link add other type veth peer name otherp")
	ip(t, "link set nic0 address 02:00:00:00:00:02 mtu 1480")

	set := func(device, key, value string) {
		t.Helper()

		if err := writeSysctl(device, key, value); err != nil {
			t.Fatal(err)
		}
	}
	for key, v := range map[string]string{"ipv4/rp_filter": "1", "ipv4/arp_ignore": "1", "ipv6/hop_limit": "77"} {
		set(nicName, key, v)
	}
	// Duplicate address detection would take two seconds here. The test needs it only afterwards: a
	// move must not start it.
	for _, device := range []string{nicName, "other", "otherp"} {
		set(device, "ipv6/accept_dad", "0")
	}

	ip(t, "link set other up")
	ip(t, "link set otherp up")
	ip(t, "link set nic0 up")
	r.inPeer(t, "ip", "link", "set", "wire", "address", "02:00:00:00:00:01", "up")
	r.inPeer(t, "ethtool", "-K", "wire", "tx", "off")
	testnode.Run(t, "ethtool", "-K", nicName, "tx", "off")

	for _, a := range []string{"10.5.0.1/24", "10.5.0.7/24", "fd05::1/64", "fe80::1/64"} {
		r.inPeer(t, "ip", "addr", "add", a, "dev", "wire", "nodad")
	}

	for line := range strings.Lines(strings.TrimSpace(everything)) {
		ip(t, strings.TrimSpace(line))
	}

	testnode.Eventually(t, "IPv6 addresses are usable", func() error {
		for _, device := range []string{nicName, "other", "otherp"} {
			set(device, "ipv6/accept_dad", "1")

			if out := testnode.Run(t, "ip", "addr", "show", "dev", device, "tentative"); out != "" {
				return fmt.Errorf("tentative: %s", out)
			}
		}

		return nil
	})

	return r
}

func (r *rig) addNIC(t *testing.T, kind string) {
	t.Helper()

	for line := range strings.Lines(nics[kind]) {
		if rest, ok := strings.CutPrefix(strings.TrimSpace(line), "-n PEER "); ok {
			r.inPeer(t, append([]string{"ip"}, strings.Fields(rest)...)...)
			continue
		}

		argv := strings.Fields(strings.ReplaceAll(line, "PEER", r.peer))

		out, err := exec.Command("ip", argv...).CombinedOutput()
		if kind != "veth" && strings.Contains(string(out), "Unknown device type") {
			t.Skipf("kernel has no %s devices", kind)
		}

		if err != nil {
			t.Fatalf("ip %v: %v: %s", argv, err, out)
		}
	}
}

func ip(t *testing.T, args string) {
	t.Helper()
	testnode.Run(t, append([]string{"ip"}, strings.Fields(args)...)...)
}

func (r *rig) inPeer(t *testing.T, argv ...string) {
	t.Helper()
	testnode.Run(t, append([]string{"nsenter", "-t", r.peer, "-n"}, argv...)...)
}

var changing = regexp.MustCompile(`(valid_lft|preferred_lft|expires) \d+sec`)

// state returns everything that a move must restore, one fact per line.
func (r *rig) state(t *testing.T) []string {
	t.Helper()

	var out []string

	for _, q := range []struct {
		argv   string
		sorted bool
	}{
		{"ip -d -o addr show dev nic0", false},
		{"ip -4 -d route show table main", false},
		{"ip -4 -d route show table 100", false},
		{"ip -4 -d route show table local", true}, // the kernel's own, one for each address
		{"ip -6 -d route show table all", true},   // the order of equal routes is not seen
		{"ip -4 -d rule show", false},
		{"ip -6 -d rule show", false},
		{"ip neigh show nud permanent", true},
		{"ip -o link show", true},
	} {
		var lines []string

		for line := range strings.Lines(testnode.Run(t, strings.Fields(q.argv)...)) {
			line = changing.ReplaceAllString(strings.TrimSpace(line), "$1 some")
			if !strings.Contains(line, "ovs-netdev") && !strings.Contains(line, "ovs-system") && !strings.HasPrefix(line, "Error: Peer netns") {
				lines = append(lines, q.argv+": "+line)
			}
		}

		if q.sorted {
			slices.Sort(lines)
		}

		out = append(out, lines...)
	}

	sysctls := readSysctls(nicName)
	for k, v := range sysctls {
		if k != "ipv6/stable_secret" {
			out = append(out, "sysctl "+k+"="+v)
		}
	}

	n := len(out) - len(sysctls)
	slices.Sort(out[max(0, n-1):])

	return append(out, "bridges: "+r.sw.Vsctl(t, "list-br"))
}

// same waits until the state equals before, because ovs-vswitchd releases a device with a delay.
func (r *rig) same(t *testing.T, what string, before []string) {
	t.Helper()
	testnode.Eventually(t, what, func() error { return compare(before, r.state(t)) })
}

// compare returns the differences.
func compare(before, after []string) error {
	if slices.Equal(before, after) {
		return nil
	}

	var diff []string

	for _, l := range before {
		if !slices.Contains(after, l) {
			diff = append(diff, "- "+l)
		}
	}

	for _, l := range after {
		if !slices.Contains(before, l) {
			diff = append(diff, "+ "+l)
		}
	}

	for i := range min(len(before), len(after)) {
		if len(diff) == 0 && before[i] != after[i] {
			diff = append(diff, "order: "+before[i], "now: "+after[i])
		}
	}

	return fmt.Errorf("state differs:\n%s", strings.Join(diff, "\n"))
}

// reachable makes the peer ping the host on addresses of both families.
func (r *rig) reachable(t *testing.T) {
	t.Helper()

	for _, a := range []string{"10.5.0.2", "fd05::2"} {
		r.inPeer(t, "ping", "-n", "-c", "1", "-w", "20", a)
	}
}
