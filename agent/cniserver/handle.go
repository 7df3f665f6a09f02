package cniserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	corev1 "k8s.io/api/core/v1"

	"github.com/ovn-ebpf/ovn-ebpf/agent/cluster"
	"github.com/ovn-ebpf/ovn-ebpf/agent/podnet"
	"github.com/ovn-ebpf/ovn-ebpf/cni"
)

// Phases of an ADD, in addition to those of podnet.
const (
	phaseAnnotation = "annotation"
	phaseTotal      = "total"
)

// checkTimeout bounds a CHECK. It waits only for changes that are on their way to the informers.
const checkTimeout = 10 * time.Second

// handle runs a command of the CNI specification and returns its result, which only ADD has. STATUS
// and GC are about the node. The other commands are about a container: those for one container run
// one after another. A DEL cancels a running ADD of its container, so that it need not wait for it.
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
		return nil, types.NewError(types.ErrInvalidEnvironmentVariables,
			fmt.Sprintf("command %q is not ADD, DEL, CHECK, GC or STATUS", req.Command),
			"agent and plugin may be of different versions")
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
	default: // DEL
		return nil, s.o.Interfaces.Del(ctx, req.ContainerID, req.Interface)
	}
}

// status returns an error if pods cannot be added at the moment.
func (s *Server) status() error {
	missing, limited := s.o.Status()
	switch {
	case len(missing) == 0:
		return nil
	case limited:
		return types.NewError(cni.CodeLimited,
			"the node is not ready, and its pods may have lost connectivity: "+strings.Join(missing, "; "),
			"")
	}

	return types.NewError(cni.CodeNotAvailable,
		"the node is not ready for new pods: "+strings.Join(missing, "; "), "")
}

// add creates the interface of a pod and returns the CNI result.
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

	// The deletion of the pod also ends the ADD.
	ctx, stop := s.o.Cluster.FollowPod(ctx, ref)
	defer stop()

	host, err := s.o.Interfaces.Add(ctx, pod)
	if err != nil {
		return nil, withCause(ctx, err)
	}

	if err := s.undoUnlessSettled(ctx, ref, pod); err != nil {
		return nil, err
	}

	s.o.ObservePhase(phaseTotal, time.Since(start))

	return result(pod, host, conf.CNIVersion)
}

// undoUnlessSettled removes the interface and returns an error if the pod's addresses have changed
// during the ADD. The runtime repeats the ADD, and the pod gets its new addresses.
func (s *Server) undoUnlessSettled(ctx context.Context, ref cluster.PodRef, added podnet.Pod) error {
	err := s.o.Source.Settled(ctx, ref, added)
	if err == nil {
		return nil
	}

	text := fmt.Sprintf("while the interface was created: %v", err)
	if err := s.o.Interfaces.Undo(ctx, added); err != nil {
		text += ": " + err.Error()
	}

	if errors.Is(err, cluster.ErrPodGone) {
		return fmt.Errorf("%s: %w", text, cluster.ErrPodGone)
	}

	return types.NewError(types.ErrTryAgainLater, text, "try again")
}

// check compares the record of the ADD with the pod's current addresses, with the runtime's result
// of the ADD, and with the interface as it is.
func (s *Server) check(ctx context.Context, req cni.Request, conf cni.NetConf) error {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()

	ref, err := podRef(req)
	if err != nil {
		return err
	}

	added, known := s.o.Interfaces.Record(req.ContainerID, req.Interface)
	if !known {
		if gone, _ := s.o.Cluster.PodGone(ctx, ref); gone {
			return fmt.Errorf("pod %s: %w", ref, cluster.ErrPodGone)
		}

		return fmt.Errorf("container %s has no interface %s from an ADD", req.ContainerID, req.Interface)
	}

	if err := s.o.Source.Settled(ctx, ref, added); err != nil {
		return err
	}

	if err := checkPrevious(conf, added); err != nil {
		return err
	}

	return s.o.Interfaces.Check(ctx, added)
}

// pod waits until the Source has an interface for the pod, and returns it, complete for the ADD.
func (s *Server) pod(ctx context.Context, req cni.Request, ref cluster.PodRef) (podnet.Pod, error) {
	p, err := s.o.Source.Pod(ctx, ref,
		podnet.Attachment{ContainerID: req.ContainerID, Interface: req.Interface})
	if err != nil {
		return podnet.Pod{}, err
	}

	object := s.o.Cluster.Pod(ref)
	if object == nil {
		return podnet.Pod{}, fmt.Errorf("pod %s: %w", ref, cluster.ErrPodGone)
	}

	if p.IngressRate, p.EgressRate, err = bandwidth(object.Annotations); err != nil {
		return podnet.Pod{}, s.reportMistake(ctx, object, err)
	}

	p.ContainerID, p.Netns, p.Interface = req.ContainerID, req.Netns, req.Interface
	p.LogicalPort = ref.Namespace + "_" + ref.Name

	return p, nil
}

// eventBadBandwidth is the reason of the Event about a malformed bandwidth annotation.
const eventBadBandwidth = "InvalidBandwidth"

// maxReported bounds the number of pods in Server.reported.
const maxReported = 1000

// reportMistake returns the CNI error about a mistake in the pod's annotations. It writes an Event,
// but only one for repeated ADDs with the same mistake.
func (s *Server) reportMistake(ctx context.Context, pod *corev1.Pod, err error) error {
	name := pod.Namespace + "/" + pod.Name
	report := string(pod.UID) + err.Error()

	s.mu.Lock()
	isReported := s.reported[name] == report

	if len(s.reported) > maxReported {
		clear(s.reported)
	}

	s.reported[name] = report
	s.mu.Unlock()

	if !isReported {
		if err := s.o.Cluster.WarnPod(ctx, pod, eventBadBandwidth, err.Error()); err != nil {
			s.o.Log.Warn("cannot write an event", "error", err)
		}
	}

	return types.NewError(cni.CodeBadPod, fmt.Sprintf("pod %s: %v", name, err),
		"correct or remove the annotation")
}

// podRef returns the pod that a request names.
func podRef(req cni.Request) (cluster.PodRef, error) {
	ref, err := parseArgs(req.Args)
	if err != nil {
		return ref, types.NewError(types.ErrInvalidEnvironmentVariables, err.Error(),
			"only a Kubernetes runtime can call this plugin")
	}

	return ref, nil
}

// parseArgs parses CNI_ARGS as set by Kubernetes' runtimes.
func parseArgs(args string) (cluster.PodRef, error) {
	var ref cluster.PodRef

	for f := range strings.SplitSeq(args, ";") {
		k, v, _ := strings.Cut(f, "=")
		switch k {
		case "K8S_POD_NAMESPACE":
			ref.Namespace = v
		case "K8S_POD_NAME":
			ref.Name = v
		case "K8S_POD_UID":
			ref.UID = v
		}
	}

	if ref.Namespace == "" || ref.Name == "" {
		return ref, fmt.Errorf("CNI_ARGS %q: no K8S_POD_NAMESPACE and K8S_POD_NAME", args)
	}

	return ref, nil
}
