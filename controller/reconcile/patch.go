package reconcile

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
)

// parallelPatches bounds the requests that a batch has under way.
const parallelPatches = 8

// patch is annotations for one object, and no other of its name.
type patch struct {
	uid         types.UID
	annotations map[string]string
	remove      []string
}

func newPatch(meta *metav1.ObjectMeta, annotations map[string]string) *patch {
	if len(annotations) == 0 {
		return nil
	}
	return &patch{uid: meta.UID, annotations: annotations}
}

// patchAll writes annotations and returns the errors. An object that is gone,
// or is another by now, is no error: the watch tells.
func (w *worker) patchAll(ctx context.Context, patches map[plan.Key]*patch) map[plan.Key]error {
	errs := map[plan.Key]error{}
	var mu sync.Mutex // guards errs
	var group errgroup.Group
	group.SetLimit(parallelPatches)
	for k, p := range patches {
		group.Go(func() error {
			err := w.annotate(ctx, k, p)
			if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
				mu.Lock()
				defer mu.Unlock()
				errs[k] = &apiError{fmt.Errorf("annotate %s: %w", k, err)}
			}
			return nil
		})
	}
	_ = group.Wait() // the errors are in errs
	return errs
}

// annotator returns how objects are annotated by the API server.
func annotator(client kubernetes.Interface) func(context.Context, plan.Key, *patch) error {
	return func(ctx context.Context, k plan.Key, p *patch) error {
		annotations := map[string]any{}
		for name, value := range p.annotations {
			annotations[name] = value
		}
		for _, name := range p.remove {
			annotations[name] = nil
		}
		body, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": p.uid, "annotations": annotations}})
		if err != nil {
			return err
		}
		if k.Kind == plan.KindNode {
			_, err = client.CoreV1().Nodes().Patch(ctx, k.Name, types.MergePatchType, body, metav1.PatchOptions{})
		} else {
			_, err = client.CoreV1().Pods(k.Namespace).Patch(ctx, k.Name, types.MergePatchType, body, metav1.PatchOptions{})
		}
		return err
	}
}
