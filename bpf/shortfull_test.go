package bpf

import (
	"errors"
	"net/netip"
	"runtime"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// flowsEnv is the number of connections that TestShortcut_fullTable opens. With a million the table
// has its default capacity.
const flowsEnv = "OVN_EBPF_SHORT_FLOWS"

// With many more connections than the table has room for, each new one still gets its shortcuts, the
// oldest ones pass OVS again, every packet is counted once, and no entry is wrong.
func TestShortcut_fullTable(t *testing.T) {
	const few, capacity = 10000, 1024

	flows := int(envUint(t, flowsEnv, few))
	r := newShortRig(t, verdict.Direct, func(o *Options) {
		if flows <= few {
			o.Shortcuts.Entries = capacity
		} else {
			o.Shortcuts.Entries = 0
		}
	})
	before := counts(t, r.pinDir)
	r.must(t, func() error { return r.onOneCPU(t, func() error { return r.openMany(flows) }) })
	got := deltas(before, counts(t, r.pinDir))

	total := uint64(flows)
	if got["snat_port"]+got["snat_cached"] != 2*total || got["out"] != 2*total {
		t.Errorf("of 2 packets of %d connections in each direction: %v", flows, got)
	}
	// A packet that the machine stops for 100 ms inside OVS teaches nothing.
	if least := total - total/100; got["snat_cached"] < least || got["out_cached"] < least {
		t.Errorf("of %d connections: %v", flows, got)
	}

	room := int(r.g.objs.Shortcuts.MaxEntries())

	c, err := ReadShortcutCounts(r.pinDir)
	if err != nil || c.Entries > room || c.Entries < room/2 || c.Mismatched != 0 {
		t.Errorf("room for %d: %+v, %v", room, c, err)
	}

	if least := 2*total - total/50 - uint64(room); c.Evicted() < least {
		t.Errorf("%d entries evicted, want at least %d", c.Evicted(), least)
	}

	for i := range 100 {
		first := manyConn(i).segment(false, false, flagACK, 60)
		if got := r.arrive(t, first); got.reason != "snat_port" {
			t.Errorf("connection %d of %d: by %s", i, flows, got.reason)
		}
	}
}

// manyConn returns a connection that no other number has.
func manyConn(i int) conn {
	f := v4
	f.remote = netip.AddrFrom4([4]byte{198, 18, byte(i >> 16), byte(i >> 8)})

	return conn{f, protoUDP, uint16(1024 + i&0xff), uint16(50000 + i&0xff), 20}
}

// onOneCPU runs f on one CPU, so that the slots are those of one ring.
func (r *shortRig) onOneCPU(t *testing.T, f func() error) error {
	t.Helper()
	runtime.LockOSThread()

	defer runtime.UnlockOSThread()

	all, err := toOneCPU()
	if err != nil {
		return err
	}

	return errors.Join(f(), unix.SchedSetaffinity(0, &all))
}

// toOneCPU moves the thread to one of its CPUs, and returns all of them.
func toOneCPU() (all unix.CPUSet, err error) {
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		return all, err
	}

	var one unix.CPUSet
	for cpu := 0; one.Count() == 0; cpu++ {
		if all.IsSet(cpu) {
			one.Set(cpu)
		}
	}

	return all, unix.SchedSetaffinity(0, &one)
}

// openMany opens connections and sends one more packet of the pod on each.
func (r *shortRig) openMany(flows int) error {
	run := func(program string, ifindex int, number uint32, frame []byte) error {
		_, err := r.tags[program].Run(&ebpf.RunOptions{
			Data: frame, DataOut: make([]byte, len(frame)+256), Context: skbuff{Ifindex: uint32(ifindex), CB: [5]uint32{0, 0, number}},
		})

		return err
	}
	pod, wire := r.g.opts.podProgram(), r.g.hooks()[0].program

	for i := range flows {
		c := manyConn(i)

		inside, outside, answer := c.segment(true, true, flagACK, 64), c.segment(true, false, flagACK, 62), c.segment(false, false, flagACK, 60)
		for range 2 {
			if err := run(pod, r.pod, 0, inside); err != nil {
				return err
			}

			number, err := r.newest()
			if err != nil {
				return err
			}

			if err := errors.Join(run("bridge_ingress", r.bridge, number, outside), run(wire, r.uplink, 0, answer)); err != nil {
				return err
			}
		}

		if err := run(pod, r.pod, 0, inside); err != nil {
			return err
		}
	}

	return nil
}

// newest returns the number of the slot that this CPU has claimed last.
func (r *shortRig) newest() (uint32, error) {
	var next []uint32
	if err := r.g.objs.NextSlot.Lookup(uint32(0), &next); err != nil {
		return 0, err
	}

	perCPU := r.g.objs.Slots.MaxEntries() / uint32(len(next))
	for cpu, n := range next {
		if n > 0 {
			return uint32(cpu)*perCPU + (n-1)%perCPU + 1, nil
		}
	}

	return 0, errors.New("no slot is taken")
}
