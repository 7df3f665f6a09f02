package e2e

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/agent/gateway/frame"
	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
	"github.com/ovn-ebpf/ovn-ebpf/test/lab/netns"
)

// Texts in the payload of packets. A capture that contains one proves that the packet was there.
const (
	forgedMark  = "FORGED BY A POD"
	controlMark = "NOT TO A TUNNEL"
)

// testPodTunnels: pod a on node1 sends the other node and its own one Geneve packets, which would
// bring pod c on node2 a packet from pod b. None leaves the switch of node1, also while
// --allow-pod-tunnels covers the nodes. A host outside gets packets for this port only then.
func testPodTunnels(t *testing.T, c *Cluster) {
	t.Run("replies", func(t *testing.T) { c.dropsTunnelReplies(t) })

	for name, on := range map[string]string{"c": host("c"), "ext": "ext"} {
		if err := c.serveAs(t.Context(), on, "serve-"+name+"-geneve", "-name", name, "-udp", fmt.Sprintf(":%d", genevePort)); err != nil {
			t.Fatal(err)
		}
	}

	toOutside := func(v6 bool) error { return c.askTunnelPort(t, "a", "ext", outside(v6)) }

	bothFamilies(t, func(t *testing.T, v6 bool) {
		within(t, "a pod's tunnel to a pod", func() error { return c.askTunnelPort(t, "a", "c", c.pod("c")(v6)) })

		if err := isUnanswered(toOutside(v6)); err != nil {
			t.Errorf("a pod's tunnel to the outside host: %v", err)
		}
	})
	t.Run("forged packets", func(t *testing.T) { c.forgesTunnelPackets(t) })

	if c.Datapath() == ovs.DatapathSystem { // that of userspace needs a separate address for tunnels
		t.Run("IPv6 tunnels", func(t *testing.T) {
			c.useIPv6Tunnels(t)
			within(t, "a pod's tunnel to a pod", func() error { return c.askTunnelPort(t, "a", "c", c.pod("c")(false)) })
			c.forgesTunnelPackets(t)
		})
	}

	t.Run("allowed networks", func(t *testing.T) {
		// The networks have all addresses of nodes and the outside host.
		const ranges = "172.16.0.0/12,fd00:172::/32"
		c.restartWith(t, "--allow-pod-tunnels="+ranges)
		t.Cleanup(func() { c.restartWith(t) })

		bothFamilies(t, func(t *testing.T, v6 bool) {
			within(t, "a pod's tunnel to the outside host", func() error { return toOutside(v6) })
		})
		c.forgesTunnelPackets(t)
	})
}

// dropsTunnelReplies checks that pods do not answer a client outside whose port is the tunnels'. An
// ACL passes replies, so this is the gateway's own rule.
func (c *Cluster) dropsTunnelReplies(t *testing.T) {
	t.Helper()
	bothFamilies(t, func(t *testing.T, v6 bool) {
		to := port(c.gateway(1)(v6), nodePort).String()
		askFrom := func(source int) error {
			_, err := c.Exec(t.Context(), "ext", c.traffic("udp", to, "-sport", fmt.Sprint(source), "-timeout", "2s")...)
			return err
		}

		within(t, "a client with another port", func() error { return askFrom(genevePort + 1) })

		if err := isUnanswered(askFrom(genevePort)); err != nil {
			t.Errorf("a client with the tunnels' port: %v", err)
		}
	})
}

// useIPv6Tunnels moves the tunnels to the nodes' IPv6 addresses until the end of the test.
func (c *Cluster) useIPv6Tunnels(t *testing.T) {
	t.Helper()
	before := c.remoteTunnels(t, 1)
	t.Cleanup(func() {
		c.restartWith(t)
		within(t, "the tunnels as before", func() error {
			if now := c.remoteTunnels(t, 1); now != before {
				return fmt.Errorf("they are %s, want %s", now, before)
			}

			return nil
		})
	})

	for i := 1; i <= 2; i++ {
		c.restartAgent(t, i, "--encap-ip="+c.Node(i).IP6.String())
	}

	for i := 1; i <= 2; i++ {
		to := c.Node(3 - i).IP6.String()
		within(t, "a tunnel to "+to, func() error {
			if now := c.remoteTunnels(t, i); !strings.Contains(now, to) {
				return fmt.Errorf("they are %s", now)
			}

			return nil
		})
	}
}

// remoteTunnels returns the options of a node's tunnels to the other nodes, as Open vSwitch has
// them.
func (c *Cluster) remoteTunnels(t *testing.T, node int) string {
	t.Helper()

	n := c.Node(node)

	out, err := c.Exec(context.WithoutCancel(t.Context()), n.Name, "ovs-vsctl", "--db="+n.OVSDB, "--columns=options", "find", "Interface", "type=geneve")
	if err != nil {
		t.Fatal(err)
	}

	return strings.TrimSpace(string(out))
}

// restartWith restarts the controller and the agents of node1 and node2 with the arguments.
func (c *Cluster) restartWith(t *testing.T, args ...string) {
	t.Helper()

	ctx := context.WithoutCancel(t.Context())
	if err := c.StopController(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}

	if err := c.StartController(ctx, args...); err != nil {
		t.Fatal(err)
	}

	if err := c.AwaitController(ctx); err != nil {
		t.Fatal(err)
	}

	for i := 1; i <= 2; i++ {
		c.restartAgent(t, i, args...)
	}
}

// askTunnelPort sends a request to the Geneve port of that server.
func (c *Cluster) askTunnelPort(t *testing.T, pod, server string, at netip.Addr) error {
	t.Helper()

	out, err := c.Exec(t.Context(), host(pod), c.traffic("udp", port(at, genevePort).String(), "-timeout", "2s")...)
	if name, _, _ := strings.Cut(string(out), " "); err == nil && name != server {
		err = fmt.Errorf("answered by %q, want %s", name, server)
	}

	return err
}

// forgesTunnelPackets sends forged packets from pod a to the addresses of both nodes. It captures
// on the fabric and at the management port of the pod's node, which are the ways to the hosts.
// There, a packet to another port arrives, and no forged packet.
func (c *Cluster) forgesTunnelPackets(t *testing.T) {
	t.Helper()
	captures := map[int]*capture{ // by the number of the node to which the packets go
		1: c.capture(t, "node1", "ovn-k8s-mp0"),
		2: c.capture(t, "central", "fab0"),
	}
	received := c.datagrams(t, "c")

	for i := range captures {
		targets := []netip.Addr{c.Node(i).IP4, c.Node(i).IP6}
		if tunnel, ok := annotation.ParseTunnelAddress(nodeAnnotations(t, c.Lab, c.Node(i).Name)); ok {
			targets = append(targets, tunnel)
		}

		if i == 1 {
			for _, subnet := range c.podSubnets(t, c.Node(i).Name) {
				targets = append(targets, annotation.ManagementAddress(subnet).Addr())
			}
		}

		for _, to := range targets {
			forged := c.forgedPackets(t)
			c.sendFromPod(t, "a", port(to, genevePort), forged)

			if c.Datapath() == ovs.DatapathSystem { // that of userspace does not join fragments before the ACL
				c.sendFromPod(t, "a", port(to, genevePort), [][]byte{append(forged[0], make([]byte, 3000)...)})
			}
		}
	}

	// They are sent last, on the same ways.
	for i, seen := range captures {
		for _, to := range []netip.Addr{c.Node(i).IP4, c.Node(i).IP6} {
			mark := fmt.Sprintf("%s %s", controlMark, to)
			within(t, "a packet to another port of "+to.String(), func() error {
				c.sendFromPod(t, "a", port(to, genevePort-1), [][]byte{[]byte(mark)})

				if seen.count(mark) == 0 {
					return fmt.Errorf("not captured")
				}

				return nil
			})
		}
	}

	for i, seen := range captures {
		if n := seen.count(forgedMark); n > 0 {
			t.Errorf("%d forged packets for node%d have left the pod's switch", n, i)
		}
	}

	if n := c.datagrams(t, "c") - received; n > 0 {
		t.Errorf("%d datagrams have reached pod c", n)
	}
}

// sendFromPod sends datagrams from a UDP socket of a pod.
func (c *Cluster) sendFromPod(t *testing.T, pod string, to netip.AddrPort, payloads [][]byte) {
	t.Helper()

	name, err := c.Netns(host(pod))
	if err != nil {
		t.Fatal(err)
	}

	err = netns.Do(name, func() error {
		conn, err := net.ListenUDP("udp", nil)
		if err != nil {
			return err
		}
		defer conn.Close()

		for _, p := range payloads {
			if _, err := conn.WriteToUDPAddrPort(p, to); err != nil {
				return err
			}
		}

		return nil
	})
	if err != nil {
		t.Fatalf("send from pod %s to %s: %v", pod, to, err)
	}
}

// forgedPackets returns Geneve packets from OVN, as far as their sender can guess its keys: small
// numbers for a datapath, the port at which a packet entered it, and the one by which it leaves.
// The inner packet is from pod b to pod c.
func (c *Cluster) forgedPackets(t *testing.T) [][]byte {
	t.Helper()

	from, to := c.Pods["b"].IP4(), c.Pods["c"].IP4()
	mac := func(a netip.Addr) net.HardwareAddr { return append(net.HardwareAddr{0x0a, 0x58}, a.AsSlice()...) }

	inner, err := frame.Spec{
		SrcMAC: mac(from), DstMAC: mac(to), Proto: "udp", Src: port(from, 4000), Dst: port(to, podPort), Payload: len(forgedMark),
	}.Bytes()
	if err != nil {
		t.Fatal(err)
	}

	copy(inner[len(inner)-len(forgedMark):], forgedMark)

	const checksum = 14 + 20 + 6 // behind Ethernet and IPv4
	copy(inner[checksum:], []byte{0, 0})

	var out [][]byte

	for datapath := range uint32(10) {
		for enters := range uint16(5) {
			for leaves := range uint16(15) {
				out = append(out, append(geneveHeader(1+datapath, 1+enters, 1+leaves), inner...))
			}
		}
	}

	return out
}

// geneveHeader returns a header as OVN writes it (ovn-architecture(7), tunnel encapsulations).
func geneveHeader(datapath uint32, enters, leaves uint16) []byte {
	const critical, ethernet = 0x40, 0x6558

	h := binary.BigEndian.AppendUint16([]byte{2, critical}, ethernet) // two words of options
	h = binary.BigEndian.AppendUint32(h, datapath<<8)
	h = append(h, 0x01, 0x02, 0x80, 1) // OVN's class and type, one word

	return binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(h, enters), leaves)
}

// capture has the UDP packets of a device.
type capture struct {
	mu  sync.Mutex
	all bytes.Buffer
}

// capture captures on a device of a lab host until the test ends.
func (c *Cluster) capture(t *testing.T, on, device string) *capture {
	t.Helper()

	dump, err := c.Command(t.Context(), on, "tcpdump", "-ni", device, "-U", "-w", "-", "udp")
	if err != nil {
		t.Fatal(err)
	}

	seen := &capture{}
	ready := newLineWaiter("listening on", &bytes.Buffer{})

	dump.Stdout, dump.Stderr = seen, ready
	if err := dump.Start(); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		_ = dump.Process.Kill() // fails if it has exited already
		_ = dump.Wait()         // fails because it was killed
	})

	select {
	case <-ready.seen:
	case <-t.Context().Done():
		t.Fatal(t.Context().Err())
	}

	return seen
}

func (c *capture) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()

	return c.all.Write(b)
}

// count returns the number of packets with the text.
func (c *capture) count(text string) int {
	c.mu.Lock()
	defer c.mu.Unlock()

	return bytes.Count(c.all.Bytes(), []byte(text))
}
