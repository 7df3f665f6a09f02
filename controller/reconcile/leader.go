package reconcile

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

const leaseName = "ovn-ebpf-controller"

// Election says how replicas agree on who leads: by a Lease.
type Election struct {
	Identity, Namespace string
	// Lease is how long a leader that has gone silent keeps the others
	// waiting; it gives up itself after two thirds of that. 0: 15 s.
	Lease time.Duration
}

// elect leads whenever this replica is elected, until the context ends. A
// leader that stops on purpose gives the lease back once it has stopped.
func (l *Loop) elect(ctx context.Context) error {
	if l.election == nil {
		return l.lead(ctx)
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
	elector, err := leaderelection.NewLeaderElector(l.electorConfig(func(ctx context.Context) { elected <- ctx }))
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
			return l.lead(term)
		}
	})
	return group.Wait()
}

func (l *Loop) electorConfig(started func(context.Context)) leaderelection.LeaderElectionConfig {
	lease := l.election.Lease
	if lease == 0 {
		lease = 15 * time.Second
	}
	return leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: l.election.Namespace, Name: leaseName},
			Client:     l.client.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: l.election.Identity},
		},
		LeaseDuration: lease, RenewDeadline: lease * 2 / 3, RetryPeriod: lease * 2 / 15,
		ReleaseOnCancel: true, Name: leaseName,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: started,
			OnStoppedLeading: func() {},
			OnNewLeader:      func(identity string) { l.log.Info("leader", "identity", identity) },
		},
	}
}
