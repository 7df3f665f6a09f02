package reconcile

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"

	"github.com/ovn-ebpf/ovn-ebpf/controller/ipam"
	"github.com/ovn-ebpf/ovn-ebpf/controller/nb"
	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
)

const (
	batchSize   = 64
	coalesce    = 10 * time.Millisecond // northd recomputes for each transaction
	retryMin    = 50 * time.Millisecond
	retryMax    = 30 * time.Second
	resyncEvery = 10 * time.Minute
)

// Options are what a Loop is made of.
type Options struct {
	Client   kubernetes.Interface
	DB       *nb.DB // its Run is the caller's
	Plan     plan.Config
	Subnets  []ipam.Subnet // where nodes' subnets come from
	Election *Election     // nil: always leads
	Log      *slog.Logger
}

// Loop reconciles. Run it once.
type Loop struct {
	client   kubernetes.Interface
	db       *nb.DB
	cluster  plan.Cluster
	election *Election
	log      *slog.Logger
	status   status
	counts   counts
	subnets  []ipam.Subnet
	events   record.EventRecorder

	mu    sync.Mutex // guards queue
	queue workqueue.TypedRateLimitingInterface[plan.Key]
}

// New returns a loop that is not running. The database's must not be yet.
func New(o Options) *Loop {
	l := &Loop{
		client: o.Client, db: o.DB, cluster: plan.Cluster{Config: o.Plan}, election: o.Election,
		log: o.Log, subnets: o.Subnets, counts: newCounts(), status: status{pending: -1},
	}
	l.db.OnChange(l.enqueue) // what others change or delete is put right at once
	return l
}

// Run watches, stands for election and, while it leads, reconciles, until the
// context ends.
func (l *Loop) Run(ctx context.Context) error {
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	defer broadcaster.Shutdown()
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: l.client.CoreV1().Events("")})
	l.events = broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "ovn-ebpf-controller"})

	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return l.probe(ctx) })
	group.Go(func() error {
		wait, err := l.watch(ctx)
		if err != nil {
			return err
		}
		if wait() != nil {
			return nil // only when the context has ended
		}
		l.status.set(func(s *status) { s.watching = true })
		l.log.Info("cluster listed", "nodes", len(l.cluster.Nodes.List()), "pods", len(l.cluster.Pods.List()))
		return l.elect(ctx)
	})
	return group.Wait()
}

// everything is the key whose reconciliation enqueues all others.
func everything() plan.Key { return plan.Key{} }

// enqueue notes that a key wants reconciling. Without leadership nothing is
// noted: to lead begins with everything.
func (l *Loop) enqueue(k plan.Key) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.queue != nil {
		l.queue.Add(k)
	}
}

func (l *Loop) setQueue(q workqueue.TypedRateLimitingInterface[plan.Key]) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.queue = q
}

// lead reconciles until the context ends.
func (l *Loop) lead(ctx context.Context) error {
	l.log.Info("leading")
	defer l.log.Info("no longer leading")
	l.status.set(func(s *status) { s.leading, s.pending = true, -1 })
	defer l.status.set(func(s *status) { s.leading, s.pending = false, -1 })
	books, err := l.openBooks(ctx)
	if err != nil {
		return nil // only when the context has ended
	}
	queue := workqueue.NewTypedRateLimitingQueue(
		workqueue.NewTypedItemExponentialFailureRateLimiter[plan.Key](retryMin, retryMax),
	)
	stop := context.AfterFunc(ctx, queue.ShutDown)
	defer stop()
	l.setQueue(queue)
	defer l.setQueue(nil)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return l.askForEverything(ctx) })
	group.Go(func() error {
		w := worker{Loop: l, books: books, queue: queue, pending: map[plan.Key]struct{}{}}
		return w.run(ctx)
	})
	return group.Wait()
}

// askForEverything enqueues a full sync now, after each new connection to the
// database, and now and then.
func (l *Loop) askForEverything(ctx context.Context) error {
	l.enqueue(everything())
	tick := time.NewTicker(resyncEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-l.db.Connected():
		case <-tick.C:
		}
		l.enqueue(everything())
	}
}

// report notes an error as an event on the object that it is about.
func (l *Loop) report(k plan.Key, reason string, err error) {
	switch k.Kind {
	case plan.KindNode:
		if n := l.cluster.Node(k.Name); n != nil {
			l.events.Event(n, corev1.EventTypeWarning, reason, err.Error())
		}
	case plan.KindPod:
		if p := l.cluster.Pod(k.Namespace, k.Name); p != nil {
			l.events.Event(p, corev1.EventTypeWarning, reason, err.Error())
		}
	case plan.KindService:
		if s := l.cluster.Service(k.Namespace, k.Name); s != nil {
			l.events.Event(s, corev1.EventTypeWarning, reason, err.Error())
		}
	}
}

// transient says whether an error is the fault of a connection, not of the key.
func transient(err error) bool {
	var api *apiError
	return errors.Is(err, nb.ErrNotConnected) || errors.As(err, &api)
}

// apiError is an error of a call to the API server.
type apiError struct{ err error }

func (e *apiError) Error() string { return fmt.Sprint(e.err) }
func (e *apiError) Unwrap() error { return e.err }
