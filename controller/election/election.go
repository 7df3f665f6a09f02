package election

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"golang.org/x/sync/errgroup"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// LeaseName is the name of the Lease of all controllers.
const LeaseName = "ovn-ebpf-controller"

// DefaultDuration is the duration of the lease, if Config does not set it.
const DefaultDuration = 15 * time.Second

// Config names this replica and the Lease. Identity and Namespace must be set.
type Config struct {
	Identity  string // of this replica, unique among all replicas
	Namespace string // of the Lease
	// Lease is how long the other replicas wait for a silent leader. The leader itself gives up
	// after two thirds of it. 0: DefaultDuration.
	Lease time.Duration
}

// Identity returns the identity of this replica: the given one, or host name and process ID.
func Identity(given string) (string, error) {
	if given != "" {
		return given, nil
	}

	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("name this replica: %w", err)
	}

	return fmt.Sprintf("%s_%d", host, os.Getpid()), nil
}

// Duration returns the duration of the lease.
func (c Config) Duration() time.Duration { return cmp.Or(c.Lease, DefaultDuration) }

// Object returns the Lease, without its spec, as the subject of Events.
func (c Config) Object() *coordinationv1.Lease {
	return &coordinationv1.Lease{
		TypeMeta:   metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"},
		ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: LeaseName},
	}
}

// Options configure Run. Client and Log must be set.
type Options struct {
	Config
	Client kubernetes.Interface
	Clock  func() time.Duration  // measures the lease; nil: BootClock
	Leader func(identity string) // called when another replica leads, and when this one does; may be nil
	Late   func(late bool)       // called when Hold begins to wait, and when it ends; may be nil
	Log    *slog.Logger
}

// Run calls lead whenever this replica is elected, until the context ends. It returns nil then. The
// context of lead ends with the term, and lead must return soon after. When lead returns, Run
// releases the lease, and stands for election again. An error of lead ends Run, except a LostError.
func Run(ctx context.Context, o Options, lead func(context.Context, *Term) error) error {
	if o.Clock == nil {
		o.Clock = BootClock
	}

	for ctx.Err() == nil {
		if err := o.runOnce(ctx, lead); err != nil {
			return err
		}
	}

	return nil
}

// runOnce stands for election, and leads until the term is over. Two goroutines run until both are
// done: client-go's elector, which renews the lease, and the one that leads. When the latter
// returns, it ends the elector, which then releases the lease.
func (o Options) runOnce(ctx context.Context, lead func(context.Context, *Term) error) error {
	// The elector must keep the lease until lead has returned, so it does not end with ctx.
	electing, release := context.WithCancel(context.WithoutCancel(ctx))
	defer release()

	elected := make(chan context.Context, 1) // the elector's context of the term
	lease := o.lease()

	started := func(ctx context.Context) { elected <- ctx }

	elector, err := leaderelection.NewLeaderElector(o.electorConfig(lease, started))
	if err != nil {
		return fmt.Errorf("elect leader: %w", err)
	}

	over := make(chan struct{}) // closed when the elector has given up

	var group errgroup.Group
	group.Go(func() error {
		defer close(over)

		elector.Run(electing)

		return nil
	})
	group.Go(func() error {
		defer release() // after the work has stopped

		select {
		case <-ctx.Done():
			return nil
		case <-over:
			return nil
		case termCtx := <-elected:
			termCtx, cancel := context.WithCancel(termCtx)
			defer cancel()
			defer context.AfterFunc(ctx, cancel)() // the term also ends with ctx

			return ignoreLost(o.term(termCtx, lease, lead))
		}
	})

	return group.Wait()
}

// term calls lead for a term that ends when the lease is lost.
func (o Options) term(ctx context.Context, l *lease, lead func(context.Context, *Term) error) error {
	ctx, lose := context.WithCancelCause(ctx)
	defer lose(nil)

	t := &Term{lease: l, lose: lose, late: o.Late}
	l.onLoss(func(err error) { t.Lose(LostLease, err) })

	return lead(ctx, t)
}

// ignoreLost drops the error of a lost term, because the replica stands for election again.
func ignoreLost(err error) error {
	if lost := (*LostError)(nil); errors.As(err, &lost) {
		return nil
	}

	return err
}

// lease returns the lock for the elector.
func (o Options) lease() *lease {
	lock := &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: o.Namespace, Name: LeaseName},
		Client:     o.Client.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: o.Identity},
	}

	return newLease(lock, o.Duration(), o.Clock)
}

// electorConfig returns the settings of client-go's elector. The durations have the proportions of
// the usual 15 s, 10 s and 2 s. started is called when this replica is elected.
func (o Options) electorConfig(lock *lease, started func(context.Context)) leaderelection.LeaderElectionConfig {
	duration := lock.duration

	return leaderelection.LeaderElectionConfig{
		Lock: lock, LeaseDuration: duration, RenewDeadline: duration * 2 / 3, RetryPeriod: duration * 2 / 15,
		ReleaseOnCancel: true, Name: LeaseName,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: started,
			OnStoppedLeading: func() {},
			OnNewLeader: func(identity string) {
				o.Log.Info("leader", "identity", identity)

				if o.Leader != nil {
					o.Leader(identity)
				}
			},
		},
	}
}
