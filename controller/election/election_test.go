package election_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/ovn-ebpf/ovn-ebpf/controller/election"
	"github.com/ovn-ebpf/ovn-ebpf/test/kube/kubetest"
)

const lease = 6 * time.Second

// replica is a process that stands for election.
type replica struct {
	t      *testing.T
	ahead  atomic.Int64 // of its clock
	late   atomic.Int64 // how often Hold has waited
	terms  chan term    // that have begun
	ended  chan error   // of Run
	finish func()
}

// term is what lead was called with. Its function returns when done is closed.
type term struct {
	context.Context
	*election.Term
	done chan struct{}
}

func newClient(t *testing.T) kubernetes.Interface {
	t.Helper()
	return kubernetes.NewForConfigOrDie(kubetest.Start(t).RestConfig())
}

func start(t *testing.T, client kubernetes.Interface, identity string) *replica {
	t.Helper()
	r := &replica{t: t, terms: make(chan term, 10), ended: make(chan error, 1)}
	ctx, cancel := context.WithCancel(context.Background())
	options := election.Options{
		Config: election.Config{Identity: identity, Namespace: "kube-system", Lease: lease}, Client: client,
		Clock: func() time.Duration { return election.BootClock() + time.Duration(r.ahead.Load()) },
		Late: func(late bool) {
			if late {
				r.late.Add(1)
			}
		},
		Log: slog.New(slog.NewTextHandler(t.Output(), nil)).With("replica", identity),
	}

	go func() {
		r.ended <- election.Run(ctx, options, func(ctx context.Context, held *election.Term) error {
			this := term{ctx, held, make(chan struct{})}
			r.terms <- this

			select {
			case <-ctx.Done():
			case <-this.done:
			}

			if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
				return fmt.Errorf("work: %w", cause)
			}

			return nil
		})
	}()

	r.finish = func() {
		cancel()

		if err := <-r.ended; err != nil {
			t.Errorf("%s: %v", identity, err)
		}

		r.finish = func() {}
	}

	t.Cleanup(func() { r.finish() })

	return r
}

func (r *replica) leads() term {
	r.t.Helper()

	select {
	case term := <-r.terms:
		if err := term.Hold(term); err != nil {
			r.t.Fatalf("a new term does not hold: %v", err)
		}

		return term
	case <-time.After(time.Minute):
		r.t.Fatal("the replica does not lead within a minute")
	}

	return term{}
}

// lost waits for the end of the term, which must be an accident.
func (r *replica) lost(old term) {
	r.t.Helper()

	select {
	case <-old.Done():
	case <-time.After(time.Minute):
		r.t.Fatal("the term does not end within a minute")
	}

	var lost *election.LostError
	if err := old.Hold(old); !errors.As(err, &lost) || lost.Reason != election.LostLease {
		r.t.Errorf("Hold of a term that is over: %v, want a LostError by the lease", err)
	}
}

// Only one of two replicas leads. It hands over when its context ends, and when its work is done.
func TestRun_leadsOneAtATime(t *testing.T) {
	client := newClient(t)
	one := start(t, client, "one")
	first := one.leads()
	two := start(t, client, "two")

	one.finish()

	second := two.leads()

	if err := first.Hold(first); !errors.Is(err, context.Canceled) {
		t.Errorf("Hold of the first replica after its end: %v, want it canceled", err)
	}

	close(second.done)

	third := two.leads() // the only replica left

	if err := second.Hold(second); err == nil {
		t.Error("the term of a lead that has returned holds")
	}

	if err := third.Hold(third); err != nil {
		t.Errorf("the next term does not hold: %v", err)
	}
}

// If the lease is not renewed in time, Hold waits. Once the lease can be another replica's, Hold
// ends the term. The replica then stands for election again.
func TestTerm_Hold(t *testing.T) {
	r := start(t, newClient(t), "one")
	first := r.leads()

	r.ahead.Add(int64(lease * 2 / 3))

	if err := first.Hold(first); err != nil || r.late.Load() == 0 {
		t.Errorf("Hold after two thirds of the lease: %v, waited %d times; want nil after a renewal", err, r.late.Load())
	}

	r.ahead.Add(int64(lease))

	if err := first.Hold(first); err == nil {
		t.Error("Hold after the whole lease: nil")
	}

	r.lost(first)
	r.leads()
}

// A term ends if another replica turns out to have the lease.
func TestRun_noticesAnotherHolder(t *testing.T) {
	client := newClient(t)
	r := start(t, client, "one")
	first := r.leads()

	leases := client.CoordinationV1().Leases("kube-system")
	for {
		l, err := leases.Get(t.Context(), election.LeaseName, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}

		other := "two"

		l.Spec.HolderIdentity = &other
		if _, err = leases.Update(t.Context(), l, metav1.UpdateOptions{}); err == nil {
			break // otherwise the replica has renewed it meanwhile
		}
	}

	r.lost(first)
	r.leads()
}

// An error of lead ends Run.
func TestRun_returnsErrorOfLead(t *testing.T) {
	want := errors.New("broken")

	err := election.Run(t.Context(), election.Options{
		Config: election.Config{Identity: "one", Namespace: "kube-system", Lease: lease}, Client: newClient(t),
		Log: slog.New(slog.DiscardHandler),
	}, func(context.Context, *election.Term) error { return want })
	if !errors.Is(err, want) {
		t.Errorf("Run: %v, want %v", err, want)
	}
}

// A term without election ends by Lose.
func TestWithoutElection(t *testing.T) {
	want := errors.New("superseded")
	err := election.WithoutElection(t.Context(), func(ctx context.Context, term *election.Term) error {
		if err := term.Hold(ctx); err != nil {
			t.Errorf("Hold: %v", err)
		}

		term.Lose("fenced", want)

		return term.Hold(ctx)
	})

	var lost *election.LostError
	if !errors.As(err, &lost) || lost.Reason != "fenced" || !errors.Is(err, want) {
		t.Errorf("%v, want a LostError", err)
	}
}
