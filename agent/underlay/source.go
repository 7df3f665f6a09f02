package underlay

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	corev1 "k8s.io/api/core/v1"

	"github.com/ovn-ebpf/ovn-ebpf/agent/cluster"
	"github.com/ovn-ebpf/ovn-ebpf/agent/cniserver"
	"github.com/ovn-ebpf/ovn-ebpf/agent/nested"
	"github.com/ovn-ebpf/ovn-ebpf/agent/podnet"
)

// source is the cniserver.Source of underlay mode: the interface of a pod is a port of the node's
// pool.
type source struct {
	cluster *cluster.Cluster
	ports   *ports
}

var _ cniserver.Source = source{}

// Pod takes a port for the pod. It waits until the informer has the pod, and makes no request for
// the port.
func (s source) Pod(ctx context.Context, ref cluster.PodRef, a podnet.Attachment) (podnet.Pod, error) {
	anyState := func(*corev1.Pod) error { return nil }

	object, err := s.cluster.WaitPod(ctx, ref, anyState)
	if err != nil {
		return podnet.Pod{}, err
	}

	pod, err := s.ports.take(a, ref.String(), string(object.UID), time.Now())
	if err != nil {
		return podnet.Pod{}, types.NewError(types.ErrTryAgainLater, err.Error(),
			"'ovnkube underlay pool' on this node lists its ports")
	}

	pod.UID = string(object.UID)

	return pod, nil
}

// Settled returns an error if the interface no longer has the port with which it was added.
func (s source) Settled(_ context.Context, ref cluster.PodRef, added podnet.Pod) error {
	if !s.ports.has(added) {
		return fmt.Errorf("pod %s has port %s with tag %d, which is not its own", ref, added.Port, added.Tag)
	}

	return nil
}

// connector is the podnet.Connector of the node: nested.Network, but it connects an interface only
// while the interface has its port.
type connector struct {
	*nested.Network
	ports *ports
}

// errNotOwner is returned for an interface whose port another interface has.
var errNotOwner = errors.New("the port belongs to another pod")

// Connect refuses the record of an interface whose port was given to another one.
func (c connector) Connect(ctx context.Context, host string, p podnet.Pod) error {
	if !c.ports.has(p) {
		return fmt.Errorf("connect %s of pod %s to tag %d: %w", host, p.Name(), p.Tag, errNotOwner)
	}

	return c.Network.Connect(ctx, host, p)
}
