// Package assignment finds the interfaces that the controller assigns to pods in overlay mode. The
// controller writes addresses and MAC address as an annotation of the pod. The pod's creator can
// write the annotation, too, so an annotation that could harm the node is refused (consistent.go).
package assignment

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/containernetworking/cni/pkg/types"
	corev1 "k8s.io/api/core/v1"

	"github.com/ovn-ebpf/ovn-ebpf/agent/cluster"
	"github.com/ovn-ebpf/ovn-ebpf/agent/cniserver"
	"github.com/ovn-ebpf/ovn-ebpf/agent/podnet"
	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
)

// Source is the cniserver.Source of overlay mode. Its methods are safe for concurrent use.
type Source struct {
	Cluster *cluster.Cluster
	MTU     func() int // of pods, or 0 while unknown
}

var _ cniserver.Source = Source{}

// Pod waits until the controller has assigned addresses to the pod. It also waits while the
// annotation is inconsistent, because the controller will correct it. While the MTU is unknown, it
// returns an error at once, and the runtime tries again.
func (s Source) Pod(ctx context.Context, ref cluster.PodRef, _ podnet.Attachment) (podnet.Pod, error) {
	mtu := s.MTU()
	if mtu == 0 {
		return podnet.Pod{}, types.NewError(types.ErrTryAgainLater, "the node's gateway is not known yet",
			"/readyz of the agent on this node lists what is missing")
	}

	network, object, err := s.wait(ctx, ref)
	if err != nil {
		return podnet.Pod{}, err
	}

	return podnet.Pod{
		UID:       string(object.UID),
		MAC:       network.MAC,
		Addresses: network.Addresses,
		Gateways:  network.Gateways,
		MTU:       mtu,
	}, nil
}

// Settled returns an error if the controller has changed the addresses since the ADD.
func (s Source) Settled(ctx context.Context, ref cluster.PodRef, added podnet.Pod) error {
	assigned, _, err := s.wait(ctx, ref)
	if err != nil {
		return err
	}

	if !slices.Equal(added.Addresses, assigned.Addresses) || !bytes.Equal(added.MAC, assigned.MAC) {
		return fmt.Errorf("pod %s has %v and %s, the controller assigned %v and %s",
			ref, added.Addresses, added.MAC, assigned.Addresses, assigned.MAC)
	}

	return nil
}

// Assigned returns the addresses that are currently assigned to a pod of this node, or false while
// there are no acceptable ones.
func (s Source) Assigned(ref cluster.PodRef) (podnet.AssignedAddresses, bool) {
	pod := s.Cluster.Pod(ref)
	if pod == nil {
		return podnet.AssignedAddresses{}, false
	}

	network, err := s.read(pod)
	if err != nil {
		return podnet.AssignedAddresses{}, false
	}

	return podnet.AssignedAddresses{
		MAC: network.MAC, Addresses: network.Addresses, Gateways: network.Gateways,
	}, true
}

// wait waits until the pod has a valid annotation, and returns the annotation and the pod.
func (s Source) wait(
	ctx context.Context,
	ref cluster.PodRef,
) (network annotation.Pod, object *corev1.Pod, err error) {
	object, err = s.Cluster.WaitPod(ctx, ref, func(p *corev1.Pod) (err error) {
		network, err = s.read(p)
		return err
	})

	return network, object, err
}

// read returns a pod's annotation, or an error if it is not valid for a pod of this node.
func (s Source) read(p *corev1.Pod) (annotation.Pod, error) {
	network, err := annotation.ParsePod(p.Annotations)
	if errors.Is(err, annotation.ErrNotSet) {
		return network, errors.New("the controller has not given it an address")
	}

	if err != nil {
		return network, err
	}

	node := s.Cluster.Node()
	if node == nil {
		return network, errors.New("the API server has no Node of that name")
	}

	return network, checkConsistent(network, node.Annotations)
}
