package e2e

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovn-ebpf/ovn-ebpf/agent/gateway/frame"
	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
	"github.com/ovn-ebpf/ovn-ebpf/test/lab/netns"
)

// spoofPort is the UDP port that receives forged and genuine datagrams.
const spoofPort = 9000

// forged is a kind of frame that pod a must not get through.
type forged struct {
	name    string
	to      string // the receiver
	change  func(*frame.Spec)
	counted map[string]uint64 // on vm1, for each frame
}

// testNestedSpoofing: no frame with the identity of another pod arrives. The programs drop what stays in
// the VM, and tagged frames. OVN drops the others.
func testNestedSpoofing(t *testing.T, n *nested) {
	own, sibling := n.poolPort(t, "a"), n.poolPort(t, "b")
	addresses := map[string]netip.Addr{
		"vm1": n.VM(1).IP4, "vm2": n.VM(2).IP4, "b": n.sandbox("b").IP4(), "c": n.sandbox("c").IP4(),
	}

	receivers := map[string]*receiver{}
	for name, on := range map[string]string{"vm1": "vm1", "vm2": "vm2", "b": host("b"), "c": host("c")} {
		receivers[name] = n.receive(t, on)
	}

	genuine := func(to string) frame.Spec {
		s := frame.Spec{
			SrcMAC: own.MAC, DstMAC: n.gatewayMAC(t, "vm1"), Proto: "udp",
			Src: port(own.Addresses[0], spoofPort), Dst: port(addresses[to], spoofPort),
		}
		if to == "b" { // in the same subnet
			s.DstMAC = sibling.MAC
		}

		return s
	}
	tag := func(tag int) func(*frame.Spec) {
		return func(s *frame.Spec) { s.VLAN = uint16(tag) }
	}
	address := func(s *frame.Spec) { s.Src = port(sibling.Addresses[0], spoofPort) }
	mac := func(s *frame.Spec) { s.SrcMAC = sibling.MAC }
	out := map[string]uint64{"tx out": 1}
	spoofed := map[string]uint64{"tx spoofed_source": 1}

	tagged := map[string]uint64{"tx spoofed_vlan": 1}
	for _, f := range []forged{
		{"tag of a sibling, to the sibling", "b", tag(sibling.Tag), tagged},
		{"tag of a sibling, to another VM's pod", "c", tag(sibling.Tag), tagged},
		{"own tag, to another VM's pod", "c", tag(own.Tag), tagged},
		{"tag of a sibling, to the own VM", "vm1", tag(sibling.Tag), tagged},
		{"address of a sibling, to another VM's pod", "c", address, out},
		{"address of a sibling, to another VM", "vm2", address, out},
		{"MAC of a sibling, to another VM's pod", "c", mac, out},
		{"MAC of a sibling, to another VM", "vm2", mac, out},
		{"address of a sibling, to the own VM", "vm1", address, spoofed},
		{"MAC of a sibling, to the own VM", "vm1", mac, spoofed},
	} {
		bad := genuine(f.to)
		f.change(&bad)
		n.settle(t, n.VM(1))

		moved := n.moved(t, func() {
			n.sendFrame(t, "a", bad, "forged: "+f.name)
			n.settle(t, n.VM(1))
		}, n.VM(1))
		if !maps.Equal(moved[0], f.counted) {
			t.Errorf("%s: it moved %v, want %v", f.name, moved[0], f.counted)
		}
	}

	// The genuine frames take the same ways, and are sent last.
	for to, r := range receivers {
		within(t, "genuine frame to "+to, func() error {
			n.sendFrame(t, "a", genuine(to), "genuine")

			if len(r.with("genuine")) == 0 {
				return errors.New("not received")
			}

			return nil
		})

		if got := r.with("forged"); len(got) > 0 {
			t.Errorf("%s has received %q", to, got)
		}
	}
}

// poolPort returns the port of a pod on vm1.
func (n *nested) poolPort(t *testing.T, pod string) annotation.PoolPort {
	t.Helper()

	for _, p := range n.VM(1).Ports() {
		if p.Addresses[0] == n.sandbox(pod).IP4() {
			return p
		}
	}

	t.Fatalf("vm1 has no port with the address %s of pod %s", n.sandbox(pod).IP4(), pod)

	return annotation.PoolPort{}
}

// gatewayMAC returns the MAC address of the router in the network of a node's pods.
func (n *nested) gatewayMAC(t *testing.T, node string) net.HardwareAddr {
	t.Helper()

	pools := n.client.CoreV1().ConfigMaps(annotation.PoolNamespace)

	object, err := pools.Get(t.Context(), annotation.PoolPrefix+node, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}

	p, err := annotation.ParsePool(object.Data[annotation.PoolNode])
	if err != nil {
		t.Fatal(err)
	}

	_, mac, ok := p.Gateway(n.sandbox("a").IP4())
	if !ok {
		t.Fatalf("pool of %s has no gateway: %+v", node, p)
	}

	return mac
}

// receiver has the datagrams that a host has received.
type receiver struct {
	mu  sync.Mutex // guards got
	got []string
}

// receive listens on a host until the test ends.
func (n *nested) receive(t *testing.T, on string) *receiver {
	t.Helper()

	name, err := n.Netns(on)
	if err != nil {
		t.Fatal(err)
	}

	var conn *net.UDPConn

	err = netns.Do(name, func() (err error) {
		conn, err = net.ListenUDP("udp4", &net.UDPAddr{Port: spoofPort})
		return err
	})
	if err != nil {
		t.Fatalf("listen on %s: %v", on, err)
	}

	t.Cleanup(func() { conn.Close() })

	r := &receiver{}

	go func() {
		b := make([]byte, 2000)
		for {
			size, err := conn.Read(b)
			if err != nil {
				return // closed at the end of the test
			}

			r.mu.Lock()
			r.got = append(r.got, string(b[:size]))
			r.mu.Unlock()
		}
	}()

	return r
}

// with returns the datagrams that begin with the text.
func (r *receiver) with(prefix string) (out []string) {
	r.mu.Lock()
	defer r.mu.Unlock()

	for _, s := range r.got {
		if strings.HasPrefix(s, prefix) {
			out = append(out, s)
		}
	}

	return out
}

// sendFrame sends a frame from the interface of a pod, past its stack.
func (n *nested) sendFrame(t *testing.T, pod string, s frame.Spec, payload string) {
	t.Helper()

	s.Payload = len(payload)

	b, err := s.Bytes()
	if err != nil {
		t.Fatal(err)
	}

	udp := 14 + 20 // behind Ethernet and IPv4
	if s.VLAN != 0 {
		udp += 4
	}

	copy(b[udp+6:], []byte{0, 0}) // no checksum
	copy(b[udp+8:], payload)      // which padding may follow

	err = netns.Do(n.sandbox(pod).Netns, func() error { return sendBy("eth0", b) })
	if err != nil {
		t.Fatalf("send from pod %s: %v", pod, err)
	}
}

// sendBy sends a frame by a device of the current namespace.
func sendBy(device string, b []byte) error {
	l, err := net.InterfaceByName(device)
	if err != nil {
		return err
	}

	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open packet socket: %w", err)
	}

	defer func() { _ = unix.Close(fd) }() // nothing to flush

	return unix.Sendto(fd, b, 0, &unix.SockaddrLinklayer{Ifindex: l.Index})
}
