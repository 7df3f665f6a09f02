package cniserver

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
	cniversion "github.com/containernetworking/cni/pkg/version"

	"github.com/ovn-ebpf/ovn-ebpf/agent/cluster"
	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
	"github.com/ovn-ebpf/ovn-ebpf/agent/podnet"
	"github.com/ovn-ebpf/ovn-ebpf/cni"
)

// result returns the CNI result of an ADD: the pod's interface with the host's end of it, addresses
// and default routes. version is the cniVersion of the configuration, or "".
func result(p podnet.Pod, host, version string) (json.RawMessage, error) {
	podEnd := 1 // index of the pod's interface in Interfaces

	r := &current.Result{
		CNIVersion: current.ImplementedSpecVersion,
		Interfaces: []*current.Interface{
			{Name: host},
			{Name: p.Interface, Mac: p.MAC.String(), Mtu: p.MTU, Sandbox: p.Netns},
		},
	}
	for _, a := range p.Addresses {
		ip := &current.IPConfig{Interface: &podEnd, Address: ipNet(a)}
		for _, gw := range p.Gateways {
			if gw.Is4() == a.Addr().Is4() {
				ip.Gateway = gw.AsSlice()
			}
		}

		r.IPs = append(r.IPs, ip)
	}

	for _, gw := range p.Gateways {
		r.Routes = append(r.Routes, &types.Route{Dst: ipNet(link.Everything(gw.Is4())), GW: gw.AsSlice()})
	}

	v, err := r.GetAsVersion(versionOrDefault(version))
	if err != nil {
		return nil, types.NewError(types.ErrIncompatibleCNIVersion, err.Error(),
			"use one of "+strings.Join(cniversion.All.SupportedVersions(), ", "))
	}

	return json.Marshal(v)
}

// versionOrDefault returns the version. If it is empty, it returns 0.1.0, which a configuration
// without a cniVersion has by the CNI specification.
func versionOrDefault(version string) string { return cmp.Or(version, "0.1.0") }

// checkVersion rejects unsupported versions before any work is done.
func checkVersion(version string) error {
	if all := cniversion.All.SupportedVersions(); !slices.Contains(all, versionOrDefault(version)) {
		return types.NewError(types.ErrIncompatibleCNIVersion, "cniVersion "+version,
			"use one of "+strings.Join(all, ", "))
	}

	return nil
}

// checkPrevious returns an error if the runtime's result of ADD lacks an address of the pod. Later
// plugins may have added addresses. A runtime that passes no result (prevResult) is accepted.
func checkPrevious(conf cni.NetConf, p podnet.Pod) error {
	if conf.RawPrevResult == nil {
		return nil
	}

	if err := cniversion.ParsePrevResult(&conf.PluginConf); err != nil {
		return types.NewError(types.ErrDecodingFailure, "parse prevResult: "+err.Error(), "")
	}

	before, err := current.NewResultFromResult(conf.PrevResult)
	if err != nil {
		return types.NewError(types.ErrDecodingFailure, "convert prevResult: "+err.Error(), "")
	}

	for _, want := range p.Addresses {
		wanted := func(ip *current.IPConfig) bool { return ip.Address.String() == want.String() }
		if !slices.ContainsFunc(before.IPs, wanted) {
			return fmt.Errorf("the runtime's result of ADD lacks the pod's address %s", want)
		}
	}

	return nil
}

func ipNet(p netip.Prefix) net.IPNet {
	return net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// asCNIError returns err as a CNI error with a code (package cni) and advice. If err is a CNI error
// or wraps one, it returns that one.
func asCNIError(req cni.Request, err error) *types.Error {
	var cniErr *types.Error
	if errors.As(err, &cniErr) {
		return cniErr
	}

	code, advice := types.ErrInternal, "see the log of ovnkube's agent on this node"

	switch {
	case errors.Is(err, cluster.ErrPodGone):
		code, advice = cni.CodePodGone, "delete the sandbox: its pod was deleted or replaced"
	case errors.Is(err, errLaterSandbox), errors.Is(err, errDeleted):
		code, advice = cni.CodeSuperseded, "delete the sandbox"
	case req.Command == "CHECK":
		code, advice = cni.CodeCheckFailed, "delete the sandbox and create it again"
	case errors.Is(err, ovs.ErrNotFound):
		code, advice = types.ErrTryAgainLater, "the bridge or the port was removed; the agent recreates the bridge"
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		code, advice = types.ErrTryAgainLater, "try again; /readyz of the agent on this node lists what is missing"
	}

	return types.NewError(code, fmt.Sprintf("ovn-k8s-cni-overlay %s: %v", req.Command, err), advice)
}

// withCause adds the cause of an ended context to err.
func withCause(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	if err == nil || cause == nil || errors.Is(err, cause) {
		return err
	}

	return fmt.Errorf("%w: %w", cause, err)
}
