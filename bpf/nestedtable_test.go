package bpf

import (
	"errors"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sys/unix"
)

func TestNested_SetHost(t *testing.T) {
	r := newNestedRig(t)
	second := netip.MustParseAddr("192.168.0.3")
	ping := func(dst netip.Addr) nestedStep {
		frame := podFrame(podAddr, dst, protoICMP, v4.ping(1))
		return nestedStep{from: r.one.Ifindex, frame: frame, ret: retRedirect, reason: "tx out"}
	}
	r.run(t, r.pod, 0, ping(second))

	if err := r.n.SetHost([]netip.Addr{second}); err != nil {
		t.Fatal(err)
	}

	r.run(t, r.pod, 1, ping(vmAddr))
	s := ping(second)
	s.ret, s.reason = retNext, "tx host"
	r.run(t, r.pod, 2, s)

	var many []netip.Addr
	for a := netip.MustParseAddr("10.9.0.0"); len(many) < 1025; a = a.Next() {
		many = append(many, a)
	}

	if err := r.n.SetHost(many); err == nil {
		t.Error("no error for more addresses than there is room for")
	}
}

// vlanOf returns a tag's entry.
func vlanOf(t *testing.T, n *Nested, tag int) (v nestedVlan) {
	t.Helper()

	if err := n.objs.NestedTags.Lookup(uint32(tag), &v); err != nil {
		t.Fatal(err)
	}

	return v
}

func wantVLAN(t *testing.T, n *Nested, tag, ifindex int, flags nestedVlanFlag) {
	t.Helper()

	got := vlanOf(t, n, tag)
	if got.Ifindex != uint32(ifindex) || got.Flags != uint32(flags) {
		t.Errorf("tag %d: interface %d, flags %d; want %d, %d", tag, got.Ifindex, got.Flags, ifindex, flags)
	}
}

func wantPods(t *testing.T, n *Nested, want ...NestedPod) {
	t.Helper()

	got, err := n.Pods()
	if err != nil {
		t.Fatal(err)
	}

	if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
		t.Errorf("pods (-want +got):\n%s", diff)
	}
}

func TestNested_SetTags(t *testing.T) {
	const pool = nestedVlanFlagVLAN_POOL

	r := newNestedRig(t)
	wantVLAN(t, r.n, freeTag, 0, pool)

	if err := r.n.SetTags([]int{podTag, foreign}); err != nil {
		t.Fatal(err)
	}

	wantVLAN(t, r.n, podTag, r.one.Ifindex, pool)
	wantVLAN(t, r.n, otherTag, r.other.Ifindex, 0)
	wantVLAN(t, r.n, freeTag, 0, 0)
	wantVLAN(t, r.n, foreign, 0, pool)

	r.must(t, func() error {
		return errors.Join(r.n.Disconnect(r.one.Ifindex), r.n.Disconnect(r.other.Ifindex))
	})
	wantVLAN(t, r.n, podTag, 0, pool)
	wantVLAN(t, r.n, otherTag, 0, 0)

	for _, tag := range []int{0, -1, 4095} {
		if err := r.n.SetTags([]int{tag}); err == nil {
			t.Errorf("no error for tag %d", tag)
		}
	}

	wantVLAN(t, r.n, podTag, 0, pool)
}

func TestNested_Connect(t *testing.T) {
	const pool, limited = nestedVlanFlagVLAN_POOL, nestedVlanFlagVLAN_LIMITED

	r := newNestedRig(t)
	wantPods(t, r.n, r.one, r.other)

	t.Log("the other device takes the tag")

	taken := r.other
	taken.Tag, taken.Limited = podTag, true
	taken.Addresses = []netip.Addr{podAddr, netip.MustParseAddr("fd00:10:1::5")}

	r.must(t, func() error { return r.n.Connect(taken) })
	wantPods(t, r.n, taken)
	wantVLAN(t, r.n, podTag, r.other.Ifindex, pool|limited)
	wantVLAN(t, r.n, otherTag, 0, pool)

	frame := podFrame(podAddr, v4.remote, protoUDP, udp(4000, 53))
	closedStep := nestedStep{from: r.one.Ifindex, frame: frame, ret: retDrop, reason: "tx unknown_device"}
	r.run(t, r.pod, 0, closedStep)

	t.Log("the former device is disconnected late")
	r.must(t, func() error { return r.n.Disconnect(r.one.Ifindex) })
	wantPods(t, r.n, taken)
	wantVLAN(t, r.n, podTag, r.other.Ifindex, pool|limited)

	t.Log("a former device that still has an entry is disconnected")

	if err := r.n.objs.NestedDevices.Put(uint32(r.one.Ifindex), nestedDevice{Tag: podTag}); err != nil {
		t.Fatal(err)
	}

	r.must(t, func() error { return r.n.Disconnect(r.one.Ifindex) })
	wantPods(t, r.n, taken)
	wantVLAN(t, r.n, podTag, r.other.Ifindex, pool|limited)

	t.Log("a crash has left a device with a tag that leads nowhere")

	if err := r.n.objs.NestedTags.Put(uint32(podTag), nestedVlan{}); err != nil {
		t.Fatal(err)
	}

	wantPods(t, r.n)
	r.must(t, func() error { return r.n.Connect(r.one) })
	wantPods(t, r.n, r.one)
	closedStep.from = r.other.Ifindex
	r.run(t, r.pod, 1, closedStep)
}

func TestNested_ConnectRefuses(t *testing.T) {
	r := newNestedRig(t)
	for _, tt := range []struct {
		name   string
		change func(*NestedPod)
	}{
		{"tag 0", func(p *NestedPod) { p.Tag = 0 }},
		{"tag 4095", func(p *NestedPod) { p.Tag = 4095 }},
		{"no interface", func(p *NestedPod) { p.Ifindex = 0 }},
		{"short MAC address", func(p *NestedPod) { p.MAC = p.MAC[:5] }},
		{"long MAC address", func(p *NestedPod) { p.MAC = make([]byte, 8) }},
		{"two addresses of a family", func(p *NestedPod) { p.Addresses = append(p.Addresses, otherAddr) }},
		{"no address", func(p *NestedPod) { p.Addresses = []netip.Addr{{}} }},
		{"mapped address", func(p *NestedPod) { p.Addresses[0] = netip.AddrFrom16(podAddr.As16()) }},
		{"missing interface", func(p *NestedPod) { p.Ifindex, p.Tag = 4711, freeTag }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := r.one
			p.Addresses = slices.Clone(p.Addresses)
			tt.change(&p)
			r.must(t, func() error {
				if err := r.n.Connect(p); err == nil {
					t.Error("no error")
				}

				return nil
			})
			wantPods(t, r.n, r.one, r.other)
		})
	}

	wantVLAN(t, r.n, freeTag, 0, nestedVlanFlagVLAN_POOL)
	r.must(t, func() error {
		err := r.n.Connect(NestedPod{Tag: freeTag, Ifindex: 4711, MAC: podMAC})
		if !errors.Is(err, unix.ENODEV) {
			t.Errorf("connect a missing interface: %v, want ENODEV", err)
		}

		return nil
	})
}
