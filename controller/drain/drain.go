package drain

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
)

// poll is the interval at which the nodes are read while waiting.
const poll = 500 * time.Millisecond

// Options of Gateway.
type Options struct {
	Node    string
	Back    bool          // end the drain instead of beginning it
	Force   bool          // drain even the last gateway
	Timeout time.Duration // of the wait for the routes
	Out     io.Writer     // progress, as text
}

// Gateway drains the node's gateway, or ends the drain, and waits until all nodes without a
// gateway have their routes. It may be repeated, for example to continue an interrupted wait.
// After a timeout the annotation stays.
func Gateway(ctx context.Context, client kubernetes.Interface, o Options) error {
	nodes, err := list(ctx, client)
	if err != nil {
		return err
	}

	n, err := find(nodes, o.Node)
	if err != nil {
		return err
	}

	if !o.Back {
		if err := check(nodes, n); err != nil && !o.Force {
			return fmt.Errorf("drain gateway of node %q: %w; --force does it all the same", o.Node, err)
		}
	}

	if err := mark(ctx, client, n, o.Back); err != nil {
		return err
	}

	result := "is drained: its load balancer health checks answer 503"
	if o.Back {
		result = "is in use again: its load balancer health checks answer for it"
	}

	fmt.Fprintf(o.Out, "gateway of %s %s\n", o.Node, result)

	return await(ctx, client, o)
}

// list returns all Nodes.
func list(ctx context.Context, client kubernetes.Interface) ([]corev1.Node, error) {
	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}

	return nodes.Items, nil
}

// mark sets the annotation, or removes it with back, unless the node is in the desired state.
func mark(ctx context.Context, client kubernetes.Interface, n *corev1.Node, back bool) error {
	// Any value other than "true" means that the node is not drained.
	_, exists := n.Annotations[annotation.DrainGateway]
	if annotation.Drained(n.Annotations) != back && exists != back {
		return nil
	}

	var value any = "true"
	if back {
		value = nil
	}

	patch := annotation.Patch(metav1.ObjectMeta{UID: n.UID}, map[string]any{annotation.DrainGateway: value})

	_, err := client.CoreV1().Nodes().Patch(ctx, n.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return fmt.Errorf("annotate node %q: %w", n.Name, err)
	}

	return nil
}

// await waits for the routes. It prints the outstanding nodes whenever their number changes.
func await(ctx context.Context, client kubernetes.Interface, o Options) error {
	limited, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()

	verb := "still leave by it"
	if o.Back {
		verb = "do not leave by it yet"
	}

	lastPrinted := -1 // number of nodes; -1: nothing was printed

	var left []string

	for {
		nodes, err := list(limited, client)
		if err == nil {
			if n, err := find(nodes, o.Node); err != nil {
				return err
			} else if o.Back && !isEgressGateway(n) {
				return nil // other nodes do not use its gateway
			}

			left = remaining(nodes, o.Node, o.Back)
			if len(left) == 0 {
				fmt.Fprintf(o.Out, "done: %s\n", outcome(nodes, o.Back))
				return nil
			}

			if len(left) != lastPrinted {
				fmt.Fprintf(o.Out, "pods on %s %s\n", strings.Join(shortenList(left), ", "), verb)
			}

			lastPrinted = len(left)
		}

		select {
		case <-limited.Done():
			if ctx.Err() != nil {
				return ctx.Err()
			}

			errLate := fmt.Errorf("not done after %s: pods on %s %s; the controller writes their routes: does it run, and what does its /readyz say? The annotation %s stays as it is now",
				o.Timeout, strings.Join(shortenList(left), ", "), verb, annotation.DrainGateway)

			return errors.Join(errLate, err)
		case <-time.After(poll):
		}
	}
}
