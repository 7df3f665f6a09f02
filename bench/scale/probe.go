package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// realNode measures one real node, the first of the cluster: its start, its number of flows, a
// complete recomputation of them, and the time from a change in the API server to the node's flows.
func (b *bench) realNode(ctx context.Context, s *size) (err error) {
	if b.probes == 0 {
		return nil
	}

	start := time.Now()

	if b.node, err = startRealNode(ctx, b.ovn.southbound(), nodeName(0), filepath.Join(b.ovn.dir, "node"), b.monitorAll); err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, b.node.stop())
		b.node = nil
	}()

	if err := b.ovn.standinBindings(ctx); err != nil {
		return err
	}

	awaitChassis := func() error { return b.ovn.hasChassis(ctx, nodeName(0)) }
	if err := b.node.controller.Await(ctx, "ovn-controller", awaitChassis); err != nil {
		return err
	}

	settle := func() error { return b.ovn.wait(ctx, "hv") }
	if err := settle(); err != nil {
		return err
	}

	n := &onNode{Settle: time.Since(start).Seconds()}
	if n.Flows, err = b.node.flows(ctx); err != nil {
		return err
	}

	if n.Recompute, err = b.recompute(ctx, settle); err != nil {
		return err
	}

	b.say("real node: %+v", *n)

	if n.Pods, err = b.probe(ctx, b.probes, b.probePod); err != nil {
		return fmt.Errorf("pods: %w", err)
	}

	if n.Services, err = b.probe(ctx, min(b.probes, b.services), b.probeService); err != nil {
		return fmt.Errorf("services: %w", err)
	}

	if n.Controller, err = readUsage(b.node.controller.PID); err != nil {
		return err
	}

	n.Vswitchd, err = readUsage(b.node.vswitchd.PID)
	s.Node = n

	return err
}

// recompute has ovn-controller compute all flows anew. The phase has the time of its loop and the
// CPU of all processes until the node has nothing left to do.
func (b *bench) recompute(ctx context.Context, settle func() error) (phase, error) {
	var took time.Duration

	p, err := b.during(func() (err error) {
		took, err = b.node.recompute(ctx, settle)
		return err
	})
	p.Seconds = took.Seconds()

	return p, err
}

// probe makes n changes, one after the other. change makes the i-th one and returns the time until
// the node has its flows.
func (b *bench) probe(ctx context.Context, n int, change func(ctx context.Context, i int) (time.Duration, error)) (probes, error) {
	took := make([]float64, n)

	p, err := b.during(func() error {
		for i := range took {
			d, err := change(ctx, i)
			if err != nil {
				return err
			}

			took[i] = float64(d.Microseconds()) / 1e3
		}

		return nil
	})
	if err != nil {
		return probes{}, err
	}

	slices.Sort(took)

	for name := range p.CPU {
		p.CPU[name] *= 1e3 / float64(n)
	}

	return probes{Count: n, P50: took[n/2], P99: took[n*99/100], CPU: p.CPU}, nil
}

// probePod creates a pod on the real node and waits until the node has all its flows.
func (b *bench) probePod(ctx context.Context, i int) (time.Duration, error) {
	pod, device := b.cluster.podOn(0, true), fmt.Sprint("probe", i)
	start := time.Now()

	made, err := b.api.CoreV1().Pods(pod.Namespace).Create(ctx, pod, create)
	if err != nil {
		return 0, err
	}

	if err := b.node.plug(ctx, device, pod.Namespace+"_"+pod.Name, string(made.UID)); err != nil {
		return 0, err
	}

	end, err := b.node.installed(ctx, device)

	return end.Sub(start), err
}

// probeService changes a Service's endpoints, and waits until the controller has written them and
// the real node has processed the Northbound database.
func (b *bench) probeService(ctx context.Context, i int) (time.Duration, error) {
	before, err := b.leader.metrics(ctx)
	if err != nil {
		return 0, err
	}

	slice := b.cluster.slice(i, b.cluster.rounds+1)
	start := time.Now()

	if _, err := b.api.DiscoveryV1().EndpointSlices(slice.Namespace).Update(ctx, slice, metav1.UpdateOptions{}); err != nil {
		return 0, err
	}

	written := func() error {
		now, err := b.leader.metrics(ctx)
		if err == nil && transactions(now) <= transactions(before) {
			err = errors.New("no transaction yet")
		}

		return err
	}
	if err := b.leader.Await(ctx, "controller", written); err != nil {
		return 0, err
	}

	err = b.ovn.wait(ctx, "hv")

	return time.Since(start), err
}
