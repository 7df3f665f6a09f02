package cloud_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/controller/cloud"
	"github.com/ovn-ebpf/ovn-ebpf/controller/openstack"
	"github.com/ovn-ebpf/ovn-ebpf/controller/underlay"
)

// nodes is what nodes are told.
type nodes struct {
	mu       sync.Mutex
	told     map[string]*cloud.Record
	history  []string // node and its lines, in order
	problems map[string][]cloud.Problem
	hook     func(node string, lines int)
}

func newNodes() *nodes {
	return &nodes{told: map[string]*cloud.Record{}, problems: map[string][]cloud.Problem{}}
}

func (n *nodes) note(change func()) {
	n.mu.Lock()
	defer n.mu.Unlock()

	change()
}

func (n *nodes) publish(_ context.Context, node string, r *cloud.Record) error {
	lines := -1

	n.note(func() {
		n.told[node] = r
		if r != nil {
			lines = len(r.Lines)
		}

		n.history = append(n.history, fmt.Sprint(node, " ", lines))
	})

	if n.hook != nil {
		n.hook(node, lines)
	}

	return nil
}

func (n *nodes) report(node string, problems []cloud.Problem) {
	n.note(func() { n.problems[node] = problems })
}

// until waits for the condition on what nodes are told.
func (n *nodes) until(t *testing.T, what string, met func() bool) {
	t.Helper()

	const poll = 50 * time.Millisecond
	for deadline := time.Now().Add(3 * time.Minute); ; time.Sleep(poll) {
		n.mu.Lock()
		ok, history := met(), fmt.Sprint(n.history, n.problems)
		n.mu.Unlock()

		if ok {
			return
		}

		if time.Now().After(deadline) {
			t.Fatalf("%s: not within 3 minutes: %s", what, history)
		}
	}
}

func (n *nodes) lines() int {
	const node = "node1"
	if n.told[node] == nil {
		return -1
	}

	return len(n.told[node].Lines)
}

// run runs Pools until stop is called.
func (p *project) run(n *nodes, workers int) (pools *underlay.Pools, stop func()) {
	p.t.Helper()

	pools, err := underlay.NewPools(underlay.Options{
		Client: p.client, Workers: workers, Resync: time.Hour, Retry: 2 * time.Second, Backoff: 200 * time.Millisecond,
		Publish: n.publish, Report: n.report, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		p.t.Fatal(err)
	}

	ctx, cancel := context.WithCancel(p.ctx)

	ended := make(chan error)
	go func() { ended <- pools.Run(ctx) }()

	stop = sync.OnceFunc(func() {
		cancel()

		if err := <-ended; err != nil {
			p.t.Error(err)
		}
	})
	p.t.Cleanup(stop)

	return pools, stop
}

// TestPoolsOutliveNeutron: a pool that is being made when Neutron dies is completed afterwards. A
// controller that takes over then writes nothing.
func TestPoolsOutliveNeutron(t *testing.T) {
	p := newProject(t)
	p.config.SubnetPool6 = ""
	pool := p.pool(p.vm("10.0.0.23"), 0)
	n := newNodes()

	var once sync.Once

	n.hook = func(_ string, lines int) {
		if lines == cloud.Batch {
			once.Do(func() {
				if err := lab.StopNeutron(); err != nil {
					t.Error(err)
				}
			})
		}
	}
	pools, stop := p.run(n, 2)
	pools.Set(pool, nil)
	n.until(t, "the first ports", func() bool { return n.lines() == cloud.Batch })

	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()

	for openstack.KindOf(func() error { _, err := p.client.Quotas(ctx); return err }()) != openstack.Away {
		if ctx.Err() != nil {
			t.Fatal("Neutron still answers")
		}
	}

	if err := lab.ResumeNeutron(ctx); err != nil {
		t.Fatal(err)
	}

	n.until(t, "the pool complete", func() bool { return n.lines() == 13 })
	p.same(pool, *n.told["node1"])
	stop()

	clear(p.calls)

	before := len(n.history)
	pools, _ = p.run(n, 2)
	other := pool
	other.Node, other.VIF.ID = "node0", "00000000-0000-0000-0000-000000000000" // its problem shows that turns are taken

	pools.Set(pool, n.told["node1"])
	pools.Set(other, nil)
	n.until(t, "the other node's problem", func() bool {
		return len(n.problems["node0"]) == 1 && n.problems["node0"][0].Reason == cloud.UnknownVIF && p.count("list trunks") >= 2
	})
	pools.Release(pool, n.told["node1"], 0)
	n.until(t, "the pool released", func() bool { return n.lines() == -1 })

	for _, call := range []string{"create network", "create subnet", "create ports", "create trunk", "add subports", "set security groups"} {
		if c := p.count(call); c > 0 {
			t.Errorf("a takeover made %d requests to %s", c, call)
		}
	}

	if want := []string{"node1 -1"}; fmt.Sprint(n.history[before:]) != fmt.Sprint(want) {
		t.Errorf("published %v, want %v", n.history[before:], want)
	}
}

func (p *project) count(call string) int {
	p.mu.Lock()
	defer p.mu.Unlock()

	return p.calls[call]
}

// TestPoolsReportQuota: a quota's problem is reported with what fits, and is over once there is
// room.
func TestPoolsReportQuota(t *testing.T) {
	p := newProject(t)
	p.config.SubnetPool6 = ""
	pool := p.pool(p.vm("10.0.0.24"), 0)
	p.portQuota(p.observe(pool, nil).Quotas.Ports.Used + 5) // with those of router and metadata

	n := newNodes()
	pools, _ := p.run(n, 1)
	pools.Set(pool, nil)
	n.until(t, "three ports and a problem", func() bool {
		return n.lines() == 3 && len(n.problems["node1"]) == 1 && n.problems["node1"][0].Reason == cloud.QuotaExceeded
	})
	p.portQuota(-1)
	n.until(t, "a complete pool without a problem", func() bool { return n.lines() == 13 && len(n.problems["node1"]) == 0 })
	pools.Release(pool, nil, 0)
	n.until(t, "the pool released", func() bool { return n.lines() == -1 })
}
