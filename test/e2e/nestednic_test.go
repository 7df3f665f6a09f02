package e2e

import (
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/test/lab"
)

// TestNestedNIC sends one path of each kind to and from a pod in underlay mode, through the virtio NICs
// of two VMs. Such a NIC drops frames for MAC addresses and VLANs that are not registered with it,
// unless it is promiscuous. Veths, which labs have elsewhere, deliver these frames in any case.
func TestNestedNIC(t *testing.T) {
	if os.Getenv("VM_KERNEL") == "" {
		t.Skip("this machine has no virtio NICs for the lab: test/vm/suite nested runs it in a guest that has")
	}

	c := startVMs(t)

	for _, vm := range []string{"vm1", "vm2"} {
		if out := c.execute(t, vm, "ethtool", "-i", "eth0"); !strings.HasPrefix(out, "driver: virtio_net\n") {
			t.Fatalf("NIC of %s: %s, want driver virtio_net", vm, out)
		}
	}

	pod := c.pod("a")(false)
	for _, peer := range []struct {
		name, on string
		address  netip.Addr
	}{
		{"b", host("b"), c.pod("b")(false)},
		{"c", host("c"), c.pod("c")(false)},
		{"vm1", "vm1", c.VM(1).IP4},
		{"vm2", "vm2", c.VM(2).IP4},
		{"plain", "plain", c.Plain().IP4},
		{"ext", "ext", outside(false)},
	} {
		t.Run("pod and "+peer.name, func(t *testing.T) {
			c.reaches(t, host("a"), peer.address, peer.name, pod)
			c.reaches(t, peer.on, pod, "a", peer.address)
		})
	}
}

// startVMs brings up a lab in underlay mode, with pods a and b on vm1, c on vm2, and a server on every
// host. It has no controller manager and no scheduler, which need minutes in an emulated machine.
func startVMs(t *testing.T) *Cluster {
	t.Helper()
	o := labOptions(t, lab.Options{Nodes: 2, VMs: 2, Cluster: true})
	o.AgentArgs, o.Uplink = nil, "" // those of gateways

	l, err := lab.Up(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}

	downAfter(t, l, o)

	c := &Cluster{Lab: l, Pods: map[string]*lab.Pod{}, dir: o.Dir, bin: o.BinDir}

	c.tool = trafficTool(c)
	for pod, vm := range map[string]string{"a": "vm1", "b": "vm1", "c": "vm2"} {
		if err := c.addPod(t.Context(), pod, vm); err != nil {
			t.Fatal(err)
		}
	}

	for _, on := range []string{"vm1", "vm2", "plain", "ext"} {
		if err := c.serve(t.Context(), on, on, podPort); err != nil {
			t.Fatal(err)
		}
	}

	// The hosts of a real network know its MTU. OVN does not fragment what it forwards.
	mtu := fmt.Sprint(lab.VMMTU)
	c.execute(t, "ext", "ip", "route", "change", "10.244.0.0/16", "via", lab.RouterIP4, "mtu", mtu)

	return c
}

// reaches checks that a host reaches a server by TCP and UDP, which sees the client's own address, and
// by pings in fragments and of the network's MTU. Time limits are those of an emulated machine.
func (c *Cluster) reaches(t *testing.T, from string, to netip.Addr, server string, client netip.Addr) {
	t.Helper()

	const requests = 3

	for _, protocol := range []string{"tcp", "udp"} {
		at := port(to, podPort).String()

		got := c.execute(t, from, c.traffic(protocol, "-timeout", "30s", "-n", fmt.Sprint(requests), at)...)
		if replies := strings.Count(got, server+" "+client.String()+":"); replies != requests {
			t.Errorf("%s from %s to %s: %q, want %d answers to %s", protocol, from, server, got, requests, client)
		}
	}

	fragments := []string{"-s", "4000"}

	whole := []string{"-M", "do", "-s", fmt.Sprint(lab.VMMTU - 20 - 8)}
	for _, size := range [][]string{fragments, whole} {
		argv := append([]string{"ping", "-n", "-q", "-c", fmt.Sprint(requests), "-i", "0.2", "-W", "30"}, size...)

		got := c.execute(t, from, append(argv, to.String())...)
		if !strings.Contains(got, fmt.Sprintf(" %d received, ", requests)) || strings.Contains(got, "duplicates") {
			t.Errorf("ping %s from %s to %s: %s", size, from, server, got)
		}
	}
}
