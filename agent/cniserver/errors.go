package cniserver

import (
	"context"
	"errors"
	"fmt"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/ovn-ebpf/ovn-ebpf/agent/cluster"
	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
	"github.com/ovn-ebpf/ovn-ebpf/cni"
)

// asCNIError returns err as a CNI error: what happened, its code, and advice.
func asCNIError(req cni.Request, err error) *types.Error {
	if e := (*types.Error)(nil); errors.As(err, &e) {
		return e
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
