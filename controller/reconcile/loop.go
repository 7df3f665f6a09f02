package reconcile

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/apiserver"
	"github.com/ovn-ebpf/ovn-ebpf/cluster/informer"
	"github.com/ovn-ebpf/ovn-ebpf/controller/election"
	"github.com/ovn-ebpf/ovn-ebpf/controller/ipam"
	"github.com/ovn-ebpf/ovn-ebpf/controller/nb"
	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
	services "github.com/ovn-ebpf/ovn-ebpf/service"
)

const (
	batchSize     = 64                    // keys that are reconciled in one transaction
	syncBatchSize = 256                   // the same in a full sync, where no event waits for a key
	coalesce      = 8 * time.Millisecond  // between batches, because northd recomputes for each
	retryMin      = 50 * time.Millisecond // backoff of a key
	retryMax      = 30 * time.Second
	resyncEvery   = 10 * time.Minute // between full syncs
)

// Options configure a Loop.
type Options struct {
	Client   kubernetes.Interface // for leases and Events
	Objects  rest.Interface       // for all objects, from NewClient
	DB       *nb.DB               // the caller calls its Run
	Plan     plan.Config
	Servers  func() services.ControlPlane // see plan.Cluster
	Subnets  []ipam.Subnet                // the ranges of nodes' subnets
	Election *election.Config             // nil: always leads
	Chassis  Southbound                   // nil: chassis of deleted nodes are not removed
	Identity string                       // in the database's term; "": the election's
	Clock    func() time.Duration         // for the lease; nil: election.BootClock
	Log      *slog.Logger

	FirstAnnotation bool // also write pods' annotation of the first generation
	WaitForAgent    bool // give a node a subnet only after its agent has written its annotations

	// Busy is called with true when more than a batch of changes begins to wait, and with false
	// when that ends. It may be nil.
	Busy func(busy bool)
}

// Loop keeps the Northbound database equal to the cluster. Run must be called once. The other
// methods may be called at any time, from any goroutine.
type Loop struct {
	client          kubernetes.Interface
	objects         rest.Interface
	db              *nb.DB
	cluster         plan.Cluster
	election        *election.Config
	log             *slog.Logger
	events          record.EventRecorder // nil: Events are dropped
	chassis         Southbound           // see Options.Chassis
	identity        string               // see Options.Identity
	clock           func() time.Duration // see Options.Clock
	firstAnnotation bool                 // see Options.FirstAnnotation
	pace            pace                 // only the leader's worker uses it
	allocation      ipam.Settings
	source          // set by watch, before the loop can lead
	progress        // read by readiness and metrics

	mu    sync.Mutex                                     // guards queue
	queue workqueue.TypedRateLimitingInterface[plan.Key] // nil while this replica does not lead
}

// progress holds what readiness and metrics report of the work.
type progress struct {
	status   status
	counts   counts
	lag      lag
	failures failures
}

// source is the API server: the informers that fill the stores of the cluster, and the requests
// that the leader sends without an informer.
type source struct {
	resources []resource           // those that every API server has
	informers []*informer.Informer // of these resources, in the same order
	optional  []optional           // those that an API server may lack
	patcher   patcher
}

// New returns a loop that is not running. The database's loop must not run yet either.
func New(o Options) *Loop {
	l := &Loop{
		client:          o.Client,
		objects:         o.Objects,
		db:              o.DB,
		cluster:         plan.Cluster{Config: o.Plan, Servers: o.Servers},
		election:        o.Election,
		log:             o.Log,
		chassis:         o.Chassis,
		firstAnnotation: o.FirstAnnotation,
		allocation: ipam.Settings{
			Subnets:      o.Subnets,
			JoinSubnets:  o.Plan.JoinSubnets,
			WaitForAgent: o.WaitForAgent,
			Log:          o.Log,
		},
		pace:     pace{reportBusy: o.Busy},
		identity: o.Identity,
		clock:    o.Clock,
	}
	if l.identity == "" && o.Election != nil {
		l.identity = o.Election.Identity
	}

	l.counts = newCounts()
	l.lag = newLag()
	l.failures.keys = map[plan.Key]failure{}

	l.db.OnChange(l.enqueue) // changes by other clients are undone at once

	return l
}

// Run watches the cluster, takes part in the election and, while it leads, reconciles. It returns
// when the context ends.
func (l *Loop) Run(ctx context.Context) error {
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	defer broadcaster.Shutdown()

	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: l.client.CoreV1().Events("")})
	l.events = broadcaster.NewRecorder(plan.NewScheme(), corev1.EventSource{Component: apiserver.UserAgent})

	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return apiserver.Probe(ctx, l.client, l.status.setAPI, l.log) })
	group.Go(func() error { return l.reportUnready(ctx) })
	group.Go(func() error {
		waitForCluster, err := l.watch(ctx)
		if err != nil {
			return err
		}

		for _, o := range l.optional {
			go l.follow(ctx, o)
		}

		if waitForCluster() != nil {
			return nil // the context has ended
		}

		// Without an election this replica is never a standby. A standby would be ready now.
		l.status.set(func(s *status) { s.watching, s.leading = true, l.election == nil })
		l.log.Info("cluster listed", "nodes", len(l.cluster.Stores[plan.KindNode].List()),
			"pods", len(l.cluster.Stores[plan.KindPod].List()))

		return l.elect(ctx)
	})

	return group.Wait()
}

// fullSyncKey returns the key whose reconciliation enqueues all other keys.
func fullSyncKey() plan.Key { return plan.Key{} }

// wakeKey returns the key that wakes the worker, because allocations are written, or because pods may
// join more port groups.
func wakeKey() plan.Key { return plan.Key{Name: "wake"} }

// enqueue queues a key for reconciliation. Without leadership it does nothing: a new leader begins
// with all keys.
func (l *Loop) enqueue(k plan.Key) {
	l.mu.Lock()
	defer l.mu.Unlock()

	if l.queue == nil {
		return
	}

	if k != fullSyncKey() {
		l.lag.begin(k, time.Now())
	}

	l.queue.Add(k)
}

// acceptsKeys reports whether enqueue queues keys now.
func (l *Loop) acceptsKeys() bool {
	l.mu.Lock()
	defer l.mu.Unlock()

	return l.queue != nil
}

func (l *Loop) setQueue(q workqueue.TypedRateLimitingInterface[plan.Key]) {
	l.mu.Lock()
	defer l.mu.Unlock()

	l.queue = q
}

// lead reconciles until the context of the term ends. If leadership is lost, it returns a
// LostError, and nothing more is written.
func (l *Loop) lead(ctx context.Context, held *election.Term) error {
	l.log.Info("leading")
	defer l.log.Info("no longer leading")

	l.pace.reset()
	defer l.pace.reset()

	t := &term{Term: held, loop: l}

	l.status.set(func(s *status) { s.leading, s.lost = true, nil })
	defer l.status.set(func(s *status) {
		s.leading, s.term, s.allocator = false, 0, nil
		s.begun, s.synced, s.pending = false, 0, 0
	})

	// Claim the database before reading allocations, so that no other controller changes them
	// afterwards.
	if err := t.begin(ctx); err != nil {
		return t.end(ctx)
	}

	allocator, err := l.recoverAllocator(ctx)
	if err != nil {
		return t.end(ctx) // the context has ended
	}

	l.status.set(func(s *status) { s.allocator = allocator })
	l.lag.reset()
	l.failures.reset()

	if err := l.work(ctx, t, allocator); err != nil {
		return err
	}

	return t.end(ctx)
}

// work reconciles all keys, and then those that change, until the context ends. It owns the queue.
func (l *Loop) work(ctx context.Context, t *term, allocator *ipam.Allocator) error {
	queue := newQueue()

	stop := context.AfterFunc(ctx, queue.ShutDown)
	defer stop()

	l.setQueue(queue)
	defer l.setQueue(nil)

	// The accounts are old, because a standby does not follow changes. From here on enqueue does.
	l.cluster.ForgetAccounts()

	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return l.requestFullSyncs(ctx) })
	group.Go(func() error { return l.checkChassis(ctx, t) })
	group.Go(func() error { return newWorker(l, t, allocator, queue).run(ctx) })

	return group.Wait()
}

// requestFullSyncs enqueues a full sync now, after each new connection to the database, and at
// intervals.
func (l *Loop) requestFullSyncs(ctx context.Context) error {
	select {
	case <-l.db.Connected(): // an earlier connection: the full sync that is enqueued below is its first
	default:
	}

	l.enqueue(fullSyncKey())

	tick := time.NewTicker(resyncEvery)
	defer tick.Stop()

	for {
		select {
		case <-ctx.Done():
			return nil
		case <-l.db.Connected():
		case <-tick.C:
		}

		l.enqueue(fullSyncKey())
	}
}

// calmAfter is the time without more than a batch of waiting keys, after which the loop counts as
// calm.
const calmAfter = 2 * time.Second

// pace calls a function (Options.Busy) when more than a batch of keys begins to wait, and when that
// ends. The zero value calls no function.
type pace struct {
	reportBusy   func(busy bool)
	reportedCalm bool      // the last call of reportBusy had false
	lastBusy     time.Time // when more than a batch waited last
}

// reset makes the pace busy: a new leader has all keys to reconcile.
func (p *pace) reset() { p.update(batchSize+1, time.Now()) }

// update records the number of keys that wait.
func (p *pace) update(waiting int, now time.Time) {
	if waiting > batchSize {
		p.lastBusy = now
	}

	if calm := now.Sub(p.lastBusy) > calmAfter; calm != p.reportedCalm && p.reportBusy != nil {
		p.reportedCalm = calm
		p.reportBusy(!calm)
	}
}
