package reconcile

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovn-ebpf/ovn-ebpf/controller/ipam"
	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
)

// TestWorker_finishesAllocations checks that a key whose annotations are written is finished also if the
// worker learns of it in the middle of a round, and that the key can be taken again then.
func TestWorker_finishesAllocations(t *testing.T) {
	queue := newQueue()
	defer queue.ShutDown()

	l := &Loop{}
	l.counts, l.lag = newCounts(), newLag()
	w := newWorker(l, &term{loop: l}, ipam.NewAllocator(ipam.Settings{}), queue)

	pod := plan.PodKey("ns", "p")
	queue.Add(pod)
	queue.Get()

	w.writes.written = []writtenAllocation{{key: pod, patch: &patch{object: &metav1.ObjectMeta{UID: "1"}}}}

	queue.Add(pod) // the event of the written annotation
	queue.Add(wakeKey())

	if n := queue.Len(); n != 1 {
		t.Fatalf("%d keys wait, want only the one that wakes the worker", n)
	}

	w.takeBatch(nil, 1)

	if left := w.writes.take(); len(left) > 0 || queue.Len() != 1 {
		t.Errorf("%v is left, and %d keys wait, want none and the pod", left, queue.Len())
	}
}
