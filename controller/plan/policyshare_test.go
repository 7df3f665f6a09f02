package plan_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"

	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
)

const beyondShare = "spec.egress: with its rules the policies of the namespace, oldest first, would have more selectors or flows than its share: many namespaces need more than 32 selectors or 2048 flows: the policy allows nothing in this direction"

// crowd returns nodes, and namespaces team0, team1 and so on with a pod and these policies each.
func crowd(nodes, namespaces int, policies func(namespace string) []*networkingv1.NetworkPolicy) []k8sruntime.Object {
	var out []k8sruntime.Object

	for i := range nodes {
		out = append(out, simNode(1+i))
	}

	for i := range namespaces {
		namespace := fmt.Sprint("team", i)
		out = append(out, labelled(namespace, nil), podAt(namespace, "pod", 1))

		for _, p := range policies(namespace) {
			out = append(out, p)
		}
	}

	return out
}

// TestBudgets_shares checks which policies of namespaces that need more than the basic share are
// closed.
func TestBudgets_shares(t *testing.T) {
	selectors := func(sizes ...int) func(string) []*networkingv1.NetworkPolicy {
		return func(namespace string) (out []*networkingv1.NetworkPolicy) {
			first := 0
			for i, n := range sizes {
				out = append(out, selecting(namespace, fmt.Sprint("p", i), int64(i), "", absent(nil, first, n)...))
				first += n
			}

			return out
		}
	}
	flows := func(sizes ...int) func(string) []*networkingv1.NetworkPolicy {
		return func(namespace string) (out []*networkingv1.NetworkPolicy) {
			for i, n := range sizes {
				out = append(out, costly(namespace, fmt.Sprint("p", i), int64(i), n))
			}

			return out
		}
	}

	for _, tc := range []struct {
		name    string
		objects []k8sruntime.Object
		want    string // the numbers of the policies that are closed
	}{
		{"four namespaces have 160 selectors each", crowd(1, 4, selectors(100, 60, 1)), "2"},
		{"five have 96", crowd(1, 5, selectors(50, 47, 46, 1)), "1 3"},
		{"eight, too", crowd(1, 8, selectors(50, 47, 46, 1)), "1 3"},
		{"seventeen have 48", crowd(1, 17, selectors(48, 1)), "1"},
		{"and many have 32 always", crowd(1, 70, selectors(32)), ""},
		{"in a cluster of eight nodes", crowd(8, 5, selectors(50, 47)), "1"},
		{"nine nodes have twice as many", crowd(9, 5, selectors(100, 60, 1)), "2"},
		{"two namespaces have all flows of their own bound", crowd(1, 2, flows(4096, 4096, 4096, 4096)), ""},
		{"five have 6,144", crowd(1, 5, flows(4096, 2050, 2048)), "1"},
		{"nine nodes have twice as many beyond the basic share", crowd(9, 5, flows(4096, 4096, 2050, 2048)), "2"},
		{"and many have 2,048 always", crowd(1, 70, flows(2000, 48)), ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := simCluster(t, tc.objects...)

			for _, o := range tc.objects {
				p, ok := o.(*networkingv1.NetworkPolicy)
				if !ok {
					continue
				}

				isClosed := slices.Contains(strings.Fields(tc.want), strings.TrimPrefix(p.Name, "p"))

				sides, event := allowing(t, c, p.Namespace, p.Name)
				if (sides == "") != isClosed || strings.Contains(event, beyondShare) != isClosed {
					t.Errorf("%s/%s allows %q, Event %q; closed should be %v", p.Namespace, p.Name, sides, event, isClosed)
				}
			}
		})
	}
}

// TestBudgets_affectOtherShares checks that a change affects the policies of other namespaces whose
// share it changes, and no policies of namespaces that need less than their share.
func TestBudgets_affectOtherShares(t *testing.T) {
	objects := crowd(8, 4, func(namespace string) []*networkingv1.NetworkPolicy {
		return []*networkingv1.NetworkPolicy{selecting(namespace, "old", 1, "", absent(nil, 0, 80)...), selecting(namespace, "young", 2, "", absent(nil, 80, 80)...)}
	})
	objects = append(objects, labelled("team9", nil), podAt("team9", "pod", 1), selecting("team9", "small", 1, "", absent(nil, 0, 32)...))

	c := simCluster(t, objects...)
	planOf(c)

	fifth := selecting("team9", "fifth", 2, "", absent(nil, 32, 1)...)
	node := simNode(9)

	policies := func(keys []plan.Key) string {
		var out []string

		for _, k := range keys {
			if k.Kind == plan.KindPolicy {
				out = append(out, k.Namespace+"/"+k.Name)
			}
		}

		return strings.Join(out, " ")
	}

	const others = "team0/young team1/young team2/young team3/young"

	for _, step := range []struct {
		name     string
		old, now k8sruntime.Object
		want     string
		closed   bool // the young policies, afterwards
	}{
		{"a fifth namespace needs more", nil, fifth, others + " team9/fifth", true},
		{"there is one more node", nil, node, others, false},
		{"and one less", node, nil, others, true},
		{"the fifth namespace needs less", fifth, nil, others + " team9/fifth", false},
	} {
		var old, now any

		if step.old != nil {
			old = step.old
			must(t, storeOf(c, step.old).Delete(step.old))
		}

		if step.now != nil {
			now = step.now
			must(t, storeOf(c, step.now).Add(step.now))
		}

		if got := policies(plan.Affected(c, old, now)); got != step.want {
			t.Errorf("%s: affects %q, want %q", step.name, got, step.want)
		}

		if sides, _ := allowing(t, c, "team0", "young"); (sides == "") != step.closed {
			t.Errorf("%s: the young policy allows %q", step.name, sides)
		}
	}
}
