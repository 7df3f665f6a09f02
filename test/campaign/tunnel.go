package campaign

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
	"github.com/ovn-ebpf/ovn-ebpf/verdict"
	"github.com/ovn-ebpf/ovn-ebpf/verdict/corpus"
)

// Marks in the inner frames of forged tunnel packets. A packet in two fragments has a mark and its
// number in each.
const (
	forgedMagic = "TUNNEL!!"
	firstMagic  = "TUNNEL-1"
	lastMagic   = "TUNNEL-2"
)

// forgeRate is the number of forged tunnel packets per second.
const forgeRate = wireRate / 2

// forger is a tenant's pod that forges the packets of OVN's tunnels. Each would bring a guarded pod
// a frame from a pod that its policy allows.
type forger struct {
	*attacker
	tunnels []netip.Addr // addresses to which it sends them
	inner   []inner
	number  uint32 // of the last packet in fragments
	waiting []byte // last fragment of that packet, unless it is sent
}

// inner is what the inner frame of a tunnel packet has besides its mark.
type inner struct {
	from, to       verdict.MAC
	source, target netip.Addr
}

// forger returns an attacker in a tenant's pod on node1. It sends to all addresses of nodes and of
// their tunnels, and to the management port of its own node. That of the other node is a destination
// in the pod network: packets to it cross the tunnels, and the other node drops them.
func (w *wire) forger(ctx context.Context, seed uint64) (*forger, error) {
	f := &forger{attacker: newAttacker(seed, forgedMagic)}
	p := w.attackers[0]

	f.sources = p.IPs
	if err := w.stand(ctx, f.attacker, p); err != nil {
		return nil, err
	}

	for _, n := range w.Nodes() {
		f.tunnels = append(f.tunnels, n.IP4, n.IP6)
		if n.Encap.IsValid() {
			f.tunnels = append(f.tunnels, n.Encap)
		}

		if n.Name != p.Node {
			continue
		}

		subnets, err := w.subnets(ctx, n.Name)
		if err != nil {
			return nil, err
		}

		for _, s := range subnets {
			f.tunnels = append(f.tunnels, annotation.ManagementAddress(s).Addr())
		}
	}

	allowed := w.pods["b"]

	from, err := w.mac(ctx, allowed.Host(), "eth0")
	if err != nil {
		return nil, err
	}

	for _, guarded := range w.guarded {
		to, err := w.mac(ctx, guarded.Host(), "eth0")
		if err != nil {
			return nil, err
		}

		f.inner = append(f.inner, inner{from, to, allowed.IP4(), guarded.IP4()})
	}

	return f, nil
}

// frame returns the next frame. One packet in 32 is in two fragments: the userspace datapath drops the
// first one, keeps the other one for 15 s, and has room for 1,000 of all attackers (lib/ipf.c).
func (f *forger) frame() []byte {
	if next := f.waiting; next != nil {
		f.waiting = nil
		return next
	}

	to := f.tunnels[f.r.IntN(len(f.tunnels))]
	from := f.one(f.sources, to.Is6())
	via := f.next()

	packet := func(payload []byte) corpus.IP {
		sport := uint16(1024 + f.r.IntN(64000))
		l4 := corpus.UDP(sport, genevePort, f.geneve(payload)...)

		return corpus.IP{Src: from, Dst: to, L4: f.summed(l4, from, to)}
	}
	if f.r.IntN(32) > 0 {
		return packet([]byte(forgedMagic)).Frame(via, f.own)
	}

	f.number++
	number := binary.BigEndian.AppendUint32(nil, f.number)
	last := append([]byte(lastMagic), number...)
	p := packet(bytes.Join([][]byte{[]byte(firstMagic), number, make([]byte, 8), last}, nil))
	all, at := p.L4.Data, (len(p.L4.Data)-len(last))&^7

	p.Fragment, p.L4.Data = &corpus.Fragment{ID: f.number, Offset: uint16(at)}, all[at:]
	f.waiting = p.Frame(via, f.own)
	p.Fragment, p.L4.Data = &corpus.Fragment{ID: f.number, More: true}, all[:at]

	return p.Frame(via, f.own)
}

// geneve returns a packet as OVN makes it (ovn-architecture(7), tunnel encapsulations), as far as its
// sender can guess the keys: small numbers for a datapath, the port at which the frame entered it,
// and the one by which it leaves.
func (f *forger) geneve(payload []byte) []byte {
	const critical, ethernet = 0x40, 0x6558

	b := binary.BigEndian.AppendUint16([]byte{2, critical}, ethernet) // two words of options
	b = binary.BigEndian.AppendUint32(b, uint32(1+f.r.IntN(10))<<8)
	b = append(b, 0x01, 0x02, 0x80, 1) // OVN's class and type, one word
	b = binary.BigEndian.AppendUint16(b, uint16(1+f.r.IntN(5)))
	b = binary.BigEndian.AppendUint16(b, uint16(1+f.r.IntN(15)))

	i := f.inner[f.r.IntN(len(f.inner))]
	l4 := f.summed(corpus.UDP(4000, podPort, payload...), i.source, i.target)

	return append(b, corpus.IP{Src: i.source, Dst: i.target, L4: l4}.Frame(i.to, i.from)...)
}

// watchForged looks for forged tunnel packets at the devices of all hosts, and for their inner frames
// at the guarded pods. None may arrive.
func (w *wire) watchForged(ctx context.Context) error {
	at := func(on, device string) error {
		parts := pairs{}

		return w.listen(ctx, on, device, func(b []byte) {
			if bytes.Contains(b, []byte(forgedMagic)) || parts.completed(b) {
				w.arrived(fmt.Sprintf("%s of %s, as tunnel packets of a pod", device, on), b)
			}
		})
	}

	for _, n := range w.Nodes() {
		for _, device := range []string{"breth0", "eth0", "ovn-k8s-mp0"} {
			if err := at(n.Name, device); err != nil {
				return err
			}
		}
	}

	for _, p := range w.guarded {
		if err := at(p.Host(), "eth0"); err != nil {
			return err
		}
	}

	return nil
}

// pairs are the fragments of forged tunnel packets that have arrived, by number: when the first and
// the last one came.
type pairs map[uint32]*[2]time.Time

// pairedWithin is the longest time between two fragments of one packet. The userspace datapath
// forwards a fragment without its other parts after 15 s, past all flows (partsAllowed).
const pairedWithin = 10 * time.Second

// completed takes a frame, and reports whether both fragments of its packet have arrived. A last one
// alone is harmless.
func (p pairs) completed(b []byte) bool {
	for i, mark := range []string{firstMagic, lastMagic} {
		at := bytes.Index(b, []byte(mark)) + len(mark)
		if at < len(mark) || len(b) < at+4 {
			continue
		}

		number := binary.BigEndian.Uint32(b[at:])
		if p[number] == nil {
			p[number] = &[2]time.Time{}
		}

		p[number][i] = time.Now()
		if other := p[number][1-i]; !other.IsZero() && time.Since(other) < pairedWithin {
			return true
		}
	}

	return false
}
