package reconcile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

const leaseName = "ovn-ebpf-controller"

const defaultLease = 15 * time.Second

// Election configures leader election by a Lease.
type Election struct {
	Identity, Namespace string
	// Lease is how long the other replicas wait for a silent leader. The leader itself gives up after
	// two thirds of it. 0: defaultLease.
	Lease time.Duration
}

// elect leads whenever this replica is elected, until the context ends. A leader that stops on
// purpose then releases the lease. Without an election it leads at once, and again when the
// database has lost its term. When another controller has claimed the database it returns an error:
// otherwise the two would take turns.
func (l *Loop) elect(ctx context.Context) error {
	if l.election == nil {
		for ctx.Err() == nil {
			var superseded *supersededError
			if err := l.lead(ctx, nil); errors.As(err, &superseded) {
				return fmt.Errorf("lead without election: %w: run one controller, or all with --leader-elect", err)
			}
		}
		return nil
	}
	for ctx.Err() == nil {
		if err := l.electOnce(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (l *Loop) electOnce(ctx context.Context) error {
	held, release := context.WithCancel(context.WithoutCancel(ctx))
	defer release()
	elected := make(chan context.Context, 1)
	lease := l.newLease()
	elector, err := leaderelection.NewLeaderElector(l.electorConfig(lease, func(ctx context.Context) { elected <- ctx }))
	if err != nil {
		return fmt.Errorf("elect leader: %w", err)
	}
	over := make(chan struct{})
	var group errgroup.Group
	group.Go(func() error {
		defer close(over)
		elector.Run(held)
		return nil
	})
	group.Go(func() error {
		defer release() // gives the lease back, after the work has stopped
		select {
		case <-ctx.Done():
			return nil
		case <-over:
			return nil
		case term := <-elected:
			term, cancel := context.WithCancel(term)
			defer cancel()
			defer context.AfterFunc(ctx, cancel)()
			return ignoreLost(l.lead(term, lease))
		}
	})
	return group.Wait()
}

// ignoreLost drops the error of a lost lease, for a replica that stands for election again.
func ignoreLost(err error) error {
	if lost := (*lostError)(nil); errors.As(err, &lost) {
		return nil
	}
	return err
}

func (l *Loop) newLease() *lease {
	lock := &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: l.election.Namespace, Name: leaseName},
		Client:     l.client.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: l.election.Identity},
	}
	return newLease(lock, cmp.Or(l.election.Lease, defaultLease), l.clock)
}

func (l *Loop) electorConfig(lock *lease, started func(context.Context)) leaderelection.LeaderElectionConfig {
	lease := lock.duration
	return leaderelection.LeaderElectionConfig{
		Lock: lock, LeaseDuration: lease, RenewDeadline: lease * 2 / 3, RetryPeriod: lease * 2 / 15,
		ReleaseOnCancel: true, Name: leaseName,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: started,
			OnStoppedLeading: func() {},
			OnNewLeader: func(identity string) {
				l.log.Info("leader", "identity", identity)
				l.status.set(func(s *status) { s.lost = nil }) // who leads now is known
			},
		},
	}
}
