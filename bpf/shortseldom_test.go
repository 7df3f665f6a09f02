package bpf

import (
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// clearCells sets every cell of a map by CPU to zero.
func clearCells(m *ebpf.Map) error {
	zeros := make([]uint32, ebpf.MustPossibleCPU())
	for i := range m.MaxEntries() {
		if err := m.Put(i, zeros); err != nil {
			return err
		}
	}

	return nil
}

// Most packets of two kinds of connections are not observed: connections that are never answered, and
// connections whose shortcut has always ended when the next packet comes. When such a connection is
// answered in time, it becomes short within a few packets. TCP is observed until it has an entry,
// because it is always answered.
func TestShortcut_seldomTriedIfUseless(t *testing.T) {
	const packets, first, every = 100, 4, 8 // as ALL_TRIES and TRY_EVERY in learn.h

	for _, f := range []family{v4, v6} {
		udp, tcp := conn{f, protoUDP, 40000, 50000, 30}, conn{f, protoTCP, 40001, 50001, 30}
		r := newShortRig(t, verdict.Direct)
		r.must(t, func() error { // each CPU has cells of its own; the thread ends with the namespace
			_, err := toOneCPU()
			return err
		})

		observed := func(c conn, after func()) (n int) {
			t.Helper()

			for range packets {
				if _, number := r.fromPod(t, c.segment(true, true, flagACK, 64)); number != 0 {
					n++

					r.leave(t, number, c.segment(true, false, flagACK, 62))
				}

				after()
			}

			return n
		}
		becomesShort := func(c conn) {
			t.Helper()

			for range 2 * every {
				s, number := r.fromPod(t, c.segment(true, true, flagACK, 64))
				if s.reason == "out_cached" {
					return
				}

				r.leave(t, number, c.segment(true, false, flagACK, 62))
				r.arrive(t, c.segment(false, false, flagACK, 60))
			}

			t.Errorf("%s: not short after %d answered packets", f.name, 2*every)
		}
		few := first + (packets-first)/every
		began := time.Now()
		n := observed(udp, func() {})

		cells := int(time.Since(began)>>30) + 2 // they begin anew about once a second
		if most := cells*first + packets/every; n < few || n > most {
			t.Errorf("%s: %d of %d packets without an answer were observed, want %d to %d", f.name, n, packets, few, most)
		}

		if n := observed(tcp, func() {}); n != packets {
			t.Errorf("%s: %d of %d packets of TCP were observed", f.name, n, packets)
		}

		for _, c := range []conn{udp, tcp} {
			becomesShort(c)

			n := observed(c, func() {
				r.must(t, r.g.ForgetShortcuts) // as the end of the lease, before the answer and after it
				r.arrive(t, c.segment(false, false, flagACK, 60))
				r.must(t, r.g.ForgetShortcuts)
			})
			if n < few-1 || n > few+1 {
				t.Errorf("%s: %d of %d packets of a connection whose shortcut always ends were observed, want %d", f.name, n, packets, few)
			}

			becomesShort(c)

			if got, _ := r.fromPod(t, c.segment(true, true, flagACK, 64)); got.reason != "out_cached" {
				t.Errorf("%s: %q", f.name, got.reason)
			}

			r.must(t, r.g.ForgetShortcuts)
			r.arrive(t, c.segment(false, false, flagACK, 60))

			if _, number := r.fromPod(t, c.segment(true, true, flagACK, 64)); number == 0 {
				t.Errorf("%s: a connection that was short is not observed at once", f.name)
			}
		}
	}
}
