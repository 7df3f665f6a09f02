package bpf

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/ovn-ebpf/ovn-ebpf/verdict"
	"github.com/ovn-ebpf/ovn-ebpf/verdict/corpus"
)

// Places where a frame may appear after the programs have decided.
const (
	upUplink  = iota // on the uplink's way in: the host in direct, the bridge's flows otherwise
	marked           // there, marked for OVN
	upBridge         // on the bridge's way in: the host
	outBridge        // at the other end of the bridge's device: OVS
	outUplink        // at the other end of the uplink: the wire
	places
)

var placeNames = [places]string{"uplink in", "uplink in, marked", "bridge in", "bridge out", "uplink out"}

// liveRig sends frames through real devices. No other process uses them.
type liveRig struct {
	*rig
	seen *ebpf.Map // how often, by place
	last [places]uint64
	fd   map[verdict.Direction]sender
}

func newLiveRig(t *testing.T, layout verdict.Layout) *liveRig {
	t.Helper()
	n := quietDevices(t, vethWire)
	// The host's addresses are on lo: it receives, and has no route to reply.
	n.must(t, func() error {
		return errors.Join(writeSysctl("net/ipv6/conf/lo/disable_ipv6", "0"), writeSysctl("net/ipv4/conf/all/arp_ignore", "8"))
	})

	for _, l := range []string{"eth0", "breth0"} {
		n.resize(t, n.namespace, l)
	}

	for _, l := range []string{"wire0", "ovn0"} {
		n.resize(t, n.peer, l)
	}

	c := n.config()
	c.Layout = layout
	g := n.open(t, func(o *Options) { o.Config = c })
	r := &liveRig{rig: &rig{node0: n, g: g, layout: layout, tags: newTagger(t, g)}}
	r.openSockets(t, "lo")
	n.must(t, func() error { return errors.Join(g.AttachBridge(n.bridge), g.AttachUplink(n.uplink)) })
	r.watch(t)

	r.fd = map[verdict.Direction]sender{verdict.FromWire: packetSender(t, n.peer, n.peer.up(t, "wire0"))}
	if layout == verdict.Direct {
		r.fd[verdict.FromOVN] = packetSender(t, n.peer, n.peer.up(t, "ovn0"))
		return r
	}

	r.fd[verdict.FromOVN], r.fd[verdict.FromHost] = packetSender(t, n.namespace, n.uplink), packetSender(t, n.namespace, n.bridge)
	for _, ifindex := range []int{n.uplink, n.bridge} {
		n.attachTest(t, n.namespace, ifindex, ebpf.AttachTCXEgress, link.Head(), aside())
	}

	return r
}

// resize makes room for frames longer than the nodes' MTU.
func (n *node) resize(t *testing.T, ns *namespace, name string) {
	t.Helper()

	l, err := ns.LinkByName(name)
	if err == nil {
		err = ns.LinkSetMTU(l, 9000)
	}

	if err != nil {
		t.Fatalf("set MTU of %s: %v", name, err)
	}
}

// watch counts the frames at each place, after the agent's programs.
func (r *liveRig) watch(t *testing.T) {
	t.Helper()

	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: places})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { m.Close() })

	r.seen = m
	for _, w := range []struct {
		ns              *namespace
		ifindex         int
		place, ifMarked int32
	}{
		{r.namespace, r.uplink, upUplink, marked},
		{r.namespace, r.bridge, upBridge, upBridge},
		{r.peer, r.peer.up(t, "ovn0"), outBridge, outBridge},
		{r.peer, r.peer.up(t, "wire0"), outUplink, outUplink},
	} {
		r.attachTest(t, w.ns, w.ifindex, ebpf.AttachTCXIngress, link.Tail(), sighting(m, w.place, w.ifMarked))
	}
}

func (n *node) attachTest(t testing.TB, ns *namespace, ifindex int, at ebpf.AttachType, anchor link.Anchor, code asm.Instructions) {
	t.Helper()

	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "GPL", Instructions: code})
	if err != nil {
		t.Fatalf("%+v", err)
	}

	t.Cleanup(func() { p.Close() })
	ns.must(t, func() error {
		l, err := link.AttachTCX(link.TCXOptions{Interface: ifindex, Program: p, Attach: at, Anchor: anchor})
		if err == nil {
			t.Cleanup(func() { l.Close() })
		}

		return err
	})
}

// sighting counts a frame in m.
func sighting(m *ebpf.Map, place, ifMarked int32) asm.Instructions {
	const mark = 8 // in struct __sk_buff

	return asm.Instructions{
		asm.StoreImm(asm.RFP, -4, int64(place), asm.Word),
		asm.LoadMem(asm.R2, asm.R1, mark, asm.Word),
		asm.JNE.Imm(asm.R2, 0x6f76, "count"),
		asm.StoreImm(asm.RFP, -4, int64(ifMarked), asm.Word),
		asm.LoadMapPtr(asm.R1, m.FD()).WithSymbol("count"),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, -4),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "out"),
		asm.Mov.Imm(asm.R1, 1),
		asm.StoreXAdd(asm.R0, asm.R1, asm.DWord),
		asm.Mov.Imm(asm.R0, -1).WithSymbol("out"), // the next program
		asm.Return(),
	}
}

// aside moves a frame's tag to the packet's metadata, as OVS and VLAN devices do. A test can send
// it only inside the frame.
func aside() asm.Instructions {
	const present = 20 // vlan_present in struct __sk_buff

	return asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R1),
		asm.LoadMem(asm.R2, asm.R1, present, asm.Word),
		asm.JNE.Imm(asm.R2, 0, "out"),
		asm.Mov.Imm(asm.R2, 12),
		asm.Mov.Reg(asm.R3, asm.RFP),
		asm.Add.Imm(asm.R3, -8),
		asm.Mov.Imm(asm.R4, 4),
		asm.FnSkbLoadBytes.Call(),
		asm.JNE.Imm(asm.R0, 0, "out"),
		asm.LoadMem(asm.R7, asm.RFP, -8, asm.Half),
		asm.LoadMem(asm.R8, asm.RFP, -6, asm.Half),
		asm.HostTo(asm.BE, asm.R8, asm.Half),
		asm.JEq.Imm(asm.R7, int32(htons(unix.ETH_P_8021Q)), "move"),
		asm.JNE.Imm(asm.R7, int32(htons(unix.ETH_P_8021AD)), "out"),
		asm.Mov.Reg(asm.R1, asm.R6).WithSymbol("move"),
		asm.FnSkbVlanPop.Call(),
		asm.Mov.Reg(asm.R1, asm.R6),
		asm.Mov.Reg(asm.R2, asm.R7),
		asm.Mov.Reg(asm.R3, asm.R8),
		asm.FnSkbVlanPush.Call(),
		asm.Mov.Imm(asm.R0, -1).WithSymbol("out"),
		asm.Return(),
	}
}

// sighted returns the places where frames have appeared since the last call.
func (r *liveRig) sighted(t *testing.T) (names []string) {
	t.Helper()

	for i := range r.last {
		var n uint64
		if err := r.seen.Lookup(uint32(i), &n); err != nil {
			t.Fatal(err)
		}

		for range n - r.last[i] {
			names = append(names, placeNames[i])
		}

		r.last[i] = n
	}

	return names
}

// whereto returns the places where a frame with this explanation appears.
func (r *liveRig) whereto(dir verdict.Direction, decided string) []string {
	connected := r.node.Config.Connected
	at := func(places ...int) (names []string) {
		for _, p := range places {
			names = append(names, placeNames[p])
		}

		return names
	}

	switch {
	case dir == verdict.FromWire && decided == "drop":
		return nil
	case r.layout == verdict.Direct && dir == verdict.FromWire:
		return map[string][]string{"host": at(upUplink), "ovn": at(outBridge), "both": at(upUplink, outBridge)}[decided]
	case r.layout == verdict.Direct:
		return map[string][]string{"host": at(upBridge), "out": at(outUplink)}[decided]
	case r.layout == verdict.Dedicated && dir == verdict.FromWire, !connected && dir == verdict.FromWire:
		return at(upUplink)
	case dir == verdict.FromHost && decided == "ovn", dir == verdict.FromHost && !connected:
		return at(outBridge)
	case dir == verdict.FromHost, !connected, decided == "out":
		return at(outUplink)
	case decided == "drop":
		return nil
	case r.layout == verdict.Dedicated:
		return at(outUplink)
	}

	return map[string][]string{"host": at(upBridge), "ovn": at(marked), "both": at(marked, upBridge)}[decided]
}

// The explanation of a frame, including the deciding entry, matches its real decision: it counts
// once, under that reason, and appears at the place of the verdict. Explaining itself does not
// count, send or learn.
func TestExplainer_Explain_live(t *testing.T) {
	needTCX(t)

	for _, layout := range corpusLayouts {
		t.Run(layout.String(), func(t *testing.T) {
			r := newLiveRig(t, layout)
			e := r.explainer(t)

			var cases []corpus.Case

			for i, c := range corpus.Cases() {
				if c.In(layout) && (i%5 == 0 || !testing.Short()) {
					cases = append(cases, c)
				}
			}

			for rest := cases; len(rest) > 0; { // they come by node
				n := 1
				for n < len(rest) && rest[n].Node == rest[0].Node {
					n++
				}

				r.set(t, rest[0].Node)
				r.explainAndSend(t, e, rest[:n])
				rest = rest[n:]
			}

			t.Logf("%d cases", len(cases))
		})
	}
}

// explainAndSend runs the cases of one node, none of which affects another.
func (r *liveRig) explainAndSend(t *testing.T, e *Explainer, cases []corpus.Case) {
	t.Helper()
	before := r.contents(t)

	var all []Explanation

	for _, c := range cases {
		got, err := r.explain(e, c.Dir, c.Frame)
		if err != nil {
			t.Fatalf("%s: %v", c.Name, err)
		}

		if moved, out := r.moved(t), r.sighted(t); len(moved)+len(out) > 0 {
			t.Errorf("%s: to explain it has counted %v and was seen at %v", c.Name, moved, out)
		}

		answers := deciding[got.Reason]

		said := func(s Step) bool { return slices.Contains(answers, s.Asked+": "+s.Answer) }
		if len(answers) > 0 && !slices.ContainsFunc(got.Steps, said) {
			t.Errorf("%s: decided by %s, but the steps are %v", c.Name, got.Reason, got.Steps)
		}

		all = append(all, got)
	}

	if diff := cmp.Diff(before, r.contents(t)); diff != "" {
		t.Errorf("%s: changed by asking (-before +after):\n%s", cases[0].Node.Name, diff)
	}

	for i, c := range cases {
		r.becomes(t, c, all[i])
	}
}

// becomes sends a frame and compares the result with the explanation.
func (r *liveRig) becomes(t *testing.T, c corpus.Case, explained Explanation) {
	t.Helper()

	if err := r.fd[c.Dir]([10]byte{}, c.Frame); err != nil {
		t.Fatalf("%s: send %x: %v", c.Name, c.Frame, err)
	}

	var reasons, out []string

	want := r.whereto(c.Dir, explained.Verdict)
	eventually(t, fmt.Sprintf("%s to count as %s and to be at %v", c.Name, explained.Reason, want), func() bool {
		reasons, out = append(reasons, r.moved(t)...), append(out, r.sighted(t)...)
		return len(reasons) > 0 && len(out) >= len(want)
	})
	slices.Sort(out)
	slices.Sort(want)

	if strings.Join(reasons, " ") != explained.Reason || !slices.Equal(out, want) {
		t.Errorf("%s: explained as %s to %s, at %v; counted as %v, seen at %v\nframe %x", c.Name, explained.Reason, explained.Verdict, want, reasons, out, c.Frame)
	}
}
