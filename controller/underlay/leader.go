package underlay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
	"github.com/ovn-ebpf/ovn-ebpf/controller/cloud"
	"github.com/ovn-ebpf/ovn-ebpf/controller/election"
	"github.com/ovn-ebpf/ovn-ebpf/controller/openstack"
	"github.com/ovn-ebpf/ovn-ebpf/loop"
)

// compareEvery is the interval at which all objects are compared without a change.
const compareEvery = time.Minute

// leader is the state of this replica while it leads. syncNodes passes the wanted pool of each Node
// to pools, which makes it in Neutron, and publishes it by maps. Both add to problems, of which a
// reporter writes Events.
type leader struct {
	*controller
	term     *election.Term
	maps     *configMaps
	pools    *Pools
	problems *problems

	// Only the goroutine of syncNodes uses the fields below.
	published map[string]*cloud.Record // published by the last leader, and not passed to pools yet
	wanted    map[string]cloud.Pool    // the last pool of each node that was passed to pools
}

// newLeader reads what the last leader has published. It waits for the API server, and for the
// namespace of the ConfigMaps, so it fails only when the context ends.
func (c *controller) newLeader(ctx context.Context, term *election.Term) (*leader, error) {
	l := &leader{controller: c, term: term, problems: newProblems(), wanted: map[string]cloud.Pool{}}
	l.maps = &configMaps{cluster: c.cfg.Cluster, client: c.client, hold: term.Hold, log: c.log}

	wait := func(why string) { c.status.waitFor(&c.status.begin, why, c.log) }

	err := loop.Insist(ctx, wait, func() (err error) {
		l.published, err = l.maps.read(ctx)
		return err
	})
	if err != nil {
		return nil, err
	}

	l.pools, err = NewPools(Options{
		Client:  permitted{c.neutron, term.Hold},
		Workers: c.cfg.Workers,
		Resync:  resync,
		Retry:   retry,
		Backoff: backoff,
		Publish: l.maps.publish,
		Report:  func(node string, list []cloud.Problem) { l.problems.set(node, ofPool, list) },
		Log:     c.log,
	})

	return l, err
}

// permitted is a Neutron that calls permit before each request that changes something, and again
// right before the request is sent, because it may have waited for its turn.
type permitted struct {
	Neutron
	permit func(context.Context) error
}

// Do implements Neutron.
func (p permitted) Do(ctx context.Context, step cloud.Step) (cloud.Result, error) {
	if err := p.permit(ctx); err != nil {
		return cloud.Result{}, fmt.Errorf("wait for permission: %w", err)
	}

	return p.Neutron.Do(openstack.WithPermit(ctx, p.permit), step)
}

// run serves pools until the context ends. Each of its loops compares all of its objects, after a
// change of them and every compareEvery.
func (l *leader) run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	reporter := newReporter(l.writeEvent)

	group.Go(func() error { return l.pools.Run(ctx) })
	group.Go(func() error {
		return loop.Run(ctx, loop.Options{
			Name:   "nodes",
			Wake:   l.objects.nodesChanged,
			Resync: compareEvery,
			Log:    l.log,
			Apply:  l.syncNodes,
		})
	})
	group.Go(func() error {
		return loop.Run(ctx, loop.Options{
			Name:   "events",
			Wake:   l.problems.changed,
			Resync: compareEvery,
			Log:    l.log,
			Apply: func(ctx context.Context) error {
				return reporter.reportProblems(ctx, l.problems.list(), time.Now())
			},
		})
	})
	group.Go(func() error {
		return loop.Run(ctx, loop.Options{
			Name:   "network policies",
			Wake:   l.objects.policiesChanged,
			Resync: compareEvery,
			Log:    l.log,
			Apply: func(ctx context.Context) error {
				return reporter.reportUnserved(ctx, list[*networkingv1.NetworkPolicy](l.objects.policies))
			},
		})
	})
	group.Go(func() error {
		return loop.Run(ctx, loop.Options{
			Name:   "ConfigMaps",
			Wake:   l.objects.mapsChanged,
			Resync: compareEvery,
			Log:    l.log,
			Apply: func(ctx context.Context) error {
				return l.maps.restore(ctx, list[*corev1.ConfigMap](l.objects.maps))
			},
		})
	})

	return group.Wait()
}

// syncNodes passes the wanted pool of each Node to pools, and releases the pools of deleted Nodes.
func (l *leader) syncNodes(ctx context.Context) error {
	nodes := list[*corev1.Node](l.objects.nodes)
	slices.SortFunc(nodes, func(a, b *corev1.Node) int { return cmp.Compare(a.Name, b.Name) })

	pods := l.objects.podsByNode()
	exists := map[string]bool{}

	taken := cloud.TakenVIFs(nodes, l.maps.vif)
	for _, n := range nodes {
		exists[n.Name] = true
		if p, isTaken := taken[n.Name]; isTaken {
			l.problems.set(n.Name, ofNode, []cloud.Problem{p})
			continue
		}

		l.syncNode(n, pods[n.Name])
	}

	var errs []error

	for _, name := range l.nodesWithPool() {
		if !exists[name] {
			errs = append(errs, l.release(ctx, name))
		}
	}

	return errors.Join(errs...)
}

// syncNode passes the wanted pool of a Node to pools. If the Node has malformed values, or its
// agent has not announced the VIF, it keeps the pool that it has.
func (l *leader) syncNode(n *corev1.Node, pods int) {
	pool, err := cloud.NodePool(l.plan, n, pods)

	var trouble *cloud.Problem
	switch {
	case errors.As(err, &trouble):
		l.problems.set(n.Name, ofNode, []cloud.Problem{*trouble})
		return
	case errors.Is(err, annotation.ErrNotSet):
		l.problems.set(n.Name, ofNode, nil)
		return
	}

	l.problems.set(n.Name, ofNode, nil)

	if last, ok := l.wanted[n.Name]; ok && reflect.DeepEqual(last, pool) {
		return
	}

	l.pools.Set(pool, l.published[n.Name])
	delete(l.published, n.Name)
	l.wanted[n.Name] = pool
}

// nodesWithPool returns the nodes that have a pool.
func (l *leader) nodesWithPool() []string {
	nodes := slices.AppendSeq(slices.Collect(maps.Keys(l.published)), maps.Keys(l.wanted))
	slices.Sort(nodes)

	return slices.Compact(nodes)
}

// release releases the pool of a deleted Node. It asks the API server first, because the informer
// may not have seen a new Node yet, whose pool the last leader has made.
func (l *leader) release(ctx context.Context, name string) error {
	_, err := l.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	switch {
	case err == nil:
		return fmt.Errorf("release pool of node %s: the Node exists, and is not listed yet", name)
	case !apierrors.IsNotFound(err):
		return fmt.Errorf("release pool of node %s: %w", name, err)
	}

	delete(l.wanted, name)

	after := l.cfg.ReleaseAfter
	if l.isAnnounced(l.maps.vif(name)) {
		after = 0
	}

	l.log.Info("the node is gone, its pool is released at once if its VM is gone, too",
		"node", name, "otherwise-after", after)
	l.problems.set(name, ofNode, nil)
	l.pools.Release(cloud.Pool{Config: l.plan, Node: name}, l.published[name], after)
	delete(l.published, name)

	return nil
}

// isAnnounced reports whether a Node announces the VIF. If the VIF is that of a deleted Node, the
// node was renamed.
func (l *leader) isAnnounced(vif string) bool {
	for _, p := range l.wanted {
		if vif != "" && p.VIF.ID == vif {
			return true
		}
	}

	return false
}
