package cniserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	corev1 "k8s.io/api/core/v1"

	"github.com/ovn-ebpf/ovn-ebpf/agent/cluster"
	"github.com/ovn-ebpf/ovn-ebpf/agent/podnet"
	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
	"github.com/ovn-ebpf/ovn-ebpf/cni"
)

// Phases of an ADD, in addition to those of podnet.
const (
	phaseAnnotation = "annotation"
	phaseTotal      = "total"
)

// checkTimeout bounds a CHECK, which waits only for data in transit.
const checkTimeout = 10 * time.Second

// mostSaid bounds the number of remembered complaints.
const mostSaid = 1000

// eventBadBandwidth is the reason of the Event about a malformed bandwidth annotation.
const eventBadBandwidth = "InvalidBandwidth"

func (s *Server) handle(ctx context.Context, req cni.Request) (json.RawMessage, error) {
	conf, err := cni.ParseNetConf(req.Config)
	if err != nil {
		return nil, err
	}
	switch req.Command {
	case "STATUS":
		return nil, s.status()
	case "GC":
		var valid []podnet.Attachment
		for _, a := range conf.ValidAttachments {
			valid = append(valid, podnet.Attachment{ContainerID: a.ContainerID, Interface: a.IfName})
		}
		return nil, s.o.Keeper.Collect(ctx, valid)
	case "ADD", "CHECK":
	case "DEL":
		s.attempts.stop(req.ContainerID)
	default:
		return nil, types.NewError(types.ErrInvalidEnvironmentVariables, fmt.Sprintf("command %q is not ADD, DEL, CHECK, GC or STATUS", req.Command), "agent and plugin may be of different versions")
	}
	release, err := s.locks.acquire(ctx, req.ContainerID)
	if err != nil {
		return nil, fmt.Errorf("wait for an earlier request of container %s: %w", req.ContainerID, err)
	}
	defer release()
	switch req.Command {
	case "ADD":
		return s.add(ctx, req, conf)
	case "CHECK":
		return nil, s.check(ctx, req, conf)
	}
	return nil, s.o.Wirer.Del(ctx, req.ContainerID, req.Interface)
}

// status returns an error if pods cannot be added.
func (s *Server) status() error {
	missing, limited := s.o.Status()
	switch {
	case len(missing) == 0:
		return nil
	case limited:
		return types.NewError(cni.CodeLimited, "the node is not ready, and its pods may have lost connectivity: "+strings.Join(missing, "; "), "")
	}
	return types.NewError(cni.CodeNotAvailable, "the node is not ready for new pods: "+strings.Join(missing, "; "), "")
}

func (s *Server) add(ctx context.Context, req cni.Request, conf cni.NetConf) (json.RawMessage, error) {
	start := time.Now()
	ref, err := podRef(req)
	if err != nil {
		return nil, err
	}
	if err := checkVersion(conf.CNIVersion); err != nil {
		return nil, err
	}
	if _, err := os.Stat(req.Netns); err != nil {
		return nil, types.NewError(types.ErrInvalidNetNS, fmt.Sprintf("CNI_NETNS %q: %v", req.Netns, err),
			"the agent must see the runtime's network namespaces: is /run/netns, or /var/run/netns, shared with it?")
	}
	ctx, end := s.attempts.begin(ctx, ref.String(), req.ContainerID)
	defer end()
	pod, err := s.pod(ctx, req, ref)
	if err != nil {
		return nil, withCause(ctx, err)
	}
	s.o.ObservePhase(phaseAnnotation, time.Since(start))
	ctx, stop := s.o.Cluster.FollowPod(ctx, ref)
	defer stop()
	host, err := s.o.Wirer.Add(ctx, pod)
	if err != nil {
		return nil, withCause(ctx, err)
	}
	if err := s.unchanged(ctx, req, ref, pod); err != nil {
		return nil, err
	}
	s.o.ObservePhase(phaseTotal, time.Since(start))
	return result(pod, host, conf.CNIVersion)
}

// unchanged fails an ADD during which the controller has changed the addresses. The runtime repeats
// it and gets the right ones.
func (s *Server) unchanged(ctx context.Context, req cni.Request, ref cluster.PodRef, was podnet.Pod) error {
	pod := s.o.Cluster.Pod(ref)
	if pod == nil {
		return nil // reported by FollowPod
	}
	now, err := annotation.ParsePod(pod.Annotations)
	if err != nil || slices.Equal(now.Addresses, was.Addresses) && slices.Equal(now.MAC, was.MAC) {
		return nil
	}
	text := fmt.Sprintf("pod %s got %v instead of %v while its interface was created", ref, now.Addresses, was.Addresses)
	if err := s.o.Wirer.Del(ctx, req.ContainerID, req.Interface); err != nil {
		text += ": " + err.Error()
	}
	return types.NewError(types.ErrTryAgainLater, text, "try again")
}

// check compares the interface with its ADD, and the ADD with the controller's current addresses
// and with the runtime's result.
func (s *Server) check(ctx context.Context, req cni.Request, conf cni.NetConf) error {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	ref, err := podRef(req)
	if err != nil {
		return err
	}
	was, known := s.o.Wirer.Record(req.ContainerID, req.Interface)
	if !known {
		if gone, _ := s.o.Cluster.PodGone(ctx, ref); gone {
			return fmt.Errorf("pod %s: %w", ref, cluster.ErrPodGone)
		}
		return fmt.Errorf("container %s has no interface %s from an ADD", req.ContainerID, req.Interface)
	}
	pod, err := s.pod(ctx, req, ref)
	if err != nil {
		return err
	}
	if !slices.Equal(was.Addresses, pod.Addresses) || was.MAC.String() != pod.MAC.String() {
		return fmt.Errorf("pod %s has %v and %s, the controller assigned %v and %s", ref, was.Addresses, was.MAC, pod.Addresses, pod.MAC)
	}
	if err := checkPrevious(conf, was); err != nil {
		return err
	}
	return s.o.Wirer.Check(ctx, was)
}

// pod waits until the controller has assigned an address to the pod. While the annotation is
// inconsistent it keeps waiting, as the controller will restore it.
func (s *Server) pod(ctx context.Context, req cni.Request, ref cluster.PodRef) (podnet.Pod, error) {
	mtu := s.o.MTU()
	if mtu == 0 {
		return podnet.Pod{}, types.NewError(types.ErrTryAgainLater, "the node's gateway is not known yet", "/readyz of the agent on this node lists what is missing")
	}
	var network annotation.Pod
	object, err := s.o.Cluster.WaitPod(ctx, ref, func(p *corev1.Pod) (err error) {
		network, err = annotation.ParsePod(p.Annotations)
		if errors.Is(err, annotation.ErrNotSet) {
			return errors.New("the controller has not given it an address")
		}
		if err != nil {
			return err
		}
		node := s.o.Cluster.Node()
		if node == nil {
			return errors.New("the API server has no Node of that name")
		}
		return Consistent(network, node.Annotations)
	})
	if err != nil {
		return podnet.Pod{}, err
	}
	ingress, egress, err := bandwidth(object.Annotations)
	if err != nil {
		return podnet.Pod{}, s.refuse(ctx, object, err)
	}
	return podnet.Pod{
		ContainerID: req.ContainerID, Netns: req.Netns, Interface: req.Interface,
		LogicalPort: ref.Namespace + "_" + ref.Name, UID: string(object.UID),
		MAC: network.MAC, Addresses: network.Addresses, Gateways: network.Gateways, MTU: mtu,
		IngressRate: ingress, EgressRate: egress,
	}, nil
}

// refuse writes one Event about the pod's mistake.
func (s *Server) refuse(ctx context.Context, pod *corev1.Pod, err error) error {
	said := string(pod.UID) + err.Error()
	s.mu.Lock()
	before := s.said[pod.Namespace+"/"+pod.Name] == said
	if len(s.said) > mostSaid {
		clear(s.said)
	}
	s.said[pod.Namespace+"/"+pod.Name] = said
	s.mu.Unlock()
	if !before {
		if err := s.o.Cluster.WarnPod(ctx, pod, eventBadBandwidth, err.Error()); err != nil {
			s.o.Log.Warn("cannot write an event", "error", err)
		}
	}
	return types.NewError(cni.CodeBadPod, fmt.Sprintf("pod %s/%s: %v", pod.Namespace, pod.Name, err), "correct or remove the annotation")
}

func podRef(req cni.Request) (cluster.PodRef, error) {
	id, err := parseArgs(req.Args)
	if err != nil {
		return cluster.PodRef{}, types.NewError(types.ErrInvalidEnvironmentVariables, err.Error(), "only a Kubernetes runtime can call this plugin")
	}
	return cluster.PodRef{Namespace: id.namespace, Name: id.name, UID: id.uid}, nil
}

type podID struct{ namespace, name, uid string }

// parseArgs parses CNI_ARGS as set by Kubernetes' runtimes.
func parseArgs(args string) (podID, error) {
	var id podID
	for f := range strings.SplitSeq(args, ";") {
		k, v, _ := strings.Cut(f, "=")
		switch k {
		case "K8S_POD_NAMESPACE":
			id.namespace = v
		case "K8S_POD_NAME":
			id.name = v
		case "K8S_POD_UID":
			id.uid = v
		}
	}
	if id.namespace == "" || id.name == "" {
		return id, fmt.Errorf("CNI_ARGS %q: no K8S_POD_NAMESPACE and K8S_POD_NAME", args)
	}
	return id, nil
}
