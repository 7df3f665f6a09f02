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

// asCNIError keeps an error that is one, and makes one of any other: what
// happened, its code, and what to do.
func asCNIError(req cni.Request, err error) *types.Error {
	if e := (*types.Error)(nil); errors.As(err, &e) {
		return e
	}
	code, advice := types.ErrInternal, "see the log of ovnkube's agent on this node"
	switch {
	case errors.Is(err, cluster.ErrPodGone):
		code, advice = cni.CodePodGone, "delete the sandbox: its pod was deleted, or is another by now"
	case errors.Is(err, errLaterSandbox), errors.Is(err, errDeleted):
		code, advice = cni.CodeSuperseded, "delete the sandbox"
	case req.Command == "CHECK":
		code, advice = cni.CodeCheckFailed, "delete the sandbox and make it again"
	case errors.Is(err, ovs.ErrNotFound):
		code, advice = types.ErrTryAgainLater, "somebody has removed the bridge or the port; the agent makes the bridge again"
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		code, advice = types.ErrTryAgainLater, "try again; /readyz of the agent on this node says what it waits for"
	}
	return types.NewError(code, fmt.Sprintf("ovn-k8s-cni-overlay %s: %v", req.Command, err), advice)
}

// withCause adds to an error of a context that has ended why it has.
func withCause(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	if err == nil || cause == nil || errors.Is(err, cause) {
		return err
	}
	return fmt.Errorf("%w: %w", cause, err)
}
