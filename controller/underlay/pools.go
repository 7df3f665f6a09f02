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
	// Observe returns the state of a pool in Neutron. It includes VIFs only if vif is not nil.
	Observe(ctx context.Context, pool string, vif *openstack.PortFilter) (cloud.Observation, error)
	// Do executes a step of a plan. The result is for Observation.After.
	Do(ctx context.Context, step cloud.Step) (cloud.Result, error)
}

// Options configure Pools. All fields must be set.
type Options struct {
	Client  Neutron
	Workers int           // nodes that are served at the same time; at least 1
	Resync  time.Duration // between two observations of a complete pool
	Retry   time.Duration // between two attempts against a quota or a refusal
	Backoff time.Duration // after a first error of another kind; doubled up to Retry
	// Publish writes the record of a node's pool for the node, or deletes it if r is nil. Pools
	// calls it again after an error.
	Publish func(ctx context.Context, node string, r *cloud.Record) error
	// Report is called with all problems of a pool, including lasting errors of requests, when
	// they have changed.
	Report func(node string, problems []cloud.Problem)
	Log    *slog.Logger
}

// Pools makes, repairs and releases the pools of nodes. Set and Release say which pools are wanted.
// Workers (Run) then give turns to the nodes that are due, those with the fewest free ports first.
// In a turn, a worker takes a node, observes its pool if needed, executes one step of the pool's
// plan, publishes the result, and puts the node back with the time of its next turn:
//
//	Set, Release ─▶ due ─▶ take ─▶ runTurn: observe, step, publish ─▶ put ─▶ due, at nextTurn
//
// Its methods may be called concurrently.
type Pools struct {
	o Options

	mu          sync.Mutex // guards the fields below
	nodes       map[string]*node
	changed     chan struct{} // closed when a node may be due
	pausedUntil time.Time     // OpenStack has asked for no requests until then
}

// node is the state of one pool. Pools.mu guards the fields of the first group, and status. While
// busy is set, the worker that set it owns the others. Otherwise mu guards them, too.
type node struct {
	pool         cloud.Pool
	releasing    bool      // the pool must be released
	releaseAt    time.Time // when the pool is released although the node's VM exists
	changedSince bool      // pool, releasing or releaseAt have changed since the last turn began
	observeAgain bool      // the next turn must observe the pool
	busy         bool      // a worker has the node

	seen      *cloud.Observation // nil: the next turn must observe the pool
	published *cloud.Record      // what was published last; nil: nothing

	planProblems []cloud.Problem // of the last plan without steps
	repair       *cloud.Problem  // of ports in repair; it stays the same until the pool is complete
	refusal      *cloud.Problem  // of the last request; nil if it succeeded, or may succeed soon
	reported     []cloud.Problem // the argument of the last call of Report

	failures     int       // number of failed turns in a row
	refusedSince time.Time // when the first of the failed requests failed; zero: the last one succeeded
	nextTurn     time.Time // when the node is due; zero: now

	status Status // after the last turn; guarded by Pools.mu
}

// Status is the state of the pool of a node.
type Status struct {
	Node        string
	Ports, Held int             // numbers of published ports: usable ones, and held ones
	Pods        int             // number of pods that use ports
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

// Set makes the pool the wanted one of its node. published is the record of an earlier leader, or
// nil without one. If the node waits after an error, it continues to wait.
func (p *Pools) Set(pool cloud.Pool, published *cloud.Record) {
	p.change(pool, published, func(n *node) { n.releasing = false })
}

// Release removes the node's pool: at once if its VIF does not exist or has no VM, and otherwise
// after the time, because the VM may come back as a Node. It needs only Config and Node of the
// pool.
func (p *Pools) Release(pool cloud.Pool, published *cloud.Record, after time.Duration) {
	p.change(pool, published, func(n *node) {
		n.releasing, n.releaseAt = true, time.Now().Add(after)
		n.observeAgain = true // the VM may have been deleted since the last observation
	})
}

// change changes the node of a pool, which it adds if needed, and makes it due.
func (p *Pools) change(pool cloud.Pool, published *cloud.Record, apply func(*node)) {
	p.mu.Lock()
	defer p.mu.Unlock()

	n := p.nodes[pool.Node]
	if n == nil {
		n = &node{published: published}
		p.nodes[pool.Node] = n
	}

	n.pool, n.changedSince = pool, true
	apply(n)
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

// wake makes idle workers look for a due node. The caller holds mu.
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

// serve gives one turn to the due node with the fewest free ports, or waits until a node may be
// due.
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

	result, err := p.runTurn(ctx, n, t)
	p.put(n, t, result, err)
}

// turn has the fields of a node that Set and Release may change during its turn, as they were at
// its beginning.
type turn struct {
	pool      cloud.Pool
	releasing bool
	releaseAt time.Time
}

// result is the result of a turn without an error.
type result int

const (
	more     result = iota // another step is possible now
	complete               // nothing is left to do before the next observation
	waiting                // the pool must not be released before turn.releaseAt
)

// take returns the due node with the fewest free ports, and marks it as busy. If no node is due,
// it returns how long to wait, and a channel that is closed if one may be due earlier.
func (p *Pools) take(now time.Time) (*node, turn, time.Duration, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()

	if pause := p.pausedUntil.Sub(now); pause > 0 {
		return nil, turn{}, pause, p.changed
	}

	var best *node

	wait := p.o.Resync
	for _, n := range p.nodes {
		if n.busy { // another worker owns its fields
			continue
		}

		// A change makes a node due, except after an error.
		isDue := !n.nextTurn.After(now) || n.changedSince && n.failures == 0

		switch {
		case !isDue:
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

// hasPriorityOver orders due nodes: by free ports, then by name.
func (n *node) hasPriorityOver(o *node) bool {
	free, otherFree := n.free(), o.free()
	return free < otherFree || free == otherFree && n.pool.Node < o.pool.Node
}

// free returns the number of ports that pods can still take, which may be negative.
func (n *node) free() int {
	switch {
	case n.releasing:
		return 1 << 16 // more than any pool has: such pools are served last
	case n.published == nil:
		return -n.pool.Pods
	}

	return n.published.Free(n.pool.Pods)
}

// put stores the outcome of a node's turn, and when the node is due again.
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
		n.nextTurn = time.Time{} // now
	case r == waiting:
		n.nextTurn = t.releaseAt
	case t.releasing && n.releasing: // released, and not wanted again meanwhile
		delete(p.nodes, t.pool.Node)
	default:
		n.nextTurn = now.Add(p.interval(n))
	}
}

// interval returns the time until the next turn of a pool that has no steps left. If it only
// lacks ports whose address or tag is in use elsewhere, it is not retried early, because a retry
// would cost more than these ports are worth.
func (p *Pools) interval(n *node) time.Duration {
	if slices.ContainsFunc(n.planProblems, func(p cloud.Problem) bool { return !p.Partial() }) {
		return p.o.Retry
	}

	return p.o.Resync
}

// maxPause bounds the pause that OpenStack can ask for.
const maxPause = 10 * time.Minute

// backoff returns how long a node waits after an error. If OpenStack has asked for a pause, all
// nodes wait. The caller holds mu.
func (p *Pools) backoff(n *node, err error) time.Duration {
	var e *openstack.Error
	if errors.As(err, &e) && e.RetryAfter > 0 {
		pause := min(e.RetryAfter, maxPause)
		if until := time.Now().Add(pause); until.After(p.pausedUntil) {
			p.pausedUntil = until
		}
	}

	kind := openstack.KindOf(err)
	if n.refusal != nil && (kind == openstack.Quota || kind == openstack.Refused) {
		return p.o.Retry
	}

	// The first failure has no doubling. If the context has ended, the error was not counted, and
	// failures may be 0.
	const maxDoublings = 16

	return min(p.o.Retry, p.o.Backoff<<min(max(n.failures-1, 0), maxDoublings))
}

// runTurn observes the pool if that is needed, executes the next step of its plan, and
// publishes the result.
func (p *Pools) runTurn(ctx context.Context, n *node, t turn) (result, error) {
	r, err := p.step(ctx, n, t)
	if ctx.Err() != nil {
		return r, err
	}

	if err != nil {
		n.seen = nil // the request may have been executed
		p.fail(n, t, err)

		return r, err
	}

	n.refusal, n.refusedSince = nil, time.Time{}
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

// fail counts and logs an error of a turn, and reports it if it is a problem.
func (p *Pools) fail(n *node, t turn, err error) {
	n.failures++

	var e *openstack.Error
	if errors.As(err, &e) {
		now := time.Now()
		if n.refusedSince.IsZero() {
			n.refusedSince = now
		}

		n.refusal = failure{err: e, in: err, since: n.refusedSince, now: now}.problem(t.pool.Node)
	}

	p.report(n, t)
	p.o.Log.Warn("pool of node is not complete",
		"node", t.pool.Node, "error", err, "kind", openstack.KindOf(err).String())
}

// step observes the pool if that is needed, and executes the first step of its plan.
func (p *Pools) step(ctx context.Context, n *node, t turn) (result, error) {
	// The interval after a complete pool has passed.
	isResync := n.failures == 0 && !n.nextTurn.IsZero() && !time.Now().Before(n.nextTurn)
	mustObserve := n.seen == nil || isResync

	if mustObserve {
		if err := p.observe(ctx, n, t); err != nil {
			return more, err
		}
	}

	if t.releasing && n.hasVM() && time.Now().Before(t.releaseAt) {
		n.seen, n.planProblems, n.repair = nil, nil, nil
		return waiting, nil
	}

	n.seen.Published = nil
	if n.published != nil {
		n.seen.Published = n.published.Lines
	}

	plan := n.plan(t)
	switch {
	case len(plan.Steps) == 0:
		// Problems of plans with steps are not reported, because they change with each step.
		n.planProblems, n.repair = plan.Problems, nil
		return complete, nil
	case t.releasing:
		n.repair = nil
	case mustObserve && n.repair == nil: // only an observation finds what others have changed
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

// hasVM reports whether the VIF with which the pool was published exists, and has a VM.
func (n *node) hasVM() bool {
	return slices.ContainsFunc(n.seen.VIFs, func(v cloud.Port) bool { return v.Device != "" })
}

// plan returns the plan of a turn.
func (n *node) plan(t turn) cloud.Plan {
	if t.releasing {
		return cloud.Release(t.pool.Config, t.pool.Node, *n.seen)
	}

	return t.pool.Plan(*n.seen)
}

// observe observes the pool of a node in Neutron. It selects the VIF by its ID, or by its MAC if
// the agent does not know the ID. A released pool has the VIF with which it was published.
func (p *Pools) observe(ctx context.Context, n *node, t turn) error {
	var vif *openstack.PortFilter

	switch {
	case t.releasing && (n.published == nil || n.published.VIF == ""): // no VIF is known
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

// problems returns the problems of the last plan without steps, of a repair and of the last
// request.
func (n *node) problems() []cloud.Problem {
	all := slices.Clip(n.planProblems)
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

// publish publishes the pool if it has changed. When a pool is released, publish deletes its
// record at the end, even if published is nil: the record of an earlier leader may be malformed.
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
