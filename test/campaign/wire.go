package campaign

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/ovn-ebpf/ovn-ebpf/test/lab"
	"github.com/ovn-ebpf/ovn-ebpf/test/lab/netns"
	"github.com/ovn-ebpf/ovn-ebpf/verdict"
	"github.com/ovn-ebpf/ovn-ebpf/verdict/corpus"
)

// wireRate is the number of frames per second and attacker.
const wireRate = 500

// Wire lets a machine on the uplink's network and a tenant's pod send malicious frames. The host of
// node1 must lose no packets of UDP with fixed ports, VRRP, OSPF, echo requests and TCP. No pod
// with a policy may receive forbidden packets. Fenced pods try to reach a host by the masquerade
// networks, which their policies forbid. A pod forges packets of OVN's tunnels, which must not leave
// its node's switch.
func Wire(ctx context.Context, o Options) (report *Report, err error) {
	g, err := newGround(ctx, o.Lab, o.Log)

	report = newReport("wire", o)
	defer func() { err = errors.Join(err, g.down(err != nil || len(report.Broken) > 0)) }()

	if err != nil {
		return report, err
	}

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	w := &wire{ground: g, seen: map[string]int{}, like: map[string]string{}}
	if err := w.prepare(ctx); err != nil {
		return report, err
	}

	if err := g.startProbes(ctx, append(w.hostPaths(), g.paths()...), time.Minute); err != nil {
		return report, err
	}

	outsider, err := w.outsider(ctx, o.Seed)
	if err != nil {
		return report, err
	}

	pod, err := w.pod(ctx, o.Seed)
	if err != nil {
		return report, err
	}

	forger, err := w.forger(ctx, o.Seed+2+uint64(len(w.fenced)))
	if err != nil {
		return report, err
	}

	fenced := make([]*attacker, len(w.fenced))
	for i, p := range w.fenced {
		if fenced[i], err = w.behindFence(ctx, p, o.Seed+2+uint64(i)); err != nil {
			return report, err
		}
	}

	g.say("the attack begins at %s", time.Now().Format("15:04:05.0"))
	g.bucket.Store(1)

	attack, end := context.WithTimeout(ctx, o.For)
	defer end()

	var group errgroup.Group
	group.Go(func() error { return w.send(attack, "ext", outsider, wireRate, &w.sent) })
	group.Go(func() error { return w.send(attack, w.attackers[0].Host(), pod, wireRate, &w.sent) })
	group.Go(func() error { return w.send(attack, w.attackers[0].Host(), forger, forgeRate, &w.sentForged) })

	for i, p := range w.fenced {
		group.Go(func() error { return w.send(attack, p.Host(), fenced[i], fenceRate, &w.sentFenced) })
	}

	err = group.Wait()

	report.Figures = append(report.Figures, Figure{"frames sent from outside and from a pod", fmt.Sprint(w.sent.Load())},
		Figure{"frames sent by fenced pods, to the masquerade networks and the nodes", fmt.Sprint(w.sentFenced.Load())},
		Figure{"forged tunnel packets sent by a pod", fmt.Sprint(w.sentForged.Load())})
	g.accountAll(report, "frames from outside and from a pod", func(p *probe) bool { return p.path.Host })
	w.mu.Lock()
	defer w.mu.Unlock()

	if err := w.partsAllowed(context.WithoutCancel(ctx), report); err != nil {
		report.Broken = append(report.Broken, err.Error())
	}

	for name, n := range w.seen {
		report.Broken = append(report.Broken, fmt.Sprintf("%d frames delivered against a policy to %s, like %s", n, name, w.like[name]))
	}

	return report, errors.Join(err, ctx.Err())
}

// wire is the campaign of frames.
type wire struct {
	*ground
	guarded   []*lab.Pod // pods that accept traffic only from other pods of the victim
	attackers []*lab.Pod
	fenced    []*lab.Pod // pods whose egress policy excludes hosts

	sent, sentFenced atomic.Int64
	sentForged       atomic.Int64
	parts            atomic.Int64 // forbidden deliveries of fragments without their other parts

	mu   sync.Mutex     // guards the following fields
	seen map[string]int // forbidden deliveries of attackers' frames, by receiver
	like map[string]string
}

// prepare creates the guarded pods, the tenant's pods, and servers on the host. Nodes forward, as
// Kubernetes requires.
func (w *wire) prepare(ctx context.Context) error {
	for i, node := range []string{"node1", "node2"} {
		if _, err := w.Exec(ctx, node, "sysctl", "-q", "-w", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1"); err != nil {
			return err
		}

		guarded, err := w.AddPod(ctx, lab.PodSpec{Namespace: victim, Name: fmt.Sprintf("guarded%d", i), Node: node, Labels: map[string]string{"app": "guarded"}})
		if err != nil {
			return err
		}

		w.guarded = append(w.guarded, guarded)
		if err := w.serve(ctx, guarded.Host(), guarded.Name, podPort); err != nil {
			return err
		}

		if err := w.sniff(ctx, guarded.Name, guarded.Host(), "eth0", magic, nil); err != nil {
			return err
		}

		other, err := w.AddPod(ctx, lab.PodSpec{Namespace: hostile, Name: fmt.Sprintf("wired%d", i), Node: node, Labels: map[string]string{"app": "web"}})
		if err != nil {
			return err
		}

		w.attackers = append(w.attackers, other)
	}

	if err := w.guard(ctx, "guarded", "web"); err != nil {
		return err
	}

	if err := w.fence(ctx); err != nil {
		return err
	}

	if err := w.watchForged(ctx); err != nil {
		return err
	}

	for on, port := range map[string]int{"node1": wirePort, "ext": wirePortBack} {
		ns, err := w.Netns(on)
		if err != nil {
			return err
		}

		for _, v := range []string{"4", "6"} {
			err := errors.Join(
				respond(ctx, ns, "udp"+v, fmt.Sprintf(":%d", port)),
				respond(ctx, ns, fmt.Sprintf("ip%s:%d", v, protoVRRP), ""), respond(ctx, ns, fmt.Sprintf("ip%s:%d", v, protoOSPF), ""))
			if err != nil {
				return fmt.Errorf("serve on %s: %w", on, err)
			}
		}
	}

	return nil
}

// hostPaths returns the host's paths to and from its peer, and the paths that the policy allows.
func (w *wire) hostPaths() []*Path {
	node1 := func(port uint16) func(bool) netip.AddrPort {
		return func(v6 bool) netip.AddrPort {
			return netip.AddrPortFrom(choose(v6, w.Node(1).IP4, w.Node(1).IP6), port)
		}
	}
	peer := func(port uint16) func(bool) netip.AddrPort {
		return func(v6 bool) netip.AddrPort { return netip.AddrPortFrom(outside(v6), port) }
	}
	vrrp, ospf := strconv.Itoa(protoVRRP), strconv.Itoa(protoOSPF)

	return []*Path{
		{Name: "WireGuard to host", Host: true, From: "ext", To: node1(wirePort), Kinds: []string{"fixed"}},
		{Name: "WireGuard from host", Host: true, From: "node1", To: peer(wirePortBack), Kinds: []string{"fixed"}},
		{Name: "VRRP, OSPF to host", Host: true, From: "ext", To: node1(0), Kinds: []string{vrrp, ospf}},
		{Name: "VRRP, OSPF from host", Host: true, From: "node1", To: peer(0), Kinds: []string{vrrp, ospf}},
		{Name: "ping of host", Host: true, From: "ext", To: node1(4711), Kinds: []string{"echo"}},
		{Name: "ping by host", Host: true, From: "node1", To: peer(4712), Kinds: []string{"echo"}},
		{Name: "fenced pod to outside", From: w.fenced[0].Host(), To: peer(outsidePort)}, // allowed by its policy
		{Name: "pod to guarded pod", From: w.pods["a"].Host(), To: func(v6 bool) netip.AddrPort {
			return netip.AddrPortFrom(choose(v6, w.guarded[1].IP4(), w.guarded[1].IP6()), podPort)
		}},
	}
}

// outsider returns an attacker on the uplink's network that sends to node1.
func (w *wire) outsider(ctx context.Context, seed uint64) (*attacker, error) {
	a := newAttacker(seed, magic)

	var err error
	if a.own, err = w.mac(ctx, "ext", "eth0"); err != nil {
		return nil, err
	}

	to, err := w.mac(ctx, "node1", "eth0")
	if err != nil {
		return nil, err
	}

	a.to, a.tags = []verdict.MAC{to}, true
	w.know(a, outside(false), outside(true))

	return a, nil
}

// pod returns an attacker in a tenant's pod on node1. It sends to its router, and past it to the
// management port and to the guarded pod of its node.
func (w *wire) pod(ctx context.Context, seed uint64) (*attacker, error) {
	a := newAttacker(seed+1, magic)

	p := w.attackers[0]
	if err := w.stand(ctx, a, p); err != nil {
		return nil, err
	}

	guarded, err := w.mac(ctx, w.guarded[0].Host(), "eth0")
	if err != nil {
		return nil, err
	}

	a.to = append(a.to, a.to[0], guarded) // the router is as likely as the other two together
	w.know(a, p.IP4(), p.IP6())

	return a, nil
}

// know gives an attacker the cluster's addresses. Its own addresses come first.
func (w *wire) know(a *attacker, own4, own6 netip.Addr) {
	a.sources = []netip.Addr{own4, own6}
	for _, p := range append([]*lab.Pod{w.pods["a"], w.pods["b"], w.pods["c"]}, append(w.attackers, w.guarded...)...) {
		a.sources = append(a.sources, p.IP4(), p.IP6())
	}

	for _, text := range []string{"100.64.0.1", "fd98::1", "100.64.0.3", "169.254.169.1", "169.254.169.2", "fd69::1", "fd69::2", "10.96.0.1", "fd00:10:96::1", "10.244.0.1", "10.244.0.2", "fd00:10:244::2", "10.244.1.2", "198.51.100.77", "2001:db8:77::1"} {
		a.sources = append(a.sources, netip.MustParseAddr(text))
	}

	a.claims = a.sources

	a.targets = append(a.targets, a.sources[2:]...)
	for _, p := range w.guarded {
		a.targets = append(a.targets, p.IP4(), p.IP6(), p.IP4(), p.IP6())
	}

	for range 4 { // mostly the host and its peer
		a.targets = append(a.targets, w.Node(1).IP4, w.Node(1).IP6, outside(false), outside(true))
	}

	a.targets = append(a.targets, w.Node(2).IP4, w.Node(2).IP6, w.clusterIP(false), w.clusterIP(true), netip.MustParseAddr("224.0.0.18"), netip.MustParseAddr("224.0.0.5"), netip.MustParseAddr("ff02::12"), netip.MustParseAddr("ff02::5"))
	a.hosts, a.peers = []netip.Addr{w.Node(1).IP4, w.Node(1).IP6, outside(false), outside(true)}, []netip.Addr{outside(false), outside(true), w.Node(1).IP4, w.Node(1).IP6}
}

func (w *wire) mac(ctx context.Context, on, device string) (verdict.MAC, error) {
	out, err := w.Exec(ctx, on, "ip", "-br", "link", "show", device)
	if err != nil {
		return verdict.MAC{}, err
	}

	words := strings.Fields(string(out))
	if len(words) < 3 {
		return verdict.MAC{}, fmt.Errorf("read MAC of %s on %s: %q", device, on, out)
	}

	return parseMAC(words[2])
}

func parseMAC(text string) (out verdict.MAC, err error) {
	mac, err := net.ParseMAC(text)
	copy(out[:], mac)

	return out, err
}

// sender is an attacker's source of frames.
type sender interface{ frame() []byte }

// send sends the attacker's frames from a lab host's eth0 until ctx ends.
func (w *wire) send(ctx context.Context, from string, a sender, rate int, sent *atomic.Int64) error {
	fd, err := w.socket(from, "eth0")
	if err != nil {
		return err
	}
	defer unix.Close(fd)

	const burst = 10

	tick := time.NewTicker(burst * time.Second / time.Duration(rate))
	defer tick.Stop()

	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}

		for range burst {
			if _, err := unix.Write(fd, a.frame()); err == nil {
				sent.Add(1)
			} else if !errors.Is(err, unix.ENOBUFS) && !errors.Is(err, unix.EMSGSIZE) {
				return fmt.Errorf("send from %s: %w", from, err)
			}
		}
	}
}

// socket opens a socket for raw frames on a device of a lab host.
func (g *ground) socket(on, name string) (fd int, err error) {
	ns, err := g.Netns(on)
	if err != nil {
		return -1, err
	}

	err = netns.Do(ns, func() error {
		device, err := net.InterfaceByName(name)
		if err != nil {
			return err
		}

		all := binary.NativeEndian.Uint16([]byte{0, unix.ETH_P_ALL})
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(all)); err != nil {
			return err
		}

		return unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: device.Index})
	})

	return fd, err
}

// destination returns the destination address of an IP frame, or the zero Addr.
func destination(b []byte) netip.Addr {
	switch {
	case len(b) >= 34 && binary.BigEndian.Uint16(b[12:]) == corpus.EtherIPv4:
		return netip.AddrFrom4([4]byte(b[30:]))
	case len(b) >= 54 && binary.BigEndian.Uint16(b[12:]) == corpus.EtherIPv6:
		return netip.AddrFrom16([16]byte(b[38:]))
	}

	return netip.Addr{}
}

// partsAllowed compares the arrived fragments without their other parts with the counter of Open
// vSwitch's userspace datapath. That datapath keeps a fragment for 15 seconds, and then forwards it
// with the next packet of any connection, past all flows (lib/ipf.c). The kernel datapath drops it,
// so there none may arrive.
func (w *wire) partsAllowed(ctx context.Context, report *Report) error {
	expired := 0

	for _, n := range w.Nodes() {
		pid, err := w.Exec(ctx, n.Name, "cat", filepath.Join(w.Dir(), n.Name, "ovs-vswitchd.pid"))
		if err != nil {
			return err
		}

		out, err := w.Exec(ctx, n.Name, "ovs-appctl", "-t", filepath.Join(w.Dir(), n.Name, "ovs-vswitchd."+strings.TrimSpace(string(pid))+".ctl"), "dpctl/ipf-get-status")
		if err != nil {
			continue // the kernel's datapath has no such status
		}

		for line := range strings.Lines(string(out)) {
			if name, count, ok := strings.Cut(strings.TrimSpace(line), " frags expired: "); ok && strings.HasPrefix(name, "v") {
				n, err := strconv.Atoi(count)
				if err != nil {
					return fmt.Errorf("read count of expired fragments: %w", err)
				}

				expired += n
			}
		}
	}

	got := int(w.parts.Load())

	report.Figures = append(report.Figures, Figure{"fragments without their other parts that OVS's userspace datapath gave up", fmt.Sprint(expired)},
		Figure{"of these, sent on to where a policy forbids it, past all flows", fmt.Sprint(got)})
	if got > expired {
		return fmt.Errorf("%d fragments delivered against a policy, but the datapath gave up %d", got, expired)
	}

	return nil
}

// sniff counts marked frames that arrive at a device of a lab host until ctx ends. If to is not
// nil, it counts only frames to addresses for which to returns true.
func (w *wire) sniff(ctx context.Context, name, on, device, mark string, to func(netip.Addr) bool) error {
	return w.listen(ctx, on, device, func(b []byte) {
		if to != nil && !to(destination(b)) {
			return
		}

		if bytes.Contains(b, []byte(partMagic)) {
			w.parts.Add(1)
		}

		if bytes.Contains(b, []byte(mark)) {
			w.arrived(name, b)
		}
	})
}

// arrived counts a frame that a receiver should not get.
func (w *wire) arrived(name string, b []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()

	w.seen[name]++
	w.like[name] = fmt.Sprintf("%x", b[:min(len(b), 120)])
}

// listen passes on the frames that arrive at a device of a lab host until ctx ends.
func (w *wire) listen(ctx context.Context, on, device string, see func(frame []byte)) error {
	fd, err := w.socket(on, device)
	if err != nil {
		return err
	}

	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 200_000}); err != nil {
		return err
	}
	go func() {
		defer unix.Close(fd)

		for buf := make([]byte, 65536); ctx.Err() == nil; {
			n, from, err := unix.Recvfrom(fd, buf, 0)

			sender, ok := from.(*unix.SockaddrLinklayer)
			if err != nil || ok && sender.Pkttype == unix.PACKET_OUTGOING {
				continue
			}

			see(buf[:n])
		}
	}()

	return nil
}
