package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"syscall"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/bench/results"
)

// latencyMetric is the histogram of the time from the first event of an owner to its transaction.
const latencyMetric = "ovnkube_controller_event_latency_seconds"

// bench is the test bench: the simulated cluster, and the processes that run at the moment. The API
// server runs all the time. Each number of pods has new databases, northd and replicas.
type bench struct {
	config
	out     io.Writer // progress
	cluster *cluster
	api     *api
	ovn     *ovn
	leader  *replica  // the replica that leads, or the only one; nil: none runs
	starts  int       // replicas so far
	node    *realNode // nil while it does not run
}

// say writes a line of progress.
func (b *bench) say(format string, args ...any) {
	fmt.Fprintf(b.out, "%s "+format+"\n", append([]any{time.Now().Format("15:04:05")}, args...)...)
}

// nextReplica starts another replica.
func (b *bench) nextReplica() (*replica, error) {
	b.starts++

	return startReplica(replicaOptions{
		kubeconfig: b.api.kubeconfig, nb: b.ovn.endpoint(), identity: fmt.Sprint("replica-", b.starts), dir: b.dir, profile: b.profile,
	})
}

// used returns the CPU seconds of every process since its start, by the process's name.
func (b *bench) used() (map[string]float64, error) {
	pids := map[string]int{"northd": b.ovn.northd.PID, "ovsdb-server nb": b.ovn.nb.PID, "ovsdb-server sb": b.ovn.sb.PID}
	for name, pid := range b.api.pids {
		pids[name] = pid
	}

	if b.leader != nil {
		pids["controller"] = b.leader.PID
	}

	if b.node != nil {
		pids["ovn-controller"], pids["ovs-vswitchd"] = b.node.controller.PID, b.node.vswitchd.PID
	}

	out := map[string]float64{}

	for name, pid := range pids {
		u, err := readUsage(pid)
		if err != nil {
			return nil, fmt.Errorf("CPU of %s: %w", name, err)
		}

		out[name] = u.CPU
	}

	return out, nil
}

// during calls f, and returns its duration and the CPU seconds that every process used in this
// time.
func (b *bench) during(f func() error) (phase, error) {
	before, err := b.used()
	if err != nil {
		return phase{}, err
	}

	start := time.Now()

	if err := f(); err != nil {
		return phase{}, err
	}

	p := phase{Seconds: time.Since(start).Seconds()}
	if p.CPU, err = b.used(); err != nil {
		return phase{}, err
	}

	for name := range p.CPU {
		p.CPU[name] -= before[name]
	}

	return p, nil
}

// measure runs all phases with this number of pods, on new databases, and returns their figures.
func (b *bench) measure(ctx context.Context, pods int) (s size, err error) {
	if err := b.api.addPods(ctx, b.cluster, pods-len(b.cluster.pods), true); err != nil {
		return s, fmt.Errorf("create pods: %w", err)
	}

	if b.ovn, err = startOVN(ctx, filepath.Join(b.dir, "ovn")); err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, b.stopReplica(), b.ovn.stop()) }()

	if err := b.ovn.standinChassis(ctx, b.cluster); err != nil {
		return s, err
	}

	s = size{Pods: pods, Load: results.Load()}

	steps := []struct {
		name string
		f    func(context.Context, *size) error
	}{{"cold sync", b.coldSync}, {"restart", b.restart}, {"standby", b.standby}, {"churn", b.churn}, {"real node", b.realNode}}
	for _, step := range steps {
		b.say("%d pods: %s", pods, step.name)

		if err := step.f(ctx, &s); err != nil {
			return s, fmt.Errorf("%s: %w", step.name, err)
		}
	}

	if s.Memory, err = readUsage(b.leader.PID); err != nil {
		return s, err
	}

	nb, err := readUsage(b.ovn.nb.PID)
	if err != nil {
		return s, err
	}

	sb, err := readUsage(b.ovn.sb.PID)
	s.NBMemory, s.SBMemory = nb.RSS, sb.RSS
	b.say("%+v", s)

	return s, err
}

// coldSync starts the first replica on an empty database. Its time ends when the replica is ready.
// Its CPU seconds end later, when northd has processed all rows (Northd).
func (b *bench) coldSync(ctx context.Context, s *size) error {
	took := 0.0

	p, err := b.during(func() (err error) {
		if b.leader, err = b.nextReplica(); err != nil {
			return err
		}

		ready, err := b.leader.awaitReady(ctx, true, b.leader.started)
		if err != nil {
			return err
		}

		took = ready.Seconds()

		return b.ovn.sync(ctx)
	})
	if err != nil {
		return err
	}

	s.Northd, s.Sync = p.Seconds, p
	s.Sync.Seconds = took
	m, err := b.leader.metrics(ctx)
	s.Commits = m["ovnkube_controller_commit_duration_seconds_sum"]

	return err
}

// restart stops the leader, and then starts another replica.
func (b *bench) restart(ctx context.Context, s *size) (err error) {
	// A leader that has ended has released the Lease, so the time does not include the Lease's
	// duration.
	if err := b.leader.Stop(time.Minute); err != nil {
		return err
	}

	if b.leader, err = b.nextReplica(); err != nil {
		return err
	}

	took, err := b.leader.awaitReady(ctx, true, b.leader.started)
	if err != nil {
		return err
	}

	s.Restart, err = b.takeover(ctx, took)

	return err
}

// standby starts a second replica and, when that is ready to take over, stops the leader.
func (b *bench) standby(ctx context.Context, s *size) error {
	next, err := b.nextReplica()
	if err != nil {
		return err
	}

	if _, err := next.awaitReady(ctx, false, next.started); err != nil {
		return errors.Join(err, next.Stop(0))
	}

	start := time.Now()

	if err := b.leader.Signal(syscall.SIGTERM); err != nil {
		return errors.Join(err, next.Stop(0))
	}

	took, err := next.awaitReady(ctx, true, start)
	if err := errors.Join(err, b.leader.Stop(time.Minute)); err != nil {
		return errors.Join(err, next.Stop(0))
	}

	b.leader = next
	s.Standby, err = b.takeover(ctx, took)

	return err
}

// takeover returns the figures of a new leader. took is the time until it led and was ready.
func (b *bench) takeover(ctx context.Context, took time.Duration) (takeover, error) {
	m, err := b.leader.metrics(ctx)
	if err != nil {
		return takeover{}, err
	}

	u, err := readUsage(b.leader.PID)

	return takeover{took.Seconds(), u.CPU, transactions(m)}, err
}

// churn measures changes at the configured rate. It begins when northd has nothing left to do, and
// its CPU seconds end when northd has processed the changes.
func (b *bench) churn(ctx context.Context, s *size) error {
	if err := b.ovn.sync(ctx); err != nil {
		return err
	}

	before, err := b.leader.metrics(ctx)
	if err != nil {
		return err
	}

	if b.profile != "" {
		if err := b.leader.Signal(changesBegin); err != nil {
			return err
		}
	}

	s.Churn.phase, err = b.during(func() (err error) {
		s.Churn.Changes, err = b.api.churn(ctx, b.cluster, b.services, b.rate, b.duration)
		return errors.Join(err, b.ovn.sync(ctx))
	})
	if err != nil {
		return err
	}

	after, err := b.leader.metrics(ctx)
	s.Churn.Transactions = transactions(after) - transactions(before)
	s.Churn.P50 = finite(bucketQuantile(before, after, latencyMetric, 0.5))
	s.Churn.P99 = finite(bucketQuantile(before, after, latencyMetric, 0.99))

	return err
}

// finite returns f, or -1 for NaN, which JSON cannot represent: nothing was counted.
func finite(f float64) float64 {
	if math.IsNaN(f) {
		return -1
	}

	return f
}

// allocate measures the start of a replica on a cluster in which n pods have no addresses yet.
// Another replica has written everything else before.
func (b *bench) allocate(ctx context.Context, n int) (a *alloc, err error) {
	b.say("allocation of %d pods", n)

	if b.ovn, err = startOVN(ctx, filepath.Join(b.dir, "ovn")); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.stopReplica(), b.ovn.stop()) }()

	if b.leader, err = b.nextReplica(); err != nil {
		return nil, err
	}

	if _, err := b.leader.awaitReady(ctx, true, b.leader.started); err != nil {
		return nil, err
	}

	if err := b.leader.Stop(time.Minute); err != nil {
		return nil, err
	}

	if err := b.api.addPods(ctx, b.cluster, n, false); err != nil {
		return nil, err
	}

	if b.leader, err = b.nextReplica(); err != nil {
		return nil, err
	}

	took, err := b.leader.awaitReady(ctx, true, b.leader.started)

	return &alloc{Pods: n, Seconds: took.Seconds()}, err
}

func (b *bench) stopReplica() error {
	if b.leader == nil {
		return nil
	}
	defer func() { b.leader = nil }()

	return b.leader.Stop(time.Minute)
}
