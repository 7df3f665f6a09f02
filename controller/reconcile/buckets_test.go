package reconcile

import (
	"fmt"
	"testing"
	"time"
)

// TestBuckets_share checks that the namespaces that make OVN work share the total in equal parts, that
// a single one gets no more than its own rate, and that the others keep full buckets.
func TestBuckets_share(t *testing.T) {
	for n, want := range map[int]float64{1: unitsPerSecond, 2: unitsPerSecond, 4: totalPerSecond / 4, 20: totalPerSecond / 20} {
		var b buckets
		for i := range n {
			b.spend(fmt.Sprint("ns", i), 2*unitsAtOnce)
		}

		for i := range n {
			// 1,024 units are missing until the bucket is empty, and one more.
			got := b.wait(fmt.Sprint("ns", i), 1).Seconds()
			if least, most := unitsAtOnce/want-0.5, (unitsAtOnce+1)/want; got < least || got > most {
				t.Errorf("%d namespaces: ns%d waits %.2f s, want %.2f to %.2f", n, i, got, least, most)
			}
		}

		if !b.isFull("other") || b.tokens("other") != unitsAtOnce || b.wait("other", unitsAtOnce) != 0 {
			t.Errorf("%d namespaces: a namespace without changes has %g units", n, b.tokens("other"))
		}
	}
}

// TestBuckets_forget checks that a bucket that is full again gives its part back to the others.
func TestBuckets_forget(t *testing.T) {
	var b buckets
	for _, namespace := range []string{"a", "b", "c", "d"} {
		b.spend(namespace, 1) // full again after some milliseconds
	}

	b.spend("busy", 4*unitsAtOnce)

	for deadline := time.Now().Add(10 * time.Second); !b.isFull("a"); {
		b.spend("busy", 1)

		if time.Now().After(deadline) {
			t.Fatal("the bucket of a is never full again")
		}

		time.Sleep(time.Millisecond)
	}

	b.spend("busy", 1)

	if limit := float64(b.used["busy"].Limit()); len(b.used) != 1 || limit != unitsPerSecond {
		t.Errorf("%d buckets, and the busy namespace gets %g per second, want one with %d", len(b.used), limit, unitsPerSecond)
	}
}
