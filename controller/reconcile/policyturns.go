package reconcile

import "github.com/ovn-ebpf/ovn-ebpf/controller/plan"

// policyTurns has policies and selectors that wait. The next turn goes to the namespace with the fewest
// written units. So a namespace whose policies change now and then does not wait for those whose policies
// change all the time. The keys of a namespace keep their order.
type policyTurns struct {
	namespaceOf func(plan.Key) string
	keys        map[string][]plan.Key // by namespace, which has at least one key
	// written has the units of each namespace. Those of a namespace without keys are forgotten as soon as
	// they are not more than least.
	written map[string]int
	// least is what the last namespace that had a turn had before it. A namespace without keys falls
	// back to it at most, so that it does not save up turns.
	least int
}

func newPolicyTurns(namespaceOf func(plan.Key) string) policyTurns {
	return policyTurns{namespaceOf: namespaceOf, keys: map[string][]plan.Key{}, written: map[string]int{}}
}

// push adds a key.
func (t *policyTurns) push(k plan.Key) {
	namespace := t.namespaceOf(k)

	if len(t.keys[namespace]) == 0 {
		t.written[namespace] = max(t.written[namespace], t.least)
	}

	t.keys[namespace] = append(t.keys[namespace], k)
}

// pop takes the next key. There must be one.
func (t *policyTurns) pop() plan.Key {
	var next string

	for namespace, units := range t.written {
		switch {
		case len(t.keys[namespace]) == 0:
			if units <= t.least {
				delete(t.written, namespace)
			}
		case len(t.keys[next]) == 0 || units < t.written[next] || units == t.written[next] && namespace < next:
			next = namespace
		}
	}

	keys := t.keys[next]
	t.least = t.written[next]

	if len(keys) == 1 {
		delete(t.keys, next)
	} else {
		t.keys[next] = keys[1:]
	}

	return keys[0]
}

// charge counts the units that are written for a key. A key without units counts as one.
func (t *policyTurns) charge(k plan.Key, units int) {
	namespace := t.namespaceOf(k)
	t.written[namespace] = max(t.written[namespace], t.least) + max(1, units)
}
