package bpf

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"os"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/ovn-ebpf/ovn-ebpf/verdict/corpus"
)

// Pings and datagrams pass one after the other while the programs are loaded again and again.
func TestLoadNested_losesNothing(t *testing.T) {
	for _, mode := range attachModes {
		t.Run(mode.name, func(t *testing.T) {
			l := newNestedLive(t, mode.clsact)
			pod := l.pods[0].peer.socket(t, podAddr, podPort)
			remote := netip.AddrPortFrom(v4.remote, 53)

			before := nestedCounts(t, l.pinDir)
			if err := l.n.Close(); err != nil {
				t.Fatal(err)
			}

			loads, done := make(chan int), make(chan error)
			go func() {
				defer close(loads)

				for i := range 30 {
					err := l.do(func() error {
						n, err := LoadNested(NestedOptions{
							NIC: l.uplink, PinDir: l.pinDir, Clsact: l.node.clsact(), ForceClsact: mode.clsact,
						})
						if err != nil {
							return err
						}

						return n.Close()
					})
					if err != nil {
						done <- err
						return
					}

					loads <- i
				}
			}()

			rounds := uint64(0)
			for more := true; more; rounds++ {
				if err := l.pods[0].peer.echo(podAddr, vmAddr, 8); err != nil {
					t.Fatal(err)
				}

				number := binary.BigEndian.AppendUint64(nil, rounds)
				l.wire.send(t, corpus.Tag(podTag, toPod(remote, number...)))
				wantDatagram(t, pod, number)
				sendDatagram(t, pod, remote, number)
				l.wantTagged(t, podTag, number)

				select {
				case err := <-done:
					t.Fatal(err)
				case _, more = <-loads:
				default:
				}
			}

			t.Logf("%d rounds over 30 loads", rounds)
			l.counted(t, before, map[string]nestedCount{
				"tx host": {rounds, rounds * (14 + 20 + 16)},
				"rx in":   {rounds, rounds * (14 + 28 + 8)}, "tx out": {rounds, rounds * (14 + 28 + 8)},
			})
		})
	}
}

func (l *nestedLive) wantAttached(t *testing.T, n *Nested, nic, pod bool) {
	t.Helper()
	l.must(t, func() error {
		gotNIC, err := n.Attached()

		gotPod, podErr := n.PodAttached(l.one.Ifindex)
		if err == nil && podErr == nil && (gotNIC != nic || gotPod != pod) {
			t.Errorf("attached: NIC %t, pod %t; want %t, %t", gotNIC, gotPod, nic, pod)
		}

		return errors.Join(err, podErr)
	})
}

// A load adopts what an earlier one has left, repairs what is missing and forgets what is gone.
func TestLoadNested_adopts(t *testing.T) {
	for _, mode := range attachModes {
		t.Run(mode.name, func(t *testing.T) {
			l := newNestedLive(t, mode.clsact)
			l.wantAttached(t, l.n, true, true)
			next := l.load(t)
			l.wantAttached(t, l.n, false, false)
			l.wantAttached(t, next, true, true)
			wantPods(t, next, l.one, l.other)

			t.Log("the programs are removed")

			for _, h := range []struct {
				hook
				ifindex int
			}{{nestedWire, l.uplink}, {nestedPodHook(l.one.Ifindex), l.one.Ifindex}} {
				if mode.clsact {
					l.must(t, func() error { return l.clsactDetach(h.ifindex, h.name, false) })
				} else {
					l.must(t, func() error { return dropLink(next.attacher.pin(h.hook)) })
				}
			}

			l.wantAttached(t, next, false, false)
			l.must(t, func() error { return errors.Join(next.Attach(), next.Connect(l.one)) })
			l.wantAttached(t, next, true, true)

			t.Log("the devices of two pods, one never connected, and the NIC are deleted; a new NIC is added")
			crashed := l.addPod(t, freeTag, otherMAC)
			l.must(t, func() error { return next.attachPod(crashed.Ifindex) })
			l.remove(t, "pod2")
			l.remove(t, "pod1")
			l.remove(t, "eth0")
			l.uplink = l.veth(t, "eth0", nodeMAC, l.peer, "wire0")
			l.wire = l.tap(t, "wire0")
			next = l.load(t)
			l.wantAttached(t, next, true, true)
			wantPods(t, next, l.one)
			wantVLAN(t, next, otherTag, 0, nestedVlanFlagVLAN_POOL)

			l4 := udp(1, 2, []byte("new NIC")...)
			l.pods[0].tap(t, "eth0").send(t, podFrame(podAddr, v4.remote, protoUDP, l4))
			l.wantTagged(t, podTag, []byte("new NIC"))

			pins, err := os.ReadDir(l.pinDir)
			if err != nil || len(pins) != 7 { // five maps, the NIC and a pod
				t.Errorf("pins %v, %v", pins, err)
			}
		})
	}
}

func TestNested_Disconnect(t *testing.T) {
	for _, mode := range attachModes {
		t.Run(mode.name, func(t *testing.T) {
			l := newNestedLive(t, mode.clsact)
			l.must(t, func() error { return l.n.Disconnect(l.other.Ifindex) })
			wantPods(t, l.n, l.one)

			t.Log("the device of the first pod is replaced, and the old one is disconnected afterwards")

			old := l.one
			l.remove(t, "pod0")
			l.one = l.addPod(t, podTag, podMAC, podAddr)
			l.pods[2].peer.addr(t, "eth0", podAddr.String()+"/28")
			pod := l.pods[2].peer.socket(t, podAddr, podPort)
			l.must(t, func() error {
				return errors.Join(l.n.Connect(l.one), l.n.Disconnect(old.Ifindex), l.n.Disconnect(old.Ifindex))
			})
			wantPods(t, l.n, l.one)
			l.wire.send(t, corpus.Tag(podTag, toPod(netip.AddrPortFrom(v4.remote, 53), 'n')))
			wantDatagram(t, pod, []byte{'n'})

			if up, err := l.n.PodAttached(old.Ifindex); up || err != nil {
				t.Errorf("old device attached: %t, %v", up, err)
			}
		})
	}
}

func TestRemoveNested(t *testing.T) {
	for _, mode := range attachModes {
		t.Run(mode.name, func(t *testing.T) {
			l := newNestedLive(t, mode.clsact)
			if !l.hasProgram(t, l.uplink, nestedWire.name, mode.clsact) {
				t.Fatal("the NIC has no program")
			}

			l.must(t, func() error { return RemoveNested(l.pinDir, l.node.clsact()) })

			if _, err := os.Stat(l.pinDir); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("pin directory is still there: %v", err)
			}

			l.must(t, func() error { return RemoveNested(l.pinDir, l.node.clsact()) })

			for _, at := range []struct {
				hook
				ifindex int
			}{
				{nestedWire, l.uplink},
				{nestedPodHook(l.one.Ifindex), l.one.Ifindex},
				{nestedPodHook(l.other.Ifindex), l.other.Ifindex},
			} {
				if l.hasProgram(t, at.ifindex, at.name, mode.clsact) {
					t.Errorf("%s is still attached", at.name)
				}
			}
		})
	}
}

// hasProgram reports whether the interface's ingress has a program, or the filter of that name.
func (vm *nestedVM) hasProgram(t *testing.T, ifindex int, name string, clsact bool) bool {
	t.Helper()

	if clsact {
		return vm.clsactAttached(ifindex, name, false)
	}

	var n int

	vm.must(t, func() error {
		got, err := link.QueryPrograms(link.QueryOptions{Target: ifindex, Attach: ebpf.AttachTCXIngress})
		if err == nil {
			n = len(got.Programs)
		}

		return err
	})

	return n > 0
}

// Other state in the pin directory stays.
func TestRemoveNested_keepsOthers(t *testing.T) {
	l := newNestedLive(t, false)
	l.open(t)
	l.must(t, func() error { return RemoveNested(l.pinDir, l.node.clsact()) })

	if got := counts(t, l.pinDir); len(got) != 0 {
		t.Errorf("the gateway has counted %v", got)
	}

	if _, err := ReadNestedCounters(l.pinDir); !errors.Is(err, unix.ENOENT) {
		t.Errorf("read counters: %v, want ENOENT", err)
	}
}
