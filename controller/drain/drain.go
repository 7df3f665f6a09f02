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

// Options of Gateway. Node, Timeout and Out must be set.
type Options struct {
	Node    string        // whose gateway is drained
	Back    bool          // end the drain instead of beginning it
	Force   bool          // drain even the last gateway
	Timeout time.Duration // of the wait for the routes
	Out     io.Writer     // progress, as text for the operator
}

// Gateway drains the node's gateway, or ends the drain. It annotates the Node, and then waits until
// the controller has changed the routes of all nodes without a gateway. It may be repeated, for
// example to continue an interrupted wait. After a timeout the annotation stays.
//
// It returns ErrLast (wrapped) if no other gateway could take over, unless o.Force is set.
func Gateway(ctx context.Context, client kubernetes.Interface, o Options) error {
	nodes, err := listNodes(ctx, client)
	if err != nil {
		return err
	}

	n, err := findGateway(nodes, o.Node)
	if err != nil {
		return err
	}

	if !o.Back {
		if err := checkOthers(nodes, n); err != nil && !o.Force {
			return fmt.Errorf("drain gateway of node %q: %w; --force does it all the same", o.Node, err)
		}
	}

	if err := annotate(ctx, client, n, o.Back); err != nil {
		return err
	}

	result := "is drained: its load balancer health checks answer 503"
	if o.Back {
		result = "is in use again: its load balancer health checks answer for it"
	}

	fmt.Fprintf(o.Out, "gateway of %s %s\n", o.Node, result)

	return waitForRoutes(ctx, client, o)
}

// listNodes returns all Nodes.
func listNodes(ctx context.Context, client kubernetes.Interface) ([]corev1.Node, error) {
	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}

	return nodes.Items, nil
}

// annotate sets the annotation, or removes it with back, unless the node is in the desired state.
func annotate(ctx context.Context, client kubernetes.Interface, n *corev1.Node, back bool) error {
	// A value other than "true" means that the node is not drained. With back, it is removed, too.
	_, exists := n.Annotations[annotation.DrainGateway]

	isDesired := annotation.Drained(n.Annotations)
	if back {
		isDesired = !exists
	}

	if isDesired {
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

// wait is the wait for the routes of one call of Gateway.
type wait struct {
	Options
	verb        string   // says of pods that their node is outstanding
	outstanding []string // nodes without the right routes, in the last list
	printed     int      // the number of outstanding nodes that was printed last, -1 if none was
}

// waitForRoutes waits until all nodes without a gateway have their routes, or for the timeout.
func waitForRoutes(ctx context.Context, client kubernetes.Interface, o Options) error {
	limited, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()

	w := wait{Options: o, verb: "still leave by it", printed: -1}
	if o.Back {
		w.verb = "do not leave by it yet"
	}

	for {
		nodes, errList := listNodes(limited, client)
		if errList == nil { // otherwise it is retried
			if done, err := w.update(nodes); done || err != nil {
				return err
			}
		}

		select {
		case <-limited.Done():
			if ctx.Err() != nil {
				return ctx.Err()
			}

			errLate := fmt.Errorf("not done after %s: pods on %s %s; the controller writes their routes: does it run, and what does its /readyz say? The annotation %s stays as it is now",
				o.Timeout, strings.Join(shortenList(w.outstanding), ", "), w.verb, annotation.DrainGateway)

			return errors.Join(errLate, errList)
		case <-time.After(poll):
		}
	}
}

// update finds the outstanding nodes in a new list, and prints them if their number has changed. It
// reports whether the wait is done.
func (w *wait) update(nodes []corev1.Node) (done bool, err error) {
	n, err := findGateway(nodes, w.Node)
	if err != nil {
		return false, err
	}

	if w.Back && !isEgressGateway(n) {
		return true, nil // other nodes do not use its gateway
	}

	w.outstanding = remaining(nodes, w.Node, w.Back)
	if len(w.outstanding) == 0 {
		fmt.Fprintf(w.Out, "done: %s\n", outcome(nodes, w.Back))
		return true, nil
	}

	if len(w.outstanding) != w.printed {
		fmt.Fprintf(w.Out, "pods on %s %s\n", strings.Join(shortenList(w.outstanding), ", "), w.verb)
	}

	w.printed = len(w.outstanding)

	return false, nil
}
