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
	batchSize   = 64
	syncBatch   = 256                  // of a full sync, where no event waits for a key
	coalesce    = 8 * time.Millisecond // northd recomputes for each transaction
	retryMin    = 50 * time.Millisecond
	retryMax    = 30 * time.Second
	resyncEvery = 10 * time.Minute
)

// Options configure a Loop.
type Options struct {
	Client   kubernetes.Interface // for leases and events
	Objects  rest.Interface       // for all objects, from NewClient
	DB       *nb.DB               // its Run is the caller's
	Plan     plan.Config
	Servers  func() services.ControlPlane // see plan.Cluster
	Subnets  []ipam.Subnet                // where nodes' subnets come from
	Election *election.Config             // nil: always leads
	Chassis  Southbound                   // nil: chassis stay
	First    bool                         // annotate pods as the first generation did, too
	Joined   bool                         // give a node a subnet when its agent has come, not before
	Busy     func(bool)                   // gets whether more than a few changes wait; may be nil
	Identity string                       // in the database's term; "": the election's
	Clock    func() time.Duration         // that the lease runs by; nil: election.BootClock
	Log      *slog.Logger
}

// Loop keeps the Northbound database equal to the cluster. Run must be called once.
type Loop struct {
	client     kubernetes.Interface
	objects    rest.Interface
	db         *nb.DB
	cluster    plan.Cluster
	election   *election.Config
	log        *slog.Logger
	events     record.EventRecorder // nil: events are dropped
	chassis    Southbound           // nil: chassis stay
	identity   string               // see Options.Identity
	clock      func() time.Duration // see Options.Clock
	first      bool                 // see Options.First
	pace       pace                 // the leader's
	allocation ipam.Settings
	source     // set before it leads
	account

	mu    sync.Mutex // guards queue
	queue workqueue.TypedRateLimitingInterface[plan.Key]
}

// account holds what readiness and metrics report of the work.
type account struct {
	status   status
	counts   counts
	lag      lag
	failures failures
}

// source is the API server, for requests that the leader sends without an informer.
type source struct {
	resources []resource
	informers []*informer.Informer // of the resources
	optional  []optional
	patcher   patcher
}

// New returns a loop that is not running. The database's loop must not run yet either.
func New(o Options) *Loop {
	l := &Loop{
		client:   o.Client,
		objects:  o.Objects,
		db:       o.DB,
		cluster:  plan.Cluster{Config: o.Plan, Servers: o.Servers},
		election: o.Election,
		log:      o.Log,
		chassis:  o.Chassis,
		first:    o.First,
		allocation: ipam.Settings{
			Subnets:     o.Subnets,
			JoinSubnets: o.Plan.JoinSubnets,
			Joined:      o.Joined,
			Log:         o.Log,
		},
		pace:     pace{reportBusy: o.Busy},
		identity: o.Identity,
		clock:    o.Clock,
	}
	if l.identity == "" && o.Election != nil {
		l.identity = o.Election.Identity
	}

	l.counts, l.lag, l.failures.keys = newCounts(), newLag(), map[plan.Key]failure{}
	l.db.OnChange(l.enqueue) // what others change or delete is put right at once

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
		wait, err := l.watch(ctx)
		if err != nil {
			return err
		}

		for _, o := range l.optional {
			go l.follow(ctx, o)
		}

		if wait() != nil {
			return nil // only when the context has ended
		}

		// Without an election this replica is never a standby. A standby would be ready now.
		l.status.set(func(s *status) { s.watching, s.leading = true, l.election == nil })
		l.log.Info("cluster listed", "nodes", len(l.cluster.Stores[plan.KindNode].List()),
			"pods", len(l.cluster.Stores[plan.KindPod].List()))

		return l.elect(ctx)
	})

	return group.Wait()
}

// everything returns the key whose reconciliation enqueues all other keys.
func everything() plan.Key { return plan.Key{} }

// enqueue queues a key for reconciliation. Without leadership it does nothing: a new leader begins
// with all keys.
func (l *Loop) enqueue(k plan.Key) {
	l.mu.Lock()
	defer l.mu.Unlock()

	if l.queue == nil {
		return
	}

	if k != everything() {
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

// lead reconciles until the context, that of the term, ends. If leadership is lost, it returns a
// LostError, and nothing more is written.
func (l *Loop) lead(ctx context.Context, held *election.Term) error {
	l.log.Info("leading")
	defer l.log.Info("no longer leading")

	l.pace.begin()
	defer l.pace.begin()

	t := &term{Term: held, loop: l}

	l.status.set(func(s *status) { s.leading, s.lost = true, nil })
	defer l.status.set(func(s *status) {
		s.leading, s.term, s.begun, s.synced, s.pending, s.allocator = false, 0, false, 0, 0, nil
	})

	// The term first: only this replica changes what is read after it.
	if err := t.begin(ctx); err != nil {
		return t.end(ctx)
	}

	allocator, err := l.recoverAllocator(ctx)
	if err != nil {
		return t.end(ctx) // only when the context has ended
	}

	l.status.set(func(s *status) { s.allocator = allocator })
	l.lag.reset()
	l.failures.reset()

	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[plan.Key](retryMin, retryMax)
	queue := workqueue.NewTypedRateLimitingQueue(limiter)

	stop := context.AfterFunc(ctx, queue.ShutDown)
	defer stop()

	l.setQueue(queue)
	defer l.setQueue(nil)

	l.cluster.ForgetAccounts() // a standby does not follow changes

	group, working := errgroup.WithContext(ctx)
	group.Go(func() error { return l.askForEverything(working) })
	group.Go(func() error { return l.checkChassis(working, t) })
	group.Go(func() error {
		return newWorker(l, t, allocator, queue).run(working)
	})

	if err := group.Wait(); err != nil {
		return err
	}

	return t.end(ctx)
}

// askForEverything enqueues a full sync now, after each new connection to the database, and at
// intervals.
func (l *Loop) askForEverything(ctx context.Context) error {
	select {
	case <-l.db.Connected(): // a connection from before: what comes now is its full sync
	default:
	}

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

// calmAfter is how long at most a batch must have waited before the loop counts as calm.
const calmAfter = 2 * time.Second

// pace calls a function when more than a batch of keys begins to wait, and when that ends. The zero
// value calls no function.
type pace struct {
	reportBusy   func(busy bool)
	reportedCalm bool      // as told last
	busy         time.Time // when more than a batch waited last
}

// begin is called by a new leader, which has all keys to reconcile.
func (p *pace) begin() { p.note(batchSize+1, time.Now()) }

// note records how many keys wait.
func (p *pace) note(waiting int, now time.Time) {
	if waiting > batchSize {
		p.busy = now
	}

	if calm := now.Sub(p.busy) > calmAfter; calm != p.reportedCalm && p.reportBusy != nil {
		p.reportedCalm = calm
		p.reportBusy(!calm)
	}
}
