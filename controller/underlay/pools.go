package underlay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ovn-ebpf/ovn-ebpf/controller/cloud"
	"github.com/ovn-ebpf/ovn-ebpf/controller/openstack"
)

// Neutron is the network service of a project, as *openstack.Client implements it. Errors are of
// package openstack.
type Neutron interface {
	// Observe returns what there is of a pool. VIFs are among it if vif is not nil.
	Observe(ctx context.Context, pool string, vif *openstack.PortFilter) (cloud.Observation, error)
	// Do executes a step of a plan. The result is for Observation.After.
	Do(ctx context.Context, step cloud.Step) (cloud.Result, error)
}

// Options are what Pools needs. Client, Publish, Report and Log must be set.
type Options struct {
	Client  Neutron
	Workers int           // nodes that are served at the same time; at least 1
	Resync  time.Duration // between two looks at a complete pool
	Retry   time.Duration // between two attempts against a quota or a refusal
	Backoff time.Duration // after a first error of another kind; doubled up to Retry
	// Publish tells a node of its pool; nil: that it has none any more, or never had one. It is
	// repeated after an error.
	Publish func(ctx context.Context, node string, r *cloud.Record) error
	// Report is called with the problems of a pool, among them lasting errors of requests, when
	// they have changed.
	Report func(node string, problems []cloud.Problem)
	Log    *slog.Logger
}

// Pools makes, repairs and releases the pools of nodes.
type Pools struct {
	o Options

	mu      sync.Mutex // guards the fields below
	nodes   map[string]*node
	changed chan struct{} // closed when there may be something to do
	paused  time.Time     // OpenStack has asked for no requests until then
}

// node is the state of one pool. While busy is set, the worker that set it owns all fields but
// pool, releasing, releaseAt, changedSince and observeAgain.
type node struct {
	pool         cloud.Pool
	releasing    bool      // the pool is to be released
	releaseAt    time.Time // when a pool is released although the node's VM exists
	changedSince bool      // pool, releasing or releaseAt have changed since the last turn
	observeAgain bool      // seen is to be observed again
	busy         bool

	seen      *cloud.Observation // nil: to be observed
	published *cloud.Record      // what was published last; nil: nothing
	planned   []cloud.Problem    // of the last plan without steps
	repair    *cloud.Problem     // of ports that are being repaired; it stays the same until the pool is complete
	refusal   *cloud.Problem     // of the last request; nil if it did not fail, or may succeed soon
	reported  []cloud.Problem
	failures  int       // of turns, in a row
	refused   time.Time // the first of the requests to OpenStack that failed in a row; zero: the last one did not
	nextTurn  time.Time // of the next turn

	status Status // after the last turn; guarded by mu
}

// Status is the state of the pool of a node.
type Status struct {
	Node        string
	Ports, Held int             // published; Ports without those that are held
	Pods        int             // that use ports
	Leaving     bool            // the pool is being released
	Problems    []cloud.Problem // of the last plan and the last request
	Err         error           // of the last turn
}

// NewPools returns Pools without nodes.
func NewPools(o Options) (*Pools, error) {
	if o.Workers < 1 || o.Resync <= 0 || o.Retry <= 0 || o.Backoff <= 0 {
		return nil, fmt.Errorf("make pools: workers %d, resync %v, retry %v, backoff %v: want more than 0",
			o.Workers, o.Resync, o.Retry, o.Backoff)
	}

	return &Pools{o: o, nodes: map[string]*node{}, changed: make(chan struct{})}, nil
}

// Set makes the pool the wanted one of its node. told is what was published for it before this
// process started; nil if there is nothing. A node that waits after an error goes on waiting.
func (p *Pools) Set(pool cloud.Pool, told *cloud.Record) {
	p.want(pool, told, func(n *node) { n.releasing = false })
}

// Release removes the node's pool: at once if its VIF does not exist or has no VM, and otherwise
// after the time, because the VM may come back as a Node. It needs only Config and Node of the
// pool.
func (p *Pools) Release(pool cloud.Pool, told *cloud.Record, after time.Duration) {
	p.want(pool, told, func(n *node) {
		n.releasing, n.releaseAt = true, time.Now().Add(after)
		n.observeAgain = true // the VM may be gone since the last look
	})
}

func (p *Pools) want(pool cloud.Pool, told *cloud.Record, change func(*node)) {
	p.mu.Lock()
	defer p.mu.Unlock()

	n := p.nodes[pool.Node]
	if n == nil {
		n = &node{published: told}
		p.nodes[pool.Node] = n
	}

	n.pool, n.changedSince = pool, true
	change(n)
	p.wake()
}

// Status returns the state of all pools, sorted by node.
func (p *Pools) Status() []Status {
	p.mu.Lock()
	defer p.mu.Unlock()

	var out []Status

	for _, n := range p.nodes {
		s := n.status
		s.Node, s.Pods, s.Leaving = n.pool.Node, n.pool.Pods, n.releasing
		out = append(out, s)
	}

	slices.SortFunc(out, func(a, b Status) int { return strings.Compare(a.Node, b.Node) })

	return out
}

// wake lets idle workers look again. The caller holds mu.
func (p *Pools) wake() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// Run serves the nodes until the context ends. It returns nil then.
func (p *Pools) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	for range p.o.Workers {
		group.Go(func() error {
			for ctx.Err() == nil {
				p.serve(ctx)
			}

			return nil
		})
	}

	return group.Wait()
}

// serve gives the neediest node one turn, or waits until one may be due.
func (p *Pools) serve(ctx context.Context) {
	n, t, wait, changed := p.take(time.Now())
	if n == nil {
		timer := time.NewTimer(wait)
		defer timer.Stop()

		select {
		case <-ctx.Done():
		case <-changed:
		case <-timer.C:
		}

		return
	}

	result, err := p.turn(ctx, n, t)
	p.put(n, t, result, err)
}

// turn is what a worker does with a node: its wishes at the time of take.
type turn struct {
	pool      cloud.Pool
	releasing bool
	releaseAt time.Time
}

// result is the result of a turn without an error.
type result int

const (
	more     result = iota // another step is possible now
	complete               // nothing is left to do before the next look
	waiting                // the pool is to be released at turn.releaseAt
)

// take returns the due node with the fewest free ports, or how long to wait for one.
func (p *Pools) take(now time.Time) (*node, turn, time.Duration, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()

	if pause := p.paused.Sub(now); pause > 0 {
		return nil, turn{}, pause, p.changed
	}

	var best *node

	wait := p.o.Resync
	for _, n := range p.nodes {
		switch {
		case n.busy:
		case n.nextTurn.After(now) && (!n.changedSince || n.failures > 0):
			wait = min(wait, n.nextTurn.Sub(now))
		case best == nil || n.hasPriorityOver(best):
			best = n
		}
	}

	if best == nil {
		return nil, turn{}, wait, p.changed
	}

	if best.observeAgain {
		best.seen = nil
	}

	best.busy, best.changedSince, best.observeAgain = true, false, false

	return best, turn{best.pool, best.releasing, best.releaseAt}, 0, p.changed
}

func (n *node) hasPriorityOver(o *node) bool {
	a, b := n.free(), o.free()
	return a < b || a == b && n.pool.Node < o.pool.Node
}

// free returns the free ports of a pool. One that is to be released is served after the others.
func (n *node) free() int {
	switch {
	case n.releasing:
		return 1 << 16
	case n.published == nil:
		return -n.pool.Pods
	}

	return n.published.Free(n.pool.Pods)
}

// put returns the node after its turn.
func (p *Pools) put(n *node, t turn, r result, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer p.wake()

	n.busy = false

	n.status = Status{Problems: n.problems(), Err: err}
	if n.published != nil {
		for _, l := range n.published.Lines {
			if l.Held {
				n.status.Held++
			} else {
				n.status.Ports++
			}
		}
	}

	now := time.Now()

	switch {
	case err != nil:
		n.nextTurn = now.Add(p.backoff(n, err))
	case r == more:
		n.nextTurn = time.Time{}
	case r == waiting:
		n.nextTurn = t.releaseAt
	case t.releasing && n.releasing:
		delete(p.nodes, t.pool.Node)
	default:
		n.nextTurn = now.Add(p.interval(n))
	}
}

// interval returns the time until the next look at a pool that has no steps left. Places that
// others occupy wait for the next regular look, because a retry would cost more than these places
// are worth.
func (p *Pools) interval(n *node) time.Duration {
	if slices.ContainsFunc(n.planned, func(p cloud.Problem) bool { return !p.Partial() }) {
		return p.o.Retry
	}

	return p.o.Resync
}

// mostPause bounds the pause that OpenStack can ask for.
const mostPause = 10 * time.Minute

// backoff returns how long a node waits after an error. If OpenStack has asked for a pause, all
// nodes wait. The caller holds mu.
func (p *Pools) backoff(n *node, err error) time.Duration {
	var e *openstack.Error
	if errors.As(err, &e) && e.RetryAfter > 0 {
		pause := min(e.RetryAfter, mostPause)
		if until := time.Now().Add(pause); until.After(p.paused) {
			p.paused = until
		}
	}

	kind := openstack.KindOf(err)
	if n.refusal != nil && (kind == openstack.Quota || kind == openstack.Refused) {
		return p.o.Retry
	}

	const most = 16 // doublings; an error that ended with the context has no failures

	return min(p.o.Retry, p.o.Backoff<<min(max(n.failures-1, 0), most))
}

// turn observes the pool if that is needed, executes the next step of its plan, and publishes.
func (p *Pools) turn(ctx context.Context, n *node, t turn) (result, error) {
	r, err := p.step(ctx, n, t)
	if ctx.Err() != nil {
		return r, err
	}

	if err != nil {
		n.seen = nil
		p.fail(n, t, err)

		return r, err
	}

	n.refusal, n.refused = nil, time.Time{}
	p.report(n, t)

	if err := p.publish(ctx, n, t, r); err != nil {
		if ctx.Err() == nil {
			p.fail(n, t, err)
		}

		return r, err
	}

	n.failures = 0

	return r, nil
}

// fail counts and reports an error of a turn.
func (p *Pools) fail(n *node, t turn, err error) {
	n.failures++

	var e *openstack.Error
	if errors.As(err, &e) {
		now := time.Now()
		if n.refused.IsZero() {
			n.refused = now
		}

		n.refusal = failure{err: e, in: err, since: n.refused, now: now}.problem(t.pool.Node)
	}

	p.report(n, t)
	p.o.Log.Warn("pool of node is not complete",
		"node", t.pool.Node, "error", err, "kind", openstack.KindOf(err).String())
}

func (p *Pools) step(ctx context.Context, n *node, t turn) (result, error) {
	resyncDue := n.failures == 0 && !n.nextTurn.IsZero() && !time.Now().Before(n.nextTurn)
	look := n.seen == nil || resyncDue

	if look {
		if err := p.observe(ctx, n, t); err != nil {
			return more, err
		}
	}

	if t.releasing && n.hasVM() && time.Now().Before(t.releaseAt) {
		n.seen, n.planned, n.repair = nil, nil, nil
		return waiting, nil
	}

	n.seen.Published = nil
	if n.published != nil {
		n.seen.Published = n.published.Lines
	}

	plan := n.plan(t)
	switch {
	case len(plan.Steps) == 0:
		n.planned, n.repair = plan.Problems, nil // problems of earlier plans change with each step
		return complete, nil
	case t.releasing:
		n.repair = nil
	case look && n.repair == nil: // only a look finds what others have changed
		n.repair = t.pool.Record(*n.seen).Repairs(t.pool.Node)
	}

	r, err := p.o.Client.Do(ctx, plan.Steps[0])
	if err != nil {
		return more, fmt.Errorf("%s: %w", plan.Steps[0], err)
	}

	p.o.Log.Debug("step of pool done", "node", t.pool.Node, "step", plan.Steps[0].String())
	seen := n.seen.After(plan.Steps[0], r)
	n.seen = &seen

	return more, nil
}

// hasVM reports whether the VIF that the node was told of was seen, and has a VM.
func (n *node) hasVM() bool {
	return slices.ContainsFunc(n.seen.VIFs, func(v cloud.Port) bool { return v.Device != "" })
}

func (n *node) plan(t turn) cloud.Plan {
	if t.releasing {
		return cloud.Release(t.pool.Config, t.pool.Node, *n.seen)
	}

	return t.pool.Plan(*n.seen)
}

func (p *Pools) observe(ctx context.Context, n *node, t turn) error {
	var vif *openstack.PortFilter

	switch {
	case t.releasing && (n.published == nil || n.published.VIF == ""):
	case t.releasing:
		vif = &openstack.PortFilter{ID: n.published.VIF}
	case t.pool.VIF.ID != "":
		vif = &openstack.PortFilter{ID: t.pool.VIF.ID}
	default:
		vif = &openstack.PortFilter{MAC: t.pool.VIF.MAC.String()}
	}

	seen, err := p.o.Client.Observe(ctx, t.pool.Name(), vif)
	if err != nil {
		return fmt.Errorf("observe pool of node %s: %w", t.pool.Node, err)
	}

	n.seen = &seen

	return nil
}

// problems returns those of the last plan and of the last request.
func (n *node) problems() []cloud.Problem {
	all := slices.Clip(n.planned)
	for _, p := range []*cloud.Problem{n.repair, n.refusal} {
		if p != nil {
			all = append(all, *p)
		}
	}

	return all
}

// report reports the problems of the pool if they have changed.
func (p *Pools) report(n *node, t turn) {
	problems := n.problems()
	if slices.Equal(problems, n.reported) {
		return
	}

	n.reported = problems
	p.o.Report(t.pool.Node, problems)
}

// publish publishes the pool if it has changed. A pool that is released has its record deleted at
// the end. It may also have a ConfigMap that could not be read, so nothing is known of it here.
func (p *Pools) publish(ctx context.Context, n *node, t turn, r result) error {
	if t.releasing {
		if r != complete {
			return nil
		}

		if err := p.o.Publish(ctx, t.pool.Node, nil); err != nil {
			return fmt.Errorf("publish release of node %s: %w", t.pool.Node, err)
		}

		n.published = nil

		return nil
	}

	record := t.pool.Record(*n.seen)
	if n.published != nil && record.Equal(*n.published) || n.published == nil && len(record.Lines) == 0 {
		return nil
	}

	if err := p.o.Publish(ctx, t.pool.Node, &record); err != nil {
		return fmt.Errorf("publish pool of node %s: %w", t.pool.Node, err)
	}

	n.published = &record

	return nil
}
