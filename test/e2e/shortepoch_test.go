package e2e

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/bpf"
)

// testShortcutChurn: flows of br-int that change ten times per second take a busy connection few of its
// shortcuts. Each change ends all shortcuts of the node. The test counts how many packets pass OVS for
// each epoch. These are those of a round trip through OVS, which takes longer on a slow machine.
func testShortcutChurn(t *testing.T, r *shortcutRig) {
	const (
		changes  = 100
		interval = 100 * time.Millisecond
		// exchanges per second for which the share is given, and epochs per second, which is the agent's limit.
		exchanges, epochs = 1000, 10
		least             = 0.9 // share of the packets of each direction that bypass OVS
	)

	for _, inward := range []bool{false, true} {
		if _, err := r.settled(); err != nil {
			t.Fatal(err)
		}

		l := r.open(t, inward, true, false, time.Second/exchanges)
		r.short(t, l)
		before, raised, began := r.counts(t), r.epoch(t), time.Now()
		r.changeFlows(t, changes, interval)
		took, moved, raised := time.Since(began), r.counts(t), r.epoch(t)-raised
		report := l.stopped(t)

		for reason := range moved {
			moved[reason] -= before[reason]
		}

		if most := uint32(took/interval) + 2; raised < changes/10 || raised > most {
			t.Errorf("%s: %d changes of flows raised the epoch %d times, want %d to %d times", l.name, changes, raised, changes/10, most)
		}

		for _, way := range []struct {
			name     string
			by, past uint64
		}{
			{"of the pod", moved["out"], moved["out_cached"]},
			{"to the pod", moved["snat_port"] + moved["service"], moved["snat_cached"] + moved["service_cached"]},
		} {
			each := float64(way.by) / float64(raised)
			t.Logf("%s, packets %s: %d in %s, of these %.4f past OVS; %d epochs, each costs %.2f packets through OVS; %d lost", l.name, way.name,
				way.by+way.past, took.Round(time.Millisecond), float64(way.past)/float64(way.by+way.past), raised, each, report.Lost)

			if share := 1 - each*epochs/exchanges; share < least {
				t.Errorf("%s: an epoch costs %.1f packets %s through OVS: of %d per second %.3f bypass OVS, want %.2f", l.name, each, way.name, exchanges, share, least)
			}
		}
	}
}

// epoch returns the number of node1's epoch.
func (r *shortcutRig) epoch(t *testing.T) uint32 {
	t.Helper()

	c, err := bpf.ReadShortcutCounts(r.pin)
	if err != nil {
		t.Fatal(err)
	}

	return c.Epoch
}

// changeFlows changes flows of node1's br-int so many times, once per interval. Each change adds or
// deletes a flow that matches no packet. It does so by OpenFlow 1.0: ovs-ofctl takes too long to start
// on an emulated machine.
func (r *shortcutRig) changeFlows(t *testing.T, changes int, interval time.Duration) {
	t.Helper()

	c, err := (&net.Dialer{Timeout: time.Minute}).DialContext(t.Context(), "unix", filepath.Join(r.Node(1).RunDir, "br-int.mgmt"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	defer context.AfterFunc(t.Context(), func() { c.Close() })()

	if _, err := c.Write([]byte{1, 0, 0, 8, 0, 0, 0, 1}); err != nil { // OFPT_HELLO
		t.Fatal(err)
	}
	go func() { _, _ = io.Copy(io.Discard, c) }()

	tick := time.NewTicker(interval)
	defer tick.Stop()

	for i := range changes {
		<-tick.C

		command := uint16(0) // OFPFC_ADD
		if i%2 == 1 {
			command = 4 // OFPFC_DELETE_STRICT
		}

		if _, err := c.Write(flowMod(command)); err != nil {
			t.Fatal(err)
		}
	}
}

// flowMod returns OpenFlow 1.0's OFPT_FLOW_MOD for a flow of table 0 that drops Ethernet frames of an
// experimental type.
func flowMod(command uint16) []byte {
	const (
		length       = 72
		wildcards    = 0x3fffff &^ (1 << 4) // OFPFW_ALL without OFPFW_DL_TYPE
		experimental = 0x88b5
		none         = 0xffff
	)

	b := append(make([]byte, 0, length), 1, 14, 0, length, 0, 0, 0, 2)
	b = binary.BigEndian.AppendUint32(b, wildcards)
	b = append(b, make([]byte, 18)...) // port, addresses, VLAN
	b = binary.BigEndian.AppendUint16(b, experimental)

	b = append(b, make([]byte, 16+8)...)           // the rest of the match, and the cookie
	for _, v := range []uint16{command, 0, 0, 1} { // timeouts, priority
		b = binary.BigEndian.AppendUint16(b, v)
	}

	b = binary.BigEndian.AppendUint32(b, 0xffffffff) // no buffer
	b = binary.BigEndian.AppendUint16(b, none)

	return binary.BigEndian.AppendUint16(b, 0)
}
