package cniserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
	corev1 "k8s.io/api/core/v1"

	"github.com/ovn-ebpf/ovn-ebpf/agent/podnet"
	"github.com/ovn-ebpf/ovn-ebpf/cni"
	"github.com/ovn-ebpf/ovn-ebpf/controller/annotation"
)

func (s *Server) handle(ctx context.Context, req cni.Request) (json.RawMessage, error) {
	conf, err := cni.ParseNetConf(req.Config)
	if err != nil {
		return nil, types.NewError(types.ErrDecodingFailure, err.Error(), "")
	}
	release, err := s.locks.acquire(ctx, req.ContainerID)
	if err != nil {
		return nil, fmt.Errorf("wait for an earlier request of container %s: %w", req.ContainerID, err)
	}
	defer release()
	switch req.Command {
	case "ADD":
		return s.add(ctx, req, conf)
	case "DEL":
		return nil, s.o.Wirer.Del(ctx, req.ContainerID, req.Interface)
	case "CHECK":
		pod, err := s.pod(ctx, req)
		if err != nil {
			return nil, err
		}
		return nil, s.o.Wirer.Check(ctx, pod)
	}
	return nil, types.NewError(types.ErrInvalidEnvironmentVariables, fmt.Sprintf("command %q is not ADD, DEL or CHECK", req.Command), "")
}

func (s *Server) add(ctx context.Context, req cni.Request, conf cni.NetConf) (json.RawMessage, error) {
	pod, err := s.pod(ctx, req)
	if err != nil {
		return nil, err
	}
	host, err := s.o.Wirer.Add(ctx, pod)
	if err != nil {
		return nil, err
	}
	return result(pod, host, conf.CNIVersion)
}

// pod waits until the controller has given the pod its address.
func (s *Server) pod(ctx context.Context, req cni.Request) (podnet.Pod, error) {
	id, err := parseArgs(req.Args)
	if err != nil {
		return podnet.Pod{}, types.NewError(types.ErrInvalidEnvironmentVariables, err.Error(), "")
	}
	mtu := s.o.MTU()
	if mtu == 0 {
		return podnet.Pod{}, types.NewError(types.ErrTryAgainLater, "the node's gateway is not known yet", "")
	}
	var network annotation.Pod
	object, err := s.o.Cluster.WaitPod(ctx, id.namespace, id.name, func(p *corev1.Pod) error {
		if id.uid != "" && string(p.UID) != id.uid {
			return fmt.Errorf("its UID is %s instead of %s", p.UID, id.uid)
		}
		network, err = annotation.ParsePod(p.Annotations)
		if errors.Is(err, annotation.ErrNotSet) {
			return errors.New("the controller has not given it an address")
		}
		return err
	})
	if err != nil {
		return podnet.Pod{}, err
	}
	return podnet.Pod{
		ContainerID: req.ContainerID, Netns: req.Netns, Interface: req.Interface,
		LogicalPort: id.namespace + "_" + id.name, UID: string(object.UID),
		MAC: network.MAC, Addresses: network.Addresses, Gateways: network.Gateways, MTU: mtu,
	}, nil
}

type podID struct{ namespace, name, uid string }

// parseArgs reads CNI_ARGS as Kubernetes' runtimes set it.
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

// result is the CNI result of an ADD, in the version that the configuration asks for.
func result(p podnet.Pod, host, version string) (json.RawMessage, error) {
	if version == "" {
		version = "0.3.1" // where the specification says what no version means
	}
	pod := 1
	r := &current.Result{
		CNIVersion: current.ImplementedSpecVersion,
		Interfaces: []*current.Interface{
			{Name: host},
			{Name: p.Interface, Mac: p.MAC.String(), Mtu: p.MTU, Sandbox: p.Netns},
		},
	}
	for _, a := range p.Addresses {
		ip := &current.IPConfig{Interface: &pod, Address: ipNet(a)}
		for _, gw := range p.Gateways {
			if gw.Is4() == a.Addr().Is4() {
				ip.Gateway = gw.AsSlice()
			}
		}
		r.IPs = append(r.IPs, ip)
	}
	for _, gw := range p.Gateways {
		all := netip.PrefixFrom(netip.IPv4Unspecified(), 0)
		if gw.Is6() {
			all = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
		}
		r.Routes = append(r.Routes, &types.Route{Dst: ipNet(all), GW: gw.AsSlice()})
	}
	v, err := r.GetAsVersion(version)
	if err != nil {
		return nil, types.NewError(types.ErrIncompatibleCNIVersion, err.Error(), "")
	}
	return json.Marshal(v)
}

func ipNet(p netip.Prefix) net.IPNet {
	return net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
