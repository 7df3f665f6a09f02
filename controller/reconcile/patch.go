package reconcile

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"sync"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
)

const (
	parallelPatches = 8 // requests that a batch has under way
	patchAttempts   = 3 // at an object that others change all the time
)

// errConflict is returned for a patch of an object that another client has changed since it was
// planned. The watch brings the change, and the object is planned again.
var errConflict = errors.New("the object has changed")

// patch holds annotations for one object, identified by its UID, in the version from which they
// were planned. Or it holds a condition for the status of a Node, of any version.
type patch struct {
	of          *metav1.ObjectMeta // never changed
	annotations map[string]any     // the new values; nil removes an annotation
	condition   *corev1.NodeCondition
}

// annotate returns the patch that makes these annotations, or nil if there are none.
func annotate(of *metav1.ObjectMeta, annotations map[string]any) *patch {
	if len(annotations) == 0 {
		return nil
	}

	return &patch{of: of, annotations: annotations}
}

// stillFits reports whether the patch's inputs are the same in a later version of the object.
// Kubelet and other clients write to the object at the same time.
func (p *patch) stillFits(now metav1.Object) bool {
	return now.GetUID() == p.of.UID &&
		maps.Equal(stripAnnotations(now.GetAnnotations()), stripAnnotations(p.of.Annotations))
}

// body returns the merge patch for a version of the object.
func (p *patch) body(version string) []byte {
	return annotation.Patch(metav1.ObjectMeta{UID: p.of.UID, ResourceVersion: version}, p.annotations)
}

// statusBody returns the strategic merge patch of the status. It leaves other conditions alone.
func (p *patch) statusBody() []byte {
	b, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": p.of.UID},
		"status":   map[string]any{"conditions": []*corev1.NodeCondition{p.condition}},
	})
	if err != nil {
		panic(err) // only strings and times
	}

	return b
}

// patchAll writes annotations and returns the errors. A deleted object is not an error: the watch
// reports it.
func (t *term) patchAll(ctx context.Context, patches map[plan.Key]*patch) map[plan.Key]error {
	errs := map[plan.Key]error{}
	if len(patches) == 0 {
		return errs
	}

	// The API server does not know terms.
	if err := t.check(ctx); err != nil {
		for k := range patches {
			errs[k] = err
		}

		return errs
	}

	var mu sync.Mutex // guards errs

	var group errgroup.Group
	group.SetLimit(parallelPatches)

	for k, p := range patches {
		group.Go(func() error {
			err := t.patch(ctx, k, p)
			if err != nil && !apierrors.IsNotFound(err) {
				mu.Lock()
				defer mu.Unlock()

				errs[k] = err
			}

			return nil
		})
	}

	_ = group.Wait() // the errors are in errs

	return errs
}

// patch writes annotations if the inputs of their plan are unchanged. When another part of the
// object has changed, it reads the object and writes again.
func (t *term) patch(ctx context.Context, k plan.Key, p *patch) error {
	version := p.of.ResourceVersion

	for range patchAttempts {
		if err := t.Hold(ctx); err != nil {
			return err
		}

		err := t.loop.annotate.write(ctx, k, p, version)
		if err == nil || apierrors.IsNotFound(err) {
			return err
		}

		if !apierrors.IsConflict(err) {
			return &apiError{fmt.Errorf("annotate %s: %w", k, err)}
		}

		now, err := t.loop.annotate.read(ctx, k)
		switch {
		case apierrors.IsNotFound(err):
			return err
		case err != nil:
			return &apiError{fmt.Errorf("read %s again: %w", k, err)}
		case !p.stillFits(now):
			return fmt.Errorf("annotate %s: %w", k, errConflict)
		}

		version = now.GetResourceVersion()
	}

	return fmt.Errorf("annotate %s: %w %d times", k, errConflict, patchAttempts)
}

// annotator reads objects from the API server, without an informer, and writes annotations.
type annotator struct {
	read  func(context.Context, plan.Key) (metav1.Object, error)
	write func(ctx context.Context, k plan.Key, p *patch, version string) error
}

func newAnnotator(client rest.Interface) annotator {
	of := map[plan.Kind]objects{}
	for _, r := range plan.Resources() {
		of[r.Kind] = objects{client, r}
	}

	return annotator{
		read: func(ctx context.Context, k plan.Key) (metav1.Object, error) { return of[k.Kind].read(ctx, k) },
		write: func(ctx context.Context, k plan.Key, p *patch, version string) error {
			if p.condition != nil {
				return of[k.Kind].patchStatus(ctx, k, p.statusBody())
			}

			return of[k.Kind].patch(ctx, k, p.body(version))
		},
	}
}

// networkAvailable returns the condition of a Node that has become available for pods, nil if it
// has the right condition. It is written after the node's rows.
func networkAvailable(c *plan.Cluster, k plan.Key) *patch {
	if k.Kind != plan.KindNode {
		return nil
	}

	n := c.Node(k.Name)
	if n == nil || !plan.NetworkBecomesAvailable(c, n) {
		return nil
	}

	now := metav1.Now()

	return &patch{of: &n.ObjectMeta, condition: &corev1.NodeCondition{
		Type: corev1.NodeNetworkUnavailable, Status: corev1.ConditionFalse, Reason: "NetworkReady",
		Message: "ovn-ebpf has set up the node's network", LastHeartbeatTime: now, LastTransitionTime: now,
	}}
}

// leavesBy returns the annotation that names the gateways by which the pods of a node without a
// gateway leave, nil if it is right already. It is computed before the node's rows are planned and
// written after them: a gateway that is no longer named is in no route.
func leavesBy(c *plan.Cluster, k plan.Key) *patch {
	if k.Kind != plan.KindNode {
		return nil
	}

	n := c.Node(k.Name)
	if n == nil {
		return nil
	}

	want := map[string]any{}
	has, told := n.Annotations[annotation.LeavesBy]

	if !plan.UsesEgressGateways(n) {
		if told {
			want[annotation.LeavesBy] = nil
		}
	} else if text := annotation.FormatLeavesBy(plan.EgressGateways(c, n)); text != has {
		want[annotation.LeavesBy] = text
	}

	return annotate(&n.ObjectMeta, want)
}
