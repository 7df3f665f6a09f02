package underlay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/apiserver"
	"github.com/ovn-ebpf/ovn-ebpf/controller/cloud"
	"github.com/ovn-ebpf/ovn-ebpf/controller/election"
	"github.com/ovn-ebpf/ovn-ebpf/controller/openstack"
	"github.com/ovn-ebpf/ovn-ebpf/loop"
	"github.com/ovn-ebpf/ovn-ebpf/metric/endpoint"
)

// controller is a replica of the controller. While it leads, its leader serves the nodes
// (leader.go).
type controller struct {
	cfg     Config
	log     *slog.Logger
	client  kubernetes.Interface
	objects *objects
	counts  *counts
	status  status
	neutron Neutron      // set by connect, before this replica stands for election
	plan    cloud.Config // set by connect

	// While this replica leads, the state of its pools. Nil otherwise.
	pools    atomic.Pointer[Pools]
	problems atomic.Pointer[problems]
}

// Run runs the controller until ctx ends, and then returns nil. It waits for an API server, a
// Keystone or a Neutron that it cannot reach. It returns an error only for faults that waiting
// cannot repair.
func Run(ctx context.Context, cfg Config, log *slog.Logger) error {
	if err := cfg.Validate(); err != nil {
		return fmt.Errorf("check configuration: %w", err)
	}

	client, err := kubernetes.NewForConfig(apiserver.ControllerConfig(cfg.RestConfig))
	if err != nil {
		return fmt.Errorf("create API client: %w", err)
	}

	objects, err := newObjects(client, log)
	if err != nil {
		return err
	}

	c := &controller{cfg: cfg, log: log, client: client, objects: objects, counts: newCounts()}

	var listener net.Listener
	if cfg.MetricsAddr != "" {
		if listener, err = endpoint.Listen(cfg.MetricsAddr, cfg.MetricsTLS, log); err != nil {
			return err
		}

		log.Info("serving metrics", "address", listener.Addr().String())
	}

	if cfg.Begun != nil {
		cfg.Begun(func() string {
			if err := c.ready(); err != nil {
				return err.Error()
			}

			return ""
		})
	}

	return c.run(ctx, listener)
}

// run runs the parts until ctx ends.
func (c *controller) run(ctx context.Context, listener net.Listener) error {
	group, ctx := errgroup.WithContext(ctx)

	if listener != nil {
		pages := endpoint.Pages{
			Collectors: []prometheus.Collector{newCollector(c)},
			Ready:      c.ready,
			Failing:    c.failing,
			TLS:        c.cfg.MetricsTLS,
		}

		group.Go(func() error { return endpoint.Serve(ctx, listener, endpoint.Handler(pages)) })
	}

	group.Go(func() error { return apiserver.Probe(ctx, c.client, c.status.setAPI, c.log) })
	group.Go(func() error { return c.objects.run(ctx) })
	group.Go(func() error {
		if err := c.connect(ctx); err != nil || ctx.Err() != nil {
			return err
		}

		if !c.objects.synced(ctx) {
			return nil
		}

		c.status.set(func(s *status) { s.listed = true })

		return c.elect(ctx)
	})

	return group.Wait()
}

// connect connects to OpenStack. It waits while Keystone is away or refuses the credentials, and
// returns an error if clouds.yaml cannot be used.
func (c *controller) connect(ctx context.Context) error {
	open := c.cfg.Open
	if open == nil {
		open = func() (Neutron, string, error) {
			client, err := openstack.Open(ctx, c.cfg.options(c.counts))
			if err != nil {
				return nil, "", err
			}

			// Make a first request, to see that Neutron answers. It takes a second longer than
			// later ones.
			_, err = client.Quotas(ctx)

			return client, client.Project(), err
		}
	}

	var fatal error

	wait := func(why string) { c.status.waitFor(&c.status.cloud, why, c.log) }

	err := loop.Insist(ctx, wait, func() error {
		client, project, err := open()
		if err == nil {
			c.neutron, c.plan = client, c.cfg.plan(project)
			return nil
		}

		var request *openstack.Error
		if !errors.As(err, &request) && ctx.Err() == nil {
			fatal = err
			return nil // end Insist, because waiting does not help
		}

		return err
	})
	if err != nil {
		return nil // ctx has ended
	}

	return fatal
}

// elect leads whenever this replica is elected, until ctx ends.
func (c *controller) elect(ctx context.Context) error {
	return election.Run(ctx, election.Options{
		Config: c.cfg.Election, Client: c.client, Log: c.log,
		Leader: func(string) { c.status.set(func(s *status) { s.lost = nil }) },
		Late:   func(late bool) { c.status.set(func(s *status) { s.late = late }) },
	}, c.lead)
}

// lead serves the nodes until the context of the term ends.
func (c *controller) lead(ctx context.Context, term *election.Term) error {
	c.log.Info("leading")
	defer c.log.Info("no longer leading")

	c.status.set(func(s *status) { s.leading, s.lost = true, nil })
	defer c.status.set(func(s *status) { s.leading, s.begin = false, "" })

	l, err := c.newLeader(ctx, term)
	if err != nil {
		return c.end(ctx) // the context has ended
	}

	c.pools.Store(l.pools)
	defer c.pools.Store(nil)

	c.problems.Store(l.problems)
	defer c.problems.Store(nil)

	if err := l.run(ctx); err != nil {
		return err
	}

	return c.end(ctx)
}

// end returns nil if the context ended on purpose. If leadership was lost, it logs and returns the
// LostError.
func (c *controller) end(ctx context.Context) error {
	var lost *election.LostError
	if !errors.As(context.Cause(ctx), &lost) {
		return nil
	}

	c.log.Warn("leadership lost", "reason", lost.Reason, "error", lost.Err)
	c.counts.losses.WithLabelValues(lost.Reason).Inc()
	c.status.set(func(s *status) { s.lost = lost })

	return lost
}
