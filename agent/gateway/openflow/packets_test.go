package openflow_test

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/agent/gateway/openflow"
	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
	"github.com/ovn-ebpf/ovn-ebpf/agent/testnode"
	"github.com/ovn-ebpf/ovn-ebpf/verdict"
	"github.com/ovn-ebpf/ovn-ebpf/verdict/corpus"
)

// wires records the frames that the ports of a rig have sent.
type wires struct {
	*rig
	seen map[string]int // frames taken already
}

func newWires(t *testing.T) *wires {
	t.Helper()

	w := &wires{newRig(t), map[string]int{}}
	for _, port := range []string{"uplink", "patch", bridge} {
		w.Vsctl(t, "set", "Interface", port, "options:tx_pcap="+w.pcap(port))
		testnode.Eventually(t, "frames are captured", func() error {
			_, err := os.Stat(w.pcap(port))
			return err
		})
	}

	return w
}

func (w *wires) pcap(port string) string { return w.Dir + "/" + port + ".pcap" }

// send makes a port receive a frame and returns the frames that each port then sends. The
// datapath's lookup counter shows when the frame has been processed.
func (w *wires) send(t *testing.T, port string, frame []byte) map[string][][]byte {
	t.Helper()

	before := w.lookups(t)
	if _, err := w.ctl.Call(t.Context(), "netdev-dummy/receive", port, hex.EncodeToString(frame)); err != nil {
		t.Fatal(err)
	}

	testnode.Eventually(t, "frame is forwarded", func() error {
		if w.lookups(t) == before {
			return errors.New("no lookup yet")
		}

		return nil
	})

	out := map[string][][]byte{}

	for _, p := range []string{"uplink", "patch", bridge} {
		frames := readPcap(t, w.pcap(p))
		if more := frames[w.seen[p]:]; len(more) > 0 {
			out[p] = more
		}

		w.seen[p] = len(frames)
	}

	return out
}

// soon repeats a frame from the wire until it leaves through one port only, when no stale datapath
// flow is left.
func (w *wires) soon(t *testing.T, frame []byte, by string) {
	t.Helper()
	testnode.Eventually(t, "what was learned is used", func() error {
		if got := slices.Collect(maps.Keys(w.send(t, "uplink", frame))); !slices.Equal(got, []string{by}) {
			return fmt.Errorf("sent by %v", got)
		}

		return nil
	})
}

func (r *rig) lookups(t *testing.T) (n int) {
	t.Helper()

	text, err := r.ctl.Call(t.Context(), "dpctl/show", "dummy@ovs-dummy")
	if err != nil {
		t.Fatal(err)
	}

	var hit, missed, lost int

	_, rest, _ := strings.Cut(text, "lookups: ")
	if _, err := fmt.Sscanf(rest, "hit:%d missed:%d lost:%d", &hit, &missed, &lost); err != nil || lost > 0 {
		t.Fatalf("%v: %s", err, text)
	}

	return hit + missed
}

// readPcap returns a capture's frames.
func readPcap(t *testing.T, path string) [][]byte {
	t.Helper()

	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}

	const fileHeader, frameHeader = 24, 16
	if len(b) < fileHeader {
		return nil
	}

	var out [][]byte

	for b = b[fileHeader:]; len(b) >= frameHeader; {
		n := int(binary.NativeEndian.Uint32(b[8:]))
		out = append(out, b[frameHeader:frameHeader+n])
		b = b[frameHeader+n:]
	}

	return out
}

// expect sends a frame and fails unless exactly the named ports send one frame each. It returns
// these frames.
func (w *wires) expect(t *testing.T, port string, frame []byte, by ...string) map[string]verdict.Frame {
	t.Helper()

	sent, out := w.send(t, port, frame), map[string]verdict.Frame{}
	for p, frames := range sent {
		if out[p] = verdict.Parse(frames[0]); len(frames) != 1 || !slices.Contains(by, p) {
			t.Errorf("%s sends %x", p, frames)
		}
	}

	if len(out) != len(by) {
		t.Fatalf("%x is sent by %v, want %v", frame, slices.Sorted(maps.Keys(out)), by)
	}

	return out
}

// Exchanges of OVN without ports are learned from its own packets. A packet does not leave if a
// host socket would receive the reply.
func TestLearns(t *testing.T) {
	w := newWires(t)

	n := plainNode(0)
	for _, f := range []corpus.Family{corpus.V4, corpus.V6} {
		n.Sockets = append(n.Sockets, verdict.Socket{Proto: corpus.ProtoUDP, Local: netip.AddrPortFrom(f.Node, 50001)})
		n.HostProtos = map[verdict.NSKey]bool{
			{Remote: f.Remote, Proto: corpus.ProtoESP}:                         true,
			{Remote: verdict.AnyRemote(f.Node.Is6()), Proto: corpus.ProtoVRRP}: true,
		}
		w.install(t, n)
		w.soon(t, f.In(corpus.GRE()), bridge)
		w.expect(t, "patch", f.Out(corpus.GRE()), "uplink")
		w.soon(t, f.In(corpus.GRE()), "patch")
		w.expect(t, "uplink", f.Rx(f.Foreign, f.Node, corpus.GRE()), bridge)
		w.expect(t, "patch", f.Out(corpus.ESP()))
		w.soon(t, f.In(corpus.ESP()), bridge)
		w.expect(t, "patch", f.Out(corpus.L4{Proto: corpus.ProtoVRRP, Data: make([]byte, 8)}))
		w.soon(t, f.In(corpus.L4{Proto: corpus.ProtoVRRP, Data: make([]byte, 8)}), bridge)
		w.soon(t, f.In(corpus.UDP(53, 50001)), bridge)
		w.expect(t, "patch", f.Out(corpus.UDP(50001, 53)))
		w.soon(t, f.In(corpus.UDP(53, 50001)), bridge)
		w.expect(t, "uplink", f.In(corpus.UDP(54, 50001)), bridge)
		w.expect(t, "uplink", f.In(corpus.UDP(54, 50002)), "patch")
	}

	dump := func() int {
		return strings.Count(testnode.Run(t, "ovs-ofctl", "dump-flows", "unix:"+w.Dir+"/"+bridge+".mgmt", "cookie="+ovs.LearnedCookie+"/-1"), "nw_proto=47")
	}
	if changed, err := ovs.SyncBundle(t.Context(), w.Dir, bridge, openflow.Flows(w.input(n))); err != nil || changed != 0 || dump() == 0 {
		t.Errorf("a sync changes %d flows, learned are %d, error %v", changed, dump(), err)
	}

	if _, err := ovs.SyncBundle(t.Context(), w.Dir, bridge, nil); err != nil || dump() != 0 {
		t.Errorf("learned flows %d outlive the flows that learned them, error %v", dump(), err)
	}
}

// Fragments wait for each other in zone 64003, in any order. The userspace datapath then outputs
// them separately. A packet that is still a fragment goes to both sides.
func TestFragments(t *testing.T) {
	w := newWires(t)
	w.install(t, plainNode(0))

	const first = 1400 // shorter ones OVS does not reassemble

	for _, f := range []corpus.Family{corpus.V4, corpus.V6} {
		whole := corpus.UDP(53, 50000, make([]byte, 1800)...).Data
		part := func(id uint32, from, to int) []byte {
			return corpus.IP{
				Src: f.Remote, Dst: f.Node, L4: corpus.L4{Proto: corpus.ProtoUDP, Data: whole[from:to]},
				Fragment: &corpus.Fragment{ID: id, Offset: uint16(from), More: to < len(whole)},
			}.Frame(corpus.NodeMAC, corpus.PeerMAC)
		}
		w.expect(t, "uplink", part(1, 0, first))

		if got := w.send(t, "uplink", part(1, first, len(whole))); len(got[bridge]) != 2 || len(got["patch"]) != 2 {
			t.Errorf("%s, first first: %x", f.Name, got)
		}

		w.expect(t, "uplink", part(2, first, len(whole)))

		if got := w.send(t, "uplink", part(2, 0, first)); len(got[bridge]) != 2 || len(got["patch"]) != 2 {
			t.Errorf("%s, last first: %x", f.Name, got)
		}
	}
}
