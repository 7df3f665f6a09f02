package reconcile

import (
	"k8s.io/client-go/util/workqueue"

	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
)

// clusterTurn is how many keys without a namespace follow each other: Nodes, and the port groups that
// policies of several namespaces share.
const clusterTurn = 8

// newQueue returns a queue of keys with backoff. It takes keys of all namespaces in turn (fairQueue).
func newQueue() workqueue.TypedRateLimitingInterface[plan.Key] {
	config := workqueue.TypedRateLimitingQueueConfig[plan.Key]{
		DelayingQueue: workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[plan.Key]{
			Queue: workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[plan.Key]{Queue: &fairQueue{}}),
		}),
	}

	return workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.NewTypedItemExponentialFailureRateLimiter[plan.Key](retryMin, retryMax), config)
}

// fairQueue has the keys that wait. The namespaces take turns: each gets one key taken, and keys without
// a namespace clusterTurn. So a key does not wait for the many keys of another namespace. The keys of a
// namespace keep their order.
//
// The workqueue calls the methods with its lock held. It adds no key that waits already.
type fairQueue struct {
	turns []*turn          // the namespaces with keys; the first is next
	of    map[string]*turn // by namespace
	len   int
}

// turn has the keys of a namespace.
type turn struct {
	namespace string
	keys      []plan.Key
	left      int // keys until it is the turn of the next namespace
}

// Touch does nothing: a key that is added again keeps its place.
func (q *fairQueue) Touch(plan.Key) {}

// Push adds a key.
func (q *fairQueue) Push(k plan.Key) {
	t := q.of[k.Namespace]
	if t == nil {
		t = &turn{namespace: k.Namespace}
		t.begin()

		if q.of == nil {
			q.of = map[string]*turn{}
		}

		q.of[k.Namespace] = t
		q.turns = append(q.turns, t)
	}

	t.keys = append(t.keys, k)
	q.len++
}

// begin begins the turn.
func (t *turn) begin() {
	t.left = 1
	if t.namespace == "" {
		t.left = clusterTurn
	}
}

// Len returns the number of keys.
func (q *fairQueue) Len() int { return q.len }

// Pop takes the next key. The queue must not be empty.
func (q *fairQueue) Pop() plan.Key {
	t := q.turns[0]
	k := t.keys[0]

	t.keys = t.keys[1:]
	t.left--
	q.len--

	switch {
	case len(t.keys) == 0:
		q.turns = q.turns[1:]
		delete(q.of, t.namespace)
	case t.left == 0:
		t.begin()
		q.turns = append(q.turns[1:], t)
	}

	return k
}
