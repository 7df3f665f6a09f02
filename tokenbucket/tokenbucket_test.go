package tokenbucket

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

var limits = Limits{PerSecond: 512, AtOnce: 1024, TotalPerSecond: 1024}

// TestSet_sharesTheTotal checks that the namespaces that spend tokens share the total in equal parts,
// that a single one gets no more than its own rate, and that the others keep full buckets.
func TestSet_sharesTheTotal(t *testing.T) {
	for n, perSecond := range map[int]float64{1: 512, 2: 512, 4: 256, 20: 51.2} {
		synctest.Test(t, func(t *testing.T) {
			s := New(limits)
			for i := range n {
				s.Spend(fmt.Sprint("ns", i), 2*1024)
			}

			for i := range n {
				// 1,024 tokens are missing until the bucket is empty, and one more.
				got, want := s.Wait(fmt.Sprint("ns", i), 1).Seconds(), 1025/perSecond
				if got < want-0.001 || got > want+0.001 {
					t.Errorf("%d namespaces: ns%d waits %.3f s, want %.3f", n, i, got, want)
				}
			}

			if !s.IsFull("other") || s.Tokens("other") != 1024 || s.Wait("other", 1024) != 0 {
				t.Errorf("%d namespaces: a namespace without work has %g tokens", n, s.Tokens("other"))
			}
		})
	}
}

// TestSet_SetRates checks that other rates apply at once, and that what was spent stays spent.
func TestSet_SetRates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(limits)
		for _, namespace := range []string{"a", "b", "c", "d"} {
			s.Spend(namespace, 2*1024)
		}

		check := func(want time.Duration) {
			t.Helper()

			if got := s.Wait("a", 0); got < want-time.Millisecond || got > want+time.Millisecond {
				t.Errorf("a waits %s for an empty bucket, want %s", got, want)
			}
		}

		check(4 * time.Second) // 1,024 tokens, 256 per second
		s.SetRates(4*512, 4*1024)
		check(time.Second)
		time.Sleep(time.Second / 2)
		check(time.Second / 2)
		s.SetRates(64, 1024)
		check(8 * time.Second) // 512 tokens, the bucket's own rate

		if !s.IsFull("other") {
			t.Error("a namespace without work has no full bucket")
		}
	})
}

// TestSet_Spend_givesPartsBack checks that a bucket that is full again gives its part to the others.
func TestSet_Spend_givesPartsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(limits)
		for _, namespace := range []string{"a", "b", "c", "d", "busy"} {
			s.Spend(namespace, 4*1024)
		}

		time.Sleep(15 * time.Second) // a fifth of the total for each: 3,072 of 4,096 tokens

		if got := s.Tokens("a"); got < -1 || got > 1 {
			t.Errorf("after 15 s, a has %g tokens, want 0", got)
		}

		time.Sleep(6 * time.Second)
		s.Spend("busy", 2*1024)

		if s.IsFull("busy") || !s.IsFull("a") {
			t.Errorf("the bucket of a is full %t, that of busy %t", s.IsFull("a"), s.IsFull("busy"))
		}

		before := s.Tokens("busy")

		time.Sleep(time.Second)

		if got := s.Tokens("busy") - before; got < 511 || got > 513 {
			t.Errorf("alone, busy gets %g tokens per second, want 512", got)
		}
	})
}
