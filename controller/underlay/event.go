package underlay

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/apiserver"
	"github.com/ovn-ebpf/ovn-ebpf/cluster/event"
)

// The Event about each NetworkPolicy. The reasons of Events about Nodes are those of problems: see
// cloud.Reason.
const (
	reasonNotServed = "NotServed"
	textNotServed   = "network policies are not enforced in underlay mode"
)

// repeatEvery is the interval at which a problem that lasts is reported again. The API server
// forgets Events after an hour.
const repeatEvery = 30 * time.Minute

// reporter writes Events. It belongs to one term. reportProblems and reportUnserved may run
// concurrently, but each only once at a time.
type reporter struct {
	write    func(context.Context, event.Event) error
	reported map[nodeProblem]time.Time // of reportProblems: when each problem was reported last
	policies map[types.UID]bool        // of reportUnserved: NetworkPolicies that have an Event
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

		isTerminating := apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) // it takes no Events
		if err != nil && !isTerminating {
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
