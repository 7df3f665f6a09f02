package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/util/flowcontrol"

	"github.com/ovn-ebpf/ovn-ebpf/agent/cluster"
	"github.com/ovn-ebpf/ovn-ebpf/loop"
	"github.com/ovn-ebpf/ovn-ebpf/service"
)

// eventNotServed is the reason of Events about Services and pods that this node serves only in
// part. The controller writes Events with the same reason about parts that no node serves.
const eventNotServed = "NotServed"

// maxReasons is the number of reasons in one Event. Others are only counted.
const maxReasons = 5

// Limits of the Events about refused parts. A tenant decides how often the reasons change. Events
// beyond this rate wait, and an object's newer reasons replace its older ones.
const eventsPerSecond, eventBurst = 1, 20

// refusals writes Events about the parts of Services and pods, such as frontends, that the node
// refuses to serve. The gateway calls set; run writes the Events.
type refusals struct {
	node    string
	cluster *cluster.Cluster
	log     *slog.Logger
	wake    loop.Signal
	limit   flowcontrol.RateLimiter

	mu      sync.Mutex               // guards changed
	changed map[service.Key][]string // reasons without an Event yet; empty: the object is served completely
}

func newRefusals(node string, c *cluster.Cluster, log *slog.Logger) *refusals {
	return &refusals{
		node: node, cluster: c, log: log, wake: loop.NewSignal(), changed: map[service.Key][]string{},
		limit: flowcontrol.NewTokenBucketRateLimiter(eventsPerSecond, eventBurst),
	}
}

// set notes the reasons why parts of an object are not served; none if all are. It does not block.
func (r *refusals) set(k service.Key, reasons []string) {
	r.mu.Lock()
	defer r.mu.Unlock()

	r.changed[k] = reasons
	r.wake.Trigger()
}

// run writes the Events until ctx ends. Failed ones are retried.
func (r *refusals) run(ctx context.Context) error {
	return loop.Run(ctx, loop.Options{
		Name: "events about refused parts", Wake: r.wake, Apply: r.write, Log: r.log,
	})
}

// write writes an Event for each object whose reasons have changed.
func (r *refusals) write(ctx context.Context) error {
	var errs []error

	for _, k := range r.keys() {
		reasons := r.take(k)
		if len(reasons) == 0 {
			continue
		}

		if err := r.limit.Wait(ctx); err != nil {
			return nil // ctx has ended
		}

		if err := r.warn(ctx, k, reasons); err != nil {
			errs = append(errs, err)

			r.noteFailedEvent(k, reasons)
		}
	}

	return errors.Join(errs...)
}

// keys returns the objects whose reasons have changed, in a fixed order.
func (r *refusals) keys() []service.Key {
	r.mu.Lock()
	defer r.mu.Unlock()

	return slices.SortedFunc(maps.Keys(r.changed), service.Key.Compare)
}

// take removes and returns the reasons of an object.
func (r *refusals) take(k service.Key) []string {
	r.mu.Lock()
	defer r.mu.Unlock()

	reasons := r.changed[k]
	delete(r.changed, k)

	return reasons
}

// noteFailedEvent puts the reasons of a failed Event back, unless newer ones have arrived since.
func (r *refusals) noteFailedEvent(k service.Key, reasons []string) {
	r.mu.Lock()
	defer r.mu.Unlock()

	if _, newer := r.changed[k]; !newer {
		r.changed[k] = reasons
	}
}

// warn writes one Event. An object that no longer exists gets none.
func (r *refusals) warn(ctx context.Context, k service.Key, reasons []string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()

	text := fmt.Sprintf("node %s: not served: %s",
		r.node, strings.Join(reasons[:min(len(reasons), maxReasons)], "; "))
	if more := len(reasons) - maxReasons; more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}

	o := r.cluster.Objects(k)
	switch {
	case o.Service != nil:
		return r.cluster.WarnService(ctx, o.Service, eventNotServed, text)
	case o.Pod != nil:
		return r.cluster.WarnPod(ctx, o.Pod, eventNotServed, text)
	}

	return nil // it is gone
}
