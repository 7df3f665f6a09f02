package gateway

import (
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
	"github.com/ovn-ebpf/ovn-ebpf/agent/testnode"
	"github.com/ovn-ebpf/ovn-ebpf/bpf"
	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// datagrams start connections, each with OVN's translation. Those that stay have an address that
// the node keeps.
var datagrams = []struct {
	name, frame, nat string
	stays            bool
}{
	{"a pod connects out, IPv4", "02000000000102000000000208004500001c000000004011c2f40af40003ac1e00c803e9003500080000", "nat(src=172.30.0.11)", false},
	{"a pod connects out, IPv6", "02000000000102000000000286dd6000000000081140fd000010024400000000000000000003fd00017200300000000000000000020003e900350008fbc5", "nat(src=fd00:172:30::11)", false},
	{"a NodePort, IPv4", "02000000000102000000000208004500001c00000000401121c2ac1e00c8ac1e000b03ea758000080000", "nat(dst=10.244.0.3:80)", false},
	{"a NodePort, IPv6", "02000000000102000000000286dd6000000000081140fd000172003000000000000000000200fd00017200300000000000000000001103ea75800008871d", "nat(dst=[fd00:10:244::3]:80)", false},
	{"another address of the node, IPv4", "02000000000102000000000208004500001c000000004011c2f40af40003ac1e00c803eb003500080000", "nat(src=172.30.0.99)", true},
	{"another address of the node, IPv6", "02000000000102000000000286dd6000000000081140fd000010024400000000000000000003fd00017200300000000000000000020003eb00350008fbc3", "nat(src=fd00:172:30::99)", true},
}

// changing are the addresses that the node loses and gets back.
var changing = []netip.Addr{netip.MustParseAddr("172.30.0.11"), netip.MustParseAddr("fd00:172:30::11")}

// The node's addresses are replaced. Connections with the old addresses are deleted, including
// those that OVN opens with them afterwards. Other connections stay.
func TestConnectionsOfFormerAddressAreForgotten(t *testing.T) {
	r := newRig(t, ovs.DatapathNetdev)
	r.s.addressHold = time.Millisecond
	r.sw.Daemon(t)

	const bridge = "brother"
	r.sw.Vsctl(t, "add-br", bridge, "--", "set", "Bridge", bridge, "datapath_type=netdev", "--", "set-fail-mode", bridge, "secure")

	for _, a := range []string{"fd00:172:30::11/64", "fd00:172:30::99/64", "172.30.0.99/24"} {
		testnode.Run(t, "ip", "addr", "add", a, "dev", "eth0", "nodad")
	}

	r.start()
	r.track(t, bridge)
	testnode.Eventually(t, "connections tracked", func() error {
		list, err := ovs.Conntrack(t.Context(), r.s.OVSRunDir)
		if err == nil && len(list) != len(datagrams) {
			err = fmt.Errorf("tracked: %+v", list)
		}

		return err
	})
	// Otherwise secondary addresses would be deleted with their primary.
	testnode.Run(t, "sysctl", "-qw", "net.ipv4.conf.eth0.promote_secondaries=1")

	for _, a := range []string{"172.30.0.11/24", "fd00:172:30::11/64"} {
		testnode.Run(t, "ip", "addr", "del", a, "dev", "eth0")
	}

	r.awaitForgotten(t)
	r.track(t, bridge)
	r.awaitForgotten(t)
	r.awaitKind(t, verdict.AddrFormer)

	testnode.Run(t, "ip", "addr", "add", "172.30.0.11/24", "dev", "eth0")
	testnode.Run(t, "ip", "addr", "add", "fd00:172:30::11/64", "dev", "eth0", "nodad")
	testnode.Eventually(t, "addresses that are back are no former ones", func() error {
		if list := r.gw.former.list(); len(list) > 0 {
			return fmt.Errorf("former: %v", list)
		}

		return nil
	})
	r.awaitKind(t, verdict.AddrHost)
}

// awaitKind waits until the programs have the changing addresses with this kind.
func (r *rig) awaitKind(t *testing.T, want verdict.AddrKind) {
	t.Helper()

	e, err := bpf.OpenExplainer(r.s.PinDir)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()

	testnode.Eventually(t, "the programs know the addresses", func() error {
		got, err := e.Entries(bpf.Keys{Addrs: changing})
		for _, a := range changing {
			if err == nil && got.Addrs[a] != want {
				err = fmt.Errorf("%s is %s, want %s", a, got.Addrs[a], want)
			}
		}

		return err
	})
}

// track opens every connection.
func (r *rig) track(t *testing.T, bridge string) {
	t.Helper()

	for _, d := range datagrams {
		out, err := exec.Command("ovs-ofctl", "packet-out", "unix:"+r.sw.Dir+"/"+bridge+".mgmt",
			"in_port=LOCAL,packet="+d.frame+",actions=ct(commit,zone=7,"+d.nat+")").CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v: %s", d.name, err, out)
		}
	}
}

func (r *rig) awaitForgotten(t *testing.T) {
	t.Helper()
	testnode.Eventually(t, "connections forgotten", func() error {
		list, err := ovs.Conntrack(t.Context(), r.s.OVSRunDir)
		if err != nil {
			return err
		}

		var errs []error

		kept := 0

		for _, c := range list {
			if slices.Contains(changing, c.Original.Dst.Addr()) || slices.Contains(changing, c.Reply.Dst.Addr()) {
				errs = append(errs, fmt.Errorf("still there: %+v", c))
			} else if c.Zone == 7 {
				kept++
			}
		}

		if kept != 2 {
			t.Fatalf("%d connections of addresses that stay, want 2: %+v", kept, list)
		}

		return errors.Join(errs...)
	})
}
