package underlay

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/apiserver"
	"github.com/ovn-ebpf/ovn-ebpf/cluster/event"
	"github.com/ovn-ebpf/ovn-ebpf/controller/cloud"
	"github.com/ovn-ebpf/ovn-ebpf/loop"
)

// The Event about a NetworkPolicy.
const (
	reasonNotServed = "NotServed"
	textNotServed   = "network policies are not enforced in underlay mode"
)

// repeatEvery is the interval at which a problem that lasts is reported again. The API server
// forgets Events after an hour.
const repeatEvery = 30 * time.Minute

// Sources of problems of a node.
const (
	ofNode = iota // malformed or conflicting values of its Node
	ofPool        // the plan of its pool, and requests for it
)

// problems has the problems of all nodes. Its methods may be called concurrently.
type problems struct {
	changed loop.Signal // triggered by set

	mu  sync.Mutex                     // guards all
	all map[string]*[2][]cloud.Problem // by node and source
}

func newProblems() *problems {
	return &problems{changed: loop.NewSignal(), all: map[string]*[2][]cloud.Problem{}}
}

// set replaces the problems of a source.
func (p *problems) set(node string, source int, list []cloud.Problem) {
	p.mu.Lock()
	defer p.mu.Unlock()

	bySource := p.all[node]
	if bySource == nil {
		if len(list) == 0 {
			return
		}

		bySource = &[2][]cloud.Problem{}
		p.all[node] = bySource
	}

	bySource[source] = list
	if len(bySource[ofNode])+len(bySource[ofPool]) == 0 {
		delete(p.all, node)
	}

	p.changed.Trigger()
}

// nodeProblem is a problem of a node.
type nodeProblem struct {
	node string
	cloud.Problem
}

// list returns all problems, sorted by node.
func (p *problems) list() []nodeProblem {
	p.mu.Lock()
	defer p.mu.Unlock()

	var out []nodeProblem

	for _, node := range slices.Sorted(maps.Keys(p.all)) {
		for _, problem := range slices.Concat(p.all[node][ofNode], p.all[node][ofPool]) {
			out = append(out, nodeProblem{node, problem})
		}
	}

	return out
}

// reporter writes Events. It belongs to one term and one goroutine.
type reporter struct {
	write    func(context.Context, event.Event) error
	reported map[nodeProblem]time.Time // when each problem was reported last
	policies map[types.UID]bool        // NetworkPolicies that have an Event
}

func newReporter(write func(context.Context, event.Event) error) *reporter {
	return &reporter{write: write, reported: map[nodeProblem]time.Time{}, policies: map[types.UID]bool{}}
}

// reportProblems writes an Event for each problem that is new, or was last reported repeatEvery
// ago. The Event is about the Node.
func (r *reporter) reportProblems(ctx context.Context, all []nodeProblem, now time.Time) error {
	var errs []error

	maps.DeleteFunc(r.reported, func(p nodeProblem, _ time.Time) bool { return !slices.Contains(all, p) })

	for _, p := range all {
		if last, ok := r.reported[p]; ok && now.Sub(last) < repeatEvery {
			continue
		}

		e := event.Event{About: event.Node(p.node), Reason: string(p.Reason), Message: p.Text}
		if err := r.write(ctx, e); err != nil {
			errs = append(errs, err)
			continue
		}

		r.reported[p] = now
	}

	return errors.Join(errs...)
}

// reportUnserved writes an Event about each NetworkPolicy that has none yet.
func (r *reporter) reportUnserved(ctx context.Context, all []*networkingv1.NetworkPolicy) error {
	slices.SortFunc(all, func(a, b *networkingv1.NetworkPolicy) int {
		return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name)
	})

	var errs []error

	exists := map[types.UID]bool{}
	for _, p := range all {
		exists[p.UID] = true
		if r.policies[p.UID] {
			continue
		}

		err := r.write(ctx, event.Event{
			About: corev1.ObjectReference{
				APIVersion: "networking.k8s.io/v1",
				Kind:       "NetworkPolicy",
				Namespace:  p.Namespace,
				Name:       p.Name,
				UID:        p.UID,
			},
			Reason: reasonNotServed, Message: textNotServed,
		})
		if err != nil && !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
			errs = append(errs, err)
			continue
		}

		r.policies[p.UID] = true
	}

	maps.DeleteFunc(r.policies, func(uid types.UID, _ bool) bool { return !exists[uid] })

	return errors.Join(errs...)
}

// writeEvent writes an Event once, if this replica may write now.
func (l *leader) writeEvent(ctx context.Context, e event.Event) error {
	if err := l.term.Hold(ctx); err != nil {
		return err
	}

	e.Component = apiserver.UserAgent

	return event.WriteOnce(ctx, l.client, e)
}
