package bpf

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// newBridged returns a node of layout bridged with its programs attached.
func newBridged(t *testing.T, shortcuts bool) *node {
	t.Helper()
	n := quietDevices(t, vethWire)
	c := n.config()
	c.Layout = verdict.Bridged
	g := n.open(t, func(o *Options) { o.Config, o.Shortcuts = c, ShortcutOptions{On: shortcuts, Entries: 64} })
	n.must(t, func() error { return errors.Join(g.AttachBridge(n.bridge), g.AttachUplink(n.uplink)) })

	return n
}

// TestBridged_forgedIndex: a pod whose device has no program sets tc_index and the mark of its packets
// to any value that the programs use for packets that they have decided. The uplink's program still
// decides these packets. A program stands in for OVS, which sends them out of the uplink.
func TestBridged_forgedIndex(t *testing.T) {
	needTCX(t)

	const packets = 3

	for _, shortcuts := range []bool{false, true} {
		for _, forged := range []int32{0x686f, 0x706f, 0x6873, 0x7073} { // TC_HOST, the former TC_POD, MARK_..._SENT
			t.Run(fmt.Sprintf("shortcuts %t, %#x", shortcuts, forged), func(t *testing.T) {
				n := newBridged(t, shortcuts)
				_, seen, send := n.forgingPod(t, forged, forged,
					asm.Mov.Imm(asm.R1, int32(n.uplink)), asm.Mov.Imm(asm.R2, 0), asm.FnRedirect.Call(), asm.Return())

				before := counts(t, n.pinDir)

				for range packets {
					for _, frame := range [][]byte{
						v4.tx(v4.pod, v4.remote, protoUDP, udp(50000, 53, 'x')), v6.tx(v6.pod, v6.remote, protoUDP, udp(50000, 53, 'x')),
					} {
						if index := awaitRecord(t, seen, func() { send(frame) }); index != uint32(forged) {
							t.Fatalf("tc_index of the pod is %#x at its device, want %#x", index, forged)
						}
					}
				}
				// The stand-in has returned, so the uplink's program may only just run.
				eventually(t, "untranslated packets of the pod to be dropped", func() bool {
					return deltas(before, counts(t, n.pinDir))["unsnated"] == 2*packets
				})
			})
		}
	}
}

// TestBridged_hostKeepsMark: a packet that the host sends past OVS has its own mark when it leaves by
// the uplink, and is counted once.
func TestBridged_hostKeepsMark(t *testing.T) {
	needTCX(t)
	n := newBridged(t, false)
	n.addr(t, "breth0", v4.node.String()+"/24")
	n.neighbour(t, v4.foreign)
	marks := newRecord(t)
	n.attachTest(t, n.namespace, n.uplink, ebpf.AttachTCXEgress, link.Tail(), record(marks, skbMark, asm.Mov.Imm(asm.R0, -1), asm.Return()))
	host := n.hostUDP(t, 54).(*net.UDPConn)

	raw, err := host.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}

	before := counts(t, n.pinDir)

	want := []int{0, 0x4000, 0x686f, 0x6873, -1}
	for _, mark := range want {
		if err := raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_MARK, mark) }); err != nil {
			t.Fatal(err)
		}

		got := awaitRecord(t, marks, func() {
			if _, err := host.WriteTo([]byte("w"), net.UDPAddrFromAddrPort(netip.AddrPortFrom(v4.foreign, 4000))); err != nil {
				t.Fatal(err)
			}
		})
		if got != uint32(mark) {
			t.Errorf("mark %#x of a host's packet has become %#x", uint32(mark), got)
		}
	}

	if got := deltas(before, counts(t, n.pinDir)); len(got) != 1 || got["host_out"] != uint64(len(want)) {
		t.Errorf("counted %v, want %d of host_out", got, len(want))
	}
}
