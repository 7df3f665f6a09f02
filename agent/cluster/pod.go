package cluster

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ovn-ebpf/ovn-ebpf/loop"
)

// ErrPodGone is returned (wrapped) for a pod that no longer exists in the API server, or was
// replaced by a new one of the same name.
var ErrPodGone = errors.New("the pod no longer exists")

// mirrorOf is an annotation of a static pod's mirror in the API server. It holds the kubelet's UID
// of the pod itself.
const mirrorOf = "kubernetes.io/config.mirror"

// askTimeout bounds one request to the API server.
const askTimeout = 5 * time.Second

// PodRef identifies a pod as container runtimes do. An empty UID stands for any pod of that name.
// For a static pod, the UID is the kubelet's, which differs from the UID of the pod's mirror in the
// API server.
type PodRef struct{ Namespace, Name, UID string }

func (r PodRef) String() string { return r.Namespace + "/" + r.Name }

func (r PodRef) key() types.NamespacedName {
	return types.NamespacedName{Namespace: r.Namespace, Name: r.Name}
}

// isOf reports whether the pod has the UID of the reference, as the API server's or the kubelet's
// UID.
func (r PodRef) isOf(p *corev1.Pod) bool {
	return r.UID == "" || string(p.UID) == r.UID || p.Annotations[mirrorOf] == r.UID
}

// isStatic reports whether the UID is the kubelet's UID of a static pod, which has no dashes. The
// kubelet may write the pod's mirror after it has created the sandbox, so a missing mirror does not
// mean that the pod is gone.
func (r PodRef) isStatic() bool { return r.UID != "" && !strings.Contains(r.UID, "-") }

// lookup returns the pod from the informer. Its error is a phrase about the pod, to which callers
// add the pod's name.
func (c *Cluster) lookup(ref PodRef) (*corev1.Pod, error) {
	pod, ok := getObject[corev1.Pod](c.pods.GetStore(), ref.String())
	if !ok {
		return nil, fmt.Errorf("it is not known on node %s", c.node)
	}

	if !ref.isOf(pod) {
		return nil, fmt.Errorf("its UID is %s instead of %s", pod.UID, ref.UID)
	}

	return pod, nil
}

// Pod returns the pod from the informer, or nil.
func (c *Cluster) Pod(ref PodRef) *corev1.Pod {
	pod, err := c.lookup(ref)
	if err != nil {
		return nil
	}

	return pod
}

// PodGone reports whether the pod is gone from this node. For a pod that is not in the informer,
// which may lag, it queries the API server.
func (c *Cluster) PodGone(ctx context.Context, ref PodRef) (bool, error) {
	if _, err := c.lookup(ref); err == nil {
		return false, nil
	}

	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()

	pod, err := c.client.CoreV1().Pods(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return !ref.isStatic(), nil
	case err != nil:
		return false, fmt.Errorf("ask for pod %s: %w", ref, err)
	}

	isReplaced := !ref.isStatic() && !ref.isOf(pod)

	return isReplaced || pod.Spec.NodeName != c.node, nil
}

// PodLeft is PodGone for podnet.Keeper. It returns an error while the lists are incomplete, because
// the pods of the node are not known yet.
func (c *Cluster) PodLeft(ctx context.Context, namespace, name, uid string) (bool, error) {
	if missing := c.Missing(); missing != "" {
		return false, errors.New(missing)
	}

	return c.PodGone(ctx, PodRef{Namespace: namespace, Name: name, UID: uid})
}

// WaitPod waits until ready returns nil for the pod, and returns the pod. It calls ready again
// after each change of the pod or of the agent's own Node. It returns ErrPodGone (wrapped) if the
// pod does not exist, or the last error of ready when ctx ends.
func (c *Cluster) WaitPod(
	ctx context.Context,
	ref PodRef,
	ready func(*corev1.Pod) error,
) (*corev1.Pod, error) {
	wake := loop.NewSignal()

	removeWaiter := c.addWaiter(ref.key(), wake)
	defer removeWaiter()

	for {
		pod, err := c.lookup(ref)
		if err == nil {
			if err = ready(pod); err == nil {
				return pod, nil
			}
		} else if gone, _ := c.PodGone(ctx, ref); gone { // on an error, wait for the informer
			return nil, fmt.Errorf("pod %s: %w", ref, ErrPodGone)
		}

		select {
		case <-wake:
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for pod %s: %w: %w", ref, err, context.Cause(ctx))
		}
	}
}

// FollowPod returns a context that ends when the informer reports that the pod is gone. The cause
// then wraps ErrPodGone. stop must be called.
func (c *Cluster) FollowPod(ctx context.Context, ref PodRef) (followed context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	wake := loop.NewSignal()
	removeWaiter := c.addWaiter(ref.key(), wake)

	wake.Trigger() // the pod may be gone already

	go func() {
		defer removeWaiter()

		for {
			select {
			case <-ctx.Done():
				return
			case <-wake:
			}

			if _, err := c.lookup(ref); err != nil {
				cancel(fmt.Errorf("pod %s: %w", ref, ErrPodGone))
				return
			}
		}
	}()

	return ctx, func() { cancel(nil) }
}
