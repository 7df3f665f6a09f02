package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/ovn-ebpf/ovn-ebpf/bpf"
	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
	"github.com/ovn-ebpf/ovn-ebpf/controller/drain"
)

// controllersPoll is the time between two looks at the pods of the controller.
const controllersPoll = 2 * time.Second

const drainDetail = `Traffic of pods on nodes without a gateway leaves by other gateways. The node's health checks for load balancers
(healthCheckNodePort, port 10256) return 503. The command waits until the controller has changed the routes.
It runs on any machine with access to the API server, for example by kubectl's kubeconfig.

  ovnkube node drain-gateway node3               before maintenance of node3
  ovnkube node drain-gateway node3 --undo        after it; undrain-gateway is the same

Kept: connections that arrive at this gateway (LoadBalancer, NodePort), and those of its own pods and host.
Broken: TCP connections from pods of other nodes through this gateway. They get a new source address at another
gateway and must be reopened, as after any loss of a gateway. 'kubectl drain' moves the node's own pods.
The gateway stays drained over all restarts until it is undrained: an annotation of the Node records it
(ovn-ebpf.io/drain-gateway), and 'ovnkube status' shows it. Draining the last gateway requires --force.`

const forgetDetail = `The last step of an uninstallation, after 'ovnkube agent --cleanup' on the node: without its annotations the Node
is as it was before. Stop the controller first, as it would assign a subnet again. With --after-controllers, the
command waits until the pods of the chart's controller have ended. A node that was handed back to ovn-kubernetes
needs these annotations: keep them. A missing Node is not an error.`

const mountDetail = `The agent's pins need a bpffs, which the agent mounts if it is permitted to. An unprivileged container cannot mount
in the host's namespace: there, a privileged init container runs this command. An existing bpffs stays unchanged.`

func nodeCommands() *command {
	return &command{
		name:    "node",
		group:   groupRun,
		summary: "prepare a node for maintenance",
		children: []*command{
			{
				name:      "drain-gateway",
				arguments: "NODE",
				summary:   "move North-South traffic of others away from a node's gateway",
				detail:    drainDetail,
				setup: func(f *flag.FlagSet) action {
					undo := f.Bool("undo", false, "undrain the gateway")
					force := f.Bool("force", false, "drain even the last gateway, which cuts off its traffic")

					return drainAction(f, undo, force)
				},
			},
			{
				name:      "undrain-gateway",
				arguments: "NODE",
				summary:   "end the drain: the same as drain-gateway --undo",
				setup:     func(f *flag.FlagSet) action { return drainAction(f, new(true), new(false)) },
			},
			{
				name:      "forget",
				arguments: "NODE",
				summary:   "remove the annotations of controller and agent from a Node, when ovn-ebpf is uninstalled",
				detail:    forgetDetail,
				setup:     forgetAction,
			},
			{
				name:      "mount-bpffs",
				arguments: "DIR",
				summary:   "mount a bpffs at DIR, usually /sys/fs/bpf, unless it is mounted",
				detail:    mountDetail,
				setup:     mountAction,
			},
		},
	}
}

// drainAction declares the flags that drain-gateway and undrain-gateway share. undo and force are
// read when the action runs.
func drainAction(f *flag.FlagSet, undo, force *bool) action {
	s := operatorSettings(f)
	timeout := f.Duration("timeout", time.Minute, "how `long` to wait for the routes")

	return func(ctx context.Context, args []string, env *environment) error {
		client, err := s.clientForNode(ctx, args, env)
		if err != nil {
			return err
		}

		return drain.Gateway(ctx, client, drain.Options{
			Node: args[0], Back: *undo, Force: *force, Timeout: *timeout, Out: env.stdout,
		})
	}
}

func forgetAction(f *flag.FlagSet) action {
	s := operatorSettings(f)
	namespace := f.String("after-controllers", "", "wait until no pod of the controller (app=ovn-ebpf-controller) is left in this `namespace`")

	return func(ctx context.Context, args []string, env *environment) error {
		client, err := s.clientForNode(ctx, args, env)
		if err != nil {
			return err
		}

		if *namespace != "" {
			if err := awaitNoControllers(ctx, client, *namespace, env.stdout); err != nil {
				return err
			}
		}

		return forgetNode(ctx, client, args[0])
	}
}

func mountAction(*flag.FlagSet) action {
	return func(_ context.Context, args []string, _ *environment) error {
		if len(args) == 0 {
			return errors.New("which directory? As a rule /sys/fs/bpf")
		}

		if err := noArguments(args[1:]); err != nil {
			return err
		}

		return bpf.MountFS(args[0])
	}
}

// awaitNoControllers waits until the namespace has no pods of the controller. A pod that is being
// deleted counts, because its controller may still run. The wait has no deadline: the pod of an
// uninstallation would only start again.
func awaitNoControllers(ctx context.Context, client kubernetes.Interface, namespace string, out io.Writer) error {
	var reported string

	controllers := metav1.ListOptions{LabelSelector: "app=ovn-ebpf-controller"}

	return wait.PollUntilContextCancel(ctx, controllersPoll, true, func(ctx context.Context) (bool, error) {
		pods, err := client.CoreV1().Pods(namespace).List(ctx, controllers)
		if err != nil {
			return false, fmt.Errorf("list pods of the controller: %w", err)
		}

		if len(pods.Items) == 0 {
			return true, nil
		}

		p := &pods.Items[0]
		if p.Name != reported {
			reported = p.Name
			_, _ = fmt.Fprintf(out, "waiting until pod %s/%s on node %q has ended\n", namespace, p.Name, p.Spec.NodeName)
		}

		return false, nil
	})
}

// forgetNode removes the annotations of ovn-ebpf from the Node, if it exists.
func forgetNode(ctx context.Context, client kubernetes.Interface, name string) error {
	removed := map[string]any{}
	for _, key := range annotation.OfNodes() {
		removed[key] = nil // null removes a key in a merge patch
	}

	patch := annotation.Patch(metav1.ObjectMeta{}, removed)

	_, err := client.CoreV1().Nodes().Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("remove annotations of node %q: %w", name, err)
	}

	return nil
}

// clientForNode checks that the name of a node is the only argument, and returns a client of the
// API server.
func (s *settings) clientForNode(
	ctx context.Context,
	args []string,
	env *environment,
) (kubernetes.Interface, error) {
	if len(args) == 0 {
		return nil, errors.New("which node? Its name, as 'kubectl get nodes' has it")
	}

	if err := noArguments(args[1:]); err != nil {
		return nil, err
	}

	return s.apiClient(ctx, env)
}
