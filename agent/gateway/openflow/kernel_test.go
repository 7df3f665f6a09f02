package openflow_test

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ovn-ebpf/ovn-ebpf/agent/gateway/openflow"
	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
	"github.com/ovn-ebpf/ovn-ebpf/agent/testnode"
	"github.com/ovn-ebpf/ovn-ebpf/verdict"
	"github.com/ovn-ebpf/ovn-ebpf/verdict/corpus"
)

// tap records the packets that a device receives, and sends packets through it.
type tap struct {
	fd int

	mu     sync.Mutex // guards frames
	frames []verdict.Frame
}

func newTap(t *testing.T, device string) *tap {
	t.Helper()

	iface, err := net.InterfaceByName(device)
	if err != nil {
		t.Fatal(err)
	}

	const all = 0x0300 // ETH_P_ALL, as on the wire

	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, all)
	if err != nil {
		t.Fatal(err)
	}

	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: iface.Index}); err != nil {
		t.Fatal(err)
	}

	p := &tap{fd: fd}
	go p.read() // until the test process ends

	return p
}

func (p *tap) read() {
	b := make([]byte, 1<<16)
	for {
		n, from, err := unix.Recvfrom(p.fd, b, 0)
		if err != nil {
			return
		}

		if ll, ok := from.(*unix.SockaddrLinklayer); ok && ll.Pkttype == unix.PACKET_OUTGOING {
			continue
		}

		p.mu.Lock()
		p.frames = append(p.frames, verdict.Parse(b[:n]))
		p.mu.Unlock()
	}
}

// take returns what was received since the last call, up to the sentinel, once it is there.
func (p *tap) take(t *testing.T, sentinel uint16) []verdict.Frame {
	t.Helper()

	var got []verdict.Frame

	testnode.Eventually(t, "sentinel arrives", func() error {
		p.mu.Lock()
		defer p.mu.Unlock()

		i := slices.IndexFunc(p.frames, func(f verdict.Frame) bool { return f.Type == corpus.EtherARP && f.ARP.Op == sentinel })
		if i < 0 {
			return fmt.Errorf("%d frames", len(p.frames))
		}

		got, p.frames = slices.DeleteFunc(slices.Clone(p.frames[:i]), func(f verdict.Frame) bool { return f.Type == corpus.EtherARP }), p.frames[i+1:]

		return nil
	})

	return got
}

// count waits for n frames.
func (p *tap) count(t *testing.T, n int) {
	t.Helper()
	testnode.Eventually(t, "frames arrive", func() error {
		p.mu.Lock()
		defer p.mu.Unlock()

		if len(p.frames) < n {
			return fmt.Errorf("%d of %d", len(p.frames), n)
		}

		return nil
	})
}

// kernelRig is a bridge of the kernel's openvswitch. A veth stands for the patch port. Its taps are
// named after their roles.
type kernelRig struct {
	*testnode.Switch
	ports openflow.Ports
	side  map[string]*tap
}

func newKernelRig(t *testing.T) *kernelRig {
	t.Helper()

	if out, err := exec.Command("modprobe", "openvswitch").CombinedOutput(); err != nil {
		if _, statErr := os.Stat("/sys/module/openvswitch"); statErr != nil {
			t.Skipf("the kernel has no openvswitch: %s", out)
		}
	}

	r := &kernelRig{Switch: testnode.StartSwitch(t, true), side: map[string]*tap{}}
	testnode.Run(t, "sh", "-c", "echo 1 > /proc/sys/net/ipv6/conf/default/disable_ipv6")

	add := []string{"add-br", bridge, "--", "set", "Bridge", bridge, "datapath_type=system", "fail_mode=secure", "other_config:hwaddr=02:00:00:00:00:11"}

	for i, port := range []string{"uplink", "patch"} {
		testnode.Run(t, "ip", "link", "add", port, "mtu", "9000", "type", "veth", "peer", "name", port+"-far", "mtu", "9000")
		testnode.Run(t, "ip", "link", "set", port, "up")
		testnode.Run(t, "ip", "link", "set", port+"-far", "up")
		add = append(add, "--", "add-port", bridge, port, "--", "set", "Interface", port, fmt.Sprint("ofport_request=", i+1))
	}

	r.Vsctl(t, add...)
	r.ports = openflow.Ports{Uplink: 1, Patch: 2}

	testnode.Eventually(t, "the bridge is there", func() error {
		_, err := net.InterfaceByName(bridge)
		return err
	})
	testnode.Run(t, "ip", "link", "set", bridge, "mtu", "9000", "up")
	r.side["uplink"], r.side["patch"], r.side[bridge] = newTap(t, "uplink-far"), newTap(t, "patch-far"), newTap(t, bridge)

	return r
}

func (r *kernelRig) install(t *testing.T, flows []string) {
	t.Helper()
	testnode.Eventually(t, "flows are there", func() error {
		_, err := ovs.SyncBundle(t.Context(), r.Dir, bridge, flows)
		return err
	})
}

// way is the sides that packets are sent by and are expected at.
type way struct{ from, to string }

// send sends the frames from one side and waits until another has received want of them. It returns
// the frames of each side, without ARP. No packet is in flight afterwards: all copies of a packet
// are made at once.
func (r *kernelRig) send(t *testing.T, w way, want int, frames ...[]byte) map[string][]verdict.Frame {
	t.Helper()

	for _, f := range frames {
		if err := unix.Send(r.side[w.from].fd, f, 0); err != nil {
			t.Fatalf("send by %s: %v", w.from, err)
		}
	}

	r.side[w.to].count(t, want)

	const reply = 2

	sentinel := corpus.Ether(corpus.NodeMAC, corpus.PeerMAC, corpus.EtherARP, corpus.ARP(reply, corpus.PeerMAC, corpus.V4.Remote, corpus.V4.Node))
	if err := unix.Send(r.side["uplink"].fd, sentinel, 0); err != nil {
		t.Fatal(err)
	}

	got := map[string][]verdict.Frame{}

	for _, s := range []string{"patch", bridge} {
		if f := r.side[s].take(t, reply); len(f) > 0 {
			got[s] = f
		}
	}

	r.side["uplink"].mu.Lock()
	defer r.side["uplink"].mu.Unlock()

	if f := r.side["uplink"].frames; len(f) > 0 {
		got["uplink"], r.side["uplink"].frames = f, nil
	}

	return got
}

func (r *kernelRig) expect(t *testing.T, w way, want int, frames ...[]byte) []verdict.Frame {
	t.Helper()

	got := r.send(t, w, want, frames...)
	if len(got) != 1 || len(got[w.to]) != want {
		t.Errorf("sent by %s to %s: got %v, want %d", w.from, w.to, summary(got), want)
	}

	return got[w.to]
}

func summary(got map[string][]verdict.Frame) string {
	var b strings.Builder
	for side, frames := range got {
		fmt.Fprintf(&b, "%s: %d %+v ", side, len(frames), frames[0].IP)
	}

	return b.String()
}

func TestKernel(t *testing.T) {
	r := newKernelRig(t) // one: what it makes in the kernel outlives it
	t.Run("fragments", r.fragments)
	t.Run("local mode and guard", r.local)
	t.Run("hairpin", r.hairpins)

	if out := testnode.Run(t, "ovs-appctl", "-t", r.Dir+"/vswitchd.ctl", "dpctl/show"); !strings.Contains(out, "lost:0") {
		t.Errorf("packets are lost: %s", out)
	}
}

// A datagram is reassembled and goes to one side, in fragments again.
func (r *kernelRig) fragments(t *testing.T) {
	n := plainNode(1)
	r.install(t, openflow.Flows((&rig{ports: r.ports}).input(n)))

	for _, f := range []corpus.Family{corpus.V4, corpus.V6} {
		for port, to := range map[uint16]string{50000: "patch", 22: bridge, 40000: bridge} {
			whole := udpOf(netip.AddrPortFrom(f.Remote, 53), netip.AddrPortFrom(f.Node, port), 1800).Data
			part := func(id uint32, from, to int) []byte {
				return corpus.IP{
					Src: f.Remote, Dst: f.Node, L4: corpus.L4{Proto: corpus.ProtoUDP, Data: whole[from:to]},
					Fragment: &corpus.Fragment{ID: id, Offset: uint16(from), More: to < len(whole)},
				}.Frame(corpus.NodeMAC, corpus.PeerMAC)
			}
			id := uint32(port)
			r.expect(t, way{"uplink", to}, 2, part(id, 0, 800), part(id, 800, len(whole)))
			r.expect(t, way{"uplink", to}, 2, part(id+1, 800, len(whole)), part(id+1, 0, 800))
			r.expect(t, way{"uplink", to}, 3, part(id+2, 800, 1200), part(id+2, 0, 800), part(id+2, 1200, len(whole)))
		}
	}
}

// Lengths, and flags of neighbour advertisements, are not the same in every datapath.
func (r *kernelRig) local(t *testing.T) {
	n := plainNode(1)
	n.Config.Local, n.Config.MTU, n.Config.InSync = true, 1500, false
	r.install(t, openflow.Flows((&rig{ports: r.ports}).input(n)))

	for _, f := range []corpus.Family{corpus.V4, corpus.V6} {
		big, small := corpus.L4{Proto: 89, Data: make([]byte, 1600)}, corpus.L4{Proto: 89, Data: make([]byte, 1400)}
		if got := r.expect(t, way{"patch", bridge}, 1, f.Out(big)); len(got) > 0 && got[0].Dst != corpus.NodeMAC {
			t.Errorf("to the host with MAC %x", got[0].Dst)
		}

		r.expect(t, way{"patch", "uplink"}, 1, f.Out(small))
	}

	advert := func(solicited bool) []byte {
		return corpus.IP{Src: corpus.V6.Node, Dst: corpus.V6.Remote, L4: corpus.Advert(corpus.V6.Foreign, solicited), TTL: 255}.Frame(corpus.PeerMAC, corpus.NodeMAC)
	}
	r.expect(t, way{"patch", "uplink"}, 1, advert(false), advert(true))
}

func (r *kernelRig) hairpins(t *testing.T) {
	n := plainNode(0)
	in := (&rig{ports: r.ports}).input(n)
	in.Hairpin = hairpin(n)
	in.Tables.Addrs[in.Hairpin.Host4], in.Tables.Addrs[in.Hairpin.Host6] = verdict.AddrHost, verdict.AddrHost
	r.install(t, openflow.Flows(in))

	for _, f := range []corpus.Family{corpus.V4, corpus.V6} {
		for _, h := range hops(f, in.Hairpin) {
			if h.out != "" {
				frame := corpus.IP{Src: h.src.Addr(), Dst: h.dst.Addr(), L4: udp(h.src, h.dst)}.Frame(corpus.OtherMAC, corpus.NodeMAC)
				if got := r.expect(t, way{h.port, h.out}, 1, frame); len(got) > 0 {
					h.check(t, got[0])
				}
			}
		}
	}
}
