package nicbridge

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/agent/testnode"
)

// TestExistingBridge moves to a bridge of layout direct, with flows, a secure fail mode and IPv6
// off, and back. The bridge is restored as well.
func TestExistingBridge(t *testing.T) {
	r := newRig(t)
	r.opts.Watchdog = nil

	kind := "netdev"
	if kernelDatapath() {
		kind = "system"
	}

	testnode.Run(t, "ovs-vsctl", "--db="+r.sw.Address, "add-br", bridgeName, "--", "set", "bridge", bridgeName,
		"datapath_type="+kind, "fail_mode=secure", `other_config:hwaddr="02:00:00:00:00:02"`, "--", "set", "interface", bridgeName, "mtu_request=1480")
	t.Cleanup(func() { r.sw.Vsctl(t, "--if-exists", "del-br", bridgeName) })

	for key, v := range map[string]string{"ipv6/disable_ipv6": "1", "ipv4/arp_ignore": "2"} {
		if err := writeSysctl(bridgeName, key, v); err != nil {
			t.Fatal(err)
		}
	}

	ip(t, "link set "+bridgeName+" up")
	ip(t, "addr add 169.254.169.2/29 dev "+bridgeName)

	carried := 0
	r.opts.OnPortAdded = func(context.Context) error {
		carried++
		return exec.Command("ovs-ofctl", "-O", "OpenFlow13", "add-flow", "unix:"+r.sw.Dir+"/"+bridgeName+".mgmt", "actions=NORMAL").Run()
	}
	all := func() []string {
		out := append(r.state(t), strings.Split(testnode.Run(t, "ip", "-o", "addr", "show", "dev", bridgeName), "\n")...)
		for k, v := range readSysctls(bridgeName) {
			out = append(out, bridgeName+" "+k+"="+v)
		}

		slices.Sort(out)

		return out
	}
	before := all()

	s := r.stream(t, "10.5.0.2")
	if err := Move(t.Context(), r.opts); err != nil {
		t.Fatal(err)
	}

	r.reachable(t)

	if err := Restore(t.Context(), r.opts); err != nil {
		t.Fatal(err)
	}

	r.reachable(t)
	s.alive(t)
	testnode.Eventually(t, "bridge as before", func() error { return compare(before, all()) })

	if carried != 1 {
		t.Errorf("asked to carry the host %d times, want 1", carried)
	}
}

// TestBridgeDeleted deletes the bridge that has the host's addresses.
func TestBridgeDeleted(t *testing.T) {
	r := newRig(t)
	r.opts.Watchdog = nil

	before := r.state(t)
	if err := Move(t.Context(), r.opts); err != nil {
		t.Fatal(err)
	}

	if done, err := Recover(t.Context(), r.opts); err != nil || done {
		t.Fatalf("recovered what is good: %t, error %v", done, err)
	}

	testnode.Run(t, "ovs-vsctl", "--db="+r.sw.Address, "del-br", bridgeName)

	if err := nft("delete table netdev steal"); err != nil && !kernelDatapath() {
		t.Fatal(err)
	}

	if done, err := Recover(t.Context(), r.opts); err != nil || !done {
		t.Fatalf("recovered %t, error %v", done, err)
	}

	r.same(t, "recovered", before)
	r.reachable(t)
}

// TestChangedAddressIsNoLostBridge replaces one of the host's addresses on the bridge, as an operator
// does, or a network manager that restarts. Recover leaves the move and the new address alone.
func TestChangedAddressIsNoLostBridge(t *testing.T) {
	r := newRig(t)

	r.opts.Watchdog = nil
	if err := Move(t.Context(), r.opts); err != nil {
		t.Fatal(err)
	}

	s, err := Load(r.dir, nicName)
	if err != nil {
		t.Fatal(err)
	}

	var moved string

	for _, msg := range s.Had.Addresses {
		if a, err := parseAddr(msg); err == nil && !a.is6() {
			moved = netip.PrefixFrom(a.key.Addr(), a.key.Bits()).String()
			break
		}
	}

	testnode.Run(t, "ip", "addr", "add", "192.0.2.77/32", "dev", bridgeName)
	testnode.Run(t, "ip", "addr", "del", moved, "dev", bridgeName)

	if done, err := Recover(t.Context(), r.opts); err != nil || done {
		t.Fatalf("recovered %t, error %v", done, err)
	}

	if have := testnode.Run(t, "ip", "-o", "addr", "show", "dev", bridgeName); !strings.Contains(have, "192.0.2.77/32") || strings.Contains(have, moved) {
		t.Errorf("addresses of the bridge: %s", have)
	}

	testnode.Run(t, "ip", "addr", "add", moved, "dev", bridgeName) // for the end of the test
	testnode.Run(t, "ip", "addr", "del", "192.0.2.77/32", "dev", bridgeName)

	if err := Restore(t.Context(), r.opts); err != nil {
		t.Error(err)
	}
}

// TestLateMover delays a mover in the middle. The watchdog restores the NIC, and the mover notices
// and stops.
func TestLateMover(t *testing.T) {
	r := newRig(t)
	before := r.state(t)
	r.opts.Timeout = time.Second // and the watchdog's grace

	r.opts.hook = func(what string) error {
		if what != "set ipv6/disable_ipv6 of "+nicName+" to 1" {
			return nil
		}

		testnode.Eventually(t, "the watchdog restores", func() error {
			s, err := Load(r.dir, nicName)
			if err == nil && s.Phase != Restored {
				err = fmt.Errorf("phase %s", s.Phase)
			}

			return err
		})

		return nil
	}
	if err := Move(t.Context(), r.opts); err == nil {
		t.Fatal("a move that was restored in the middle is called good")
	}

	r.same(t, "restored", before)
	r.reachable(t)
}

func TestRefused(t *testing.T) {
	r := newRig(t)
	before := r.state(t)

	for name, c := range map[string]struct {
		prepare, undo string
		change        func(*Options)
		want          string
	}{
		"no such device": {change: func(o *Options) { o.NIC = "nothere" }, want: "nothere"},
		"no name":        {change: func(o *Options) { o.NIC = "" }, want: "check options"},
		"nexthop object": {
			prepare: "nexthop add id 7 via 10.5.0.1 dev nic0\nroute add 192.168.99.0/24 nhid 7",
			undo:    "route del 192.168.99.0/24\nnexthop del id 7", want: "nexthop object",
		},
		"port of a bridge": {prepare: "link add br9 type bridge\nlink set nic0 master br9", undo: "link del br9", want: "port of bridge br9"},
	} {
		lines := func(s string) {
			for line := range strings.Lines(s) {
				ip(t, strings.TrimSpace(line))
			}
		}
		lines(c.prepare)

		o := r.opts
		if c.change != nil {
			c.change(&o)
		}

		if err := Move(t.Context(), o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want an error with %q", name, err, c.want)
		}

		lines(c.undo)
	}

	r.same(t, "refused", before)

	if _, err := Load(r.dir, nicName); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("snapshot: %v, want none", err)
	}

	if _, err := os.Stat(snapshotPath(r.dir, "nothere")); err == nil {
		t.Error("snapshot of a device that is not there")
	}
}
