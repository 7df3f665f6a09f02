package reconcile

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"sync"

	"golang.org/x/sync/semaphore"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
)

const (
	maxParallelPatches = 8 // requests at the same time, see newSlots
	maxPatchAttempts   = 3 // for an object that other clients change all the time
)

// errConflict is returned for a patch of an object that another client has changed since it was
// planned. The watch brings the change, and the object is planned again.
var errConflict = errors.New("the object has changed")

// patch changes one object, identified by its UID, in one of two ways:
//
//   - It sets and removes annotations. They were computed from the other annotations of the object,
//     so the patch applies only to the version from which they were computed.
//   - It sets a condition in the status of a Node, whatever the Node's version.
type patch struct {
	object      *metav1.ObjectMeta    // as it was when the patch was computed; must not be modified
	annotations map[string]any        // the new values; nil removes an annotation
	condition   *corev1.NodeCondition // if not nil, annotations is empty
}

// newAnnotationPatch returns the patch that sets and removes these annotations, or nil if there
// are none.
func newAnnotationPatch(object *metav1.ObjectMeta, annotations map[string]any) *patch {
	if len(annotations) == 0 {
		return nil
	}

	return &patch{object: object, annotations: annotations}
}

// stillApplies reports whether the annotations from which the patch was computed are the same in a
// later version of the object. Kubelet and other clients write to the object at the same time.
func (p *patch) stillApplies(current metav1.Object) bool {
	return current.GetUID() == p.object.UID &&
		maps.Equal(stripAnnotations(current.GetAnnotations()), stripAnnotations(p.object.Annotations))
}

// annotationBody returns the merge patch of the annotations. The API server rejects it if the
// object has another UID or version.
func (p *patch) annotationBody(version string) []byte {
	return annotation.Patch(metav1.ObjectMeta{UID: p.object.UID, ResourceVersion: version}, p.annotations)
}

// conditionBody returns the strategic merge patch of the status. The API server merges conditions
// by type, so other conditions stay, and no version check is needed.
func (p *patch) conditionBody() []byte {
	b, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": p.object.UID},
		"status":   map[string]any{"conditions": []*corev1.NodeCondition{p.condition}},
	})
	if err != nil {
		panic(err) // it has only strings and times
	}

	return b
}

// newSlots returns slots for patches that are written at the same time.
func newSlots() *semaphore.Weighted { return semaphore.NewWeighted(maxParallelPatches) }

// patchAll writes the patches and returns the errors. Each waits for one of the slots. A deleted object
// is not an error: the watch reports it.
func (t *term) patchAll(
	ctx context.Context,
	patches map[plan.Key]*patch,
	slots *semaphore.Weighted,
) map[plan.Key]error {
	errs := map[plan.Key]error{}
	if len(patches) == 0 {
		return errs
	}

	// The API server cannot reject writes of a former leader, so check the term in the database
	// first.
	if err := t.holdInDatabase(ctx); err != nil {
		for k := range patches {
			errs[k] = err
		}

		return errs
	}

	var mu sync.Mutex // guards errs

	var group sync.WaitGroup

	for k, p := range patches {
		group.Go(func() {
			err := slots.Acquire(ctx, 1)
			if err == nil {
				err = t.patch(ctx, k, p)

				slots.Release(1)
			}

			if err != nil && !apierrors.IsNotFound(err) {
				mu.Lock()
				defer mu.Unlock()

				errs[k] = err
			}
		})
	}

	group.Wait()

	return errs
}

// patch writes a patch. If the object has another version by now, patch reads the object. It
// writes again if the patch still applies, and returns errConflict otherwise. An error of the API
// server is an apiError, except that a deleted object is its NotFound error.
func (t *term) patch(ctx context.Context, k plan.Key, p *patch) error {
	version := p.object.ResourceVersion

	for range maxPatchAttempts {
		if err := t.Hold(ctx); err != nil {
			return err
		}

		err := t.loop.patcher.write(ctx, k, p, version)
		if err == nil || apierrors.IsNotFound(err) {
			return err
		}

		if !apierrors.IsConflict(err) {
			return &apiError{fmt.Errorf("patch %s: %w", k, err)}
		}

		current, err := t.loop.patcher.read(ctx, k)
		switch {
		case apierrors.IsNotFound(err):
			return err
		case err != nil:
			return &apiError{fmt.Errorf("read %s again: %w", k, err)}
		case !p.stillApplies(current):
			return fmt.Errorf("patch %s: %w", k, errConflict)
		}

		version = current.GetResourceVersion()
	}

	return fmt.Errorf("patch %s: gave up after %d attempts: %w", k, maxPatchAttempts, errConflict)
}

// patcher reads objects from the API server, without an informer, and writes patches to them.
type patcher struct {
	read  func(context.Context, plan.Key) (metav1.Object, error)
	write func(ctx context.Context, k plan.Key, p *patch, version string) error
}

func newPatcher(client rest.Interface) patcher {
	byKind := map[plan.Kind]objects{}
	for _, r := range plan.Resources() {
		byKind[r.Kind] = objects{client: client, Resource: r}
	}

	return patcher{
		read: func(ctx context.Context, k plan.Key) (metav1.Object, error) {
			return byKind[k.Kind].read(ctx, k)
		},
		write: func(ctx context.Context, k plan.Key, p *patch, version string) error {
			if p.condition != nil {
				return byKind[k.Kind].patchStatus(ctx, k, p.conditionBody())
			}

			return byKind[k.Kind].patch(ctx, k, p.annotationBody(version))
		},
	}
}

// nodeOf returns the Node of a key. It returns nil if the key is of another kind, or the Node does
// not exist.
func nodeOf(c *plan.Cluster, k plan.Key) *corev1.Node {
	if k.Kind != plan.KindNode {
		return nil
	}

	return c.Node(k.Name)
}

// networkAvailablePatch returns the patch that sets the condition NetworkUnavailable of a Node to
// false. It returns nil if the condition is right, or if the Node is not ready for pods. The patch
// is written after the node's rows.
func networkAvailablePatch(c *plan.Cluster, k plan.Key) *patch {
	n := nodeOf(c, k)
	if n == nil || !plan.NetworkBecomesAvailable(c, n) {
		return nil
	}

	now := metav1.Now()

	return &patch{object: &n.ObjectMeta, condition: &corev1.NodeCondition{
		Type: corev1.NodeNetworkUnavailable, Status: corev1.ConditionFalse, Reason: "NetworkReady",
		Message: "ovn-ebpf has set up the node's network", LastHeartbeatTime: now, LastTransitionTime: now,
	}}
}

// leavesByPatch returns the patch of the annotation leaves-by of a Node. If the node has no
// gateway, the annotation names the gateways by which its pods' packets leave the cluster. Other
// nodes have no such annotation. It returns nil if the annotation is right.
//
// The patch is computed before the node's rows are planned, and written after them. So once the
// annotation no longer names a gateway, no route in the rows uses it.
func leavesByPatch(c *plan.Cluster, k plan.Key) *patch {
	n := nodeOf(c, k)
	if n == nil {
		return nil
	}

	current, exists := n.Annotations[annotation.LeavesBy]
	if !plan.UsesEgressGateways(n) {
		if !exists {
			return nil
		}

		return newAnnotationPatch(&n.ObjectMeta, map[string]any{annotation.LeavesBy: nil})
	}

	want := annotation.FormatLeavesBy(plan.EgressGateways(c, n))
	if current == want {
		return nil
	}

	return newAnnotationPatch(&n.ObjectMeta, map[string]any{annotation.LeavesBy: want})
}
