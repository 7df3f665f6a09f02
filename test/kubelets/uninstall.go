package kubelets

import (
	"context"
	"errors"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Uninstall types the commands of docs/install.md that update our image, and uninstall the chart.
// The update must not restart a daemon of OVN or Open vSwitch. In the end nodes and cluster must be
// as before the installation, except for what the document lists. It needs Options.Uninstall.
func (c *Cluster) Uninstall(ctx context.Context) error {
	if err := c.uninstall(ctx); err != nil {
		return fmt.Errorf("uninstall: %w", err)
	}

	return nil
}

func (c *Cluster) uninstall(ctx context.Context) error {
	if c.before == nil {
		return errors.New("nothing was noted before the installation")
	}

	daemons, err := c.daemons(ctx)
	if err != nil {
		return err
	}

	if _, err := c.typing.chapter(ctx, updating); err != nil {
		return err
	}

	if err := c.updated(ctx, 1); err != nil {
		return err
	}

	after, err := c.daemons(ctx)
	if err != nil {
		return err
	}

	if !slices.Equal(daemons, after) {
		return fmt.Errorf("the update to %s has restarted containers of OVN and Open vSwitch: %q, before %q", secondImage, after, daemons)
	}

	c.step("updated to %s; %d containers of OVN and Open vSwitch have not restarted", secondImage, len(daemons))

	if _, err := c.kubectl(ctx, []byte(c.dns()), "delete", "-f", "-"); err != nil {
		return err
	}

	if err := c.awaitDeletedNamespaces(ctx); err != nil {
		return err
	}

	if _, err := c.typing.chapter(ctx, uninstalling); err != nil {
		return err
	}

	if err := c.awaitSame(ctx, c.before); err != nil {
		return err
	}

	c.step("uninstalled: nodes and cluster are as before")

	return c.typing.complete(runDefault, "")
}

// awaitDeletedNamespaces waits until the namespaces that Kubernetes' tests have deleted are gone.
// Their pods cannot end once the CNI plugin is uninstalled.
func (c *Cluster) awaitDeletedNamespaces(ctx context.Context) error {
	return c.await(ctx, "namespaces of Kubernetes' tests to be gone", func() error {
		namespaces, err := c.client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}

		for i := range namespaces.Items {
			name := namespaces.Items[i].Name
			if name != "ovn-ebpf" && !slices.Contains(c.before["cluster objects"], "namespace/"+name) {
				return fmt.Errorf("namespace %s exists", name)
			}
		}

		return nil
	})
}

// daemons returns the containers of OVN and Open vSwitch, each with the ID that a restart changes.
func (c *Cluster) daemons(ctx context.Context) (ids []string, err error) {
	pods, err := c.client.CoreV1().Pods("ovn-ebpf").List(ctx, metav1.ListOptions{LabelSelector: "app in (ovn-ebpf-central,ovn-ebpf-ovs,ovn-ebpf-ovn-controller)"})
	if err != nil {
		return nil, err
	}

	for i := range pods.Items {
		for _, s := range pods.Items[i].Status.ContainerStatuses {
			ids = append(ids, pods.Items[i].Name+" "+s.Name+" "+s.ContainerID)
		}
	}

	if want := 5*c.opts.Members + 4*c.opts.Nodes; len(ids) != want { // as in docs/chart.md
		return nil, fmt.Errorf("%d containers of OVN and Open vSwitch, want %d: %q", len(ids), want, ids)
	}

	slices.Sort(ids)

	return ids, nil
}

// updated waits until controllers and agents are ready and have the second image.
func (c *Cluster) updated(ctx context.Context, controllers int) error {
	return c.await(ctx, "pods of ours with image "+secondImage, func() error {
		pods, err := c.client.CoreV1().Pods("ovn-ebpf").List(ctx, metav1.ListOptions{LabelSelector: "app in (ovn-ebpf-controller,ovn-ebpf-node)"})
		if err != nil {
			return err
		}

		for i := range pods.Items {
			p := &pods.Items[i]
			if got := p.Spec.Containers[0].Image; got != secondImage {
				return fmt.Errorf("pod %s has image %s", p.Name, got)
			}

			if err := unready(p); err != nil {
				return err
			}
		}

		if want := controllers + c.opts.Nodes; len(pods.Items) != want {
			return fmt.Errorf("%d pods, want %d", len(pods.Items), want)
		}

		return nil
	})
}

// awaitSame waits until nodes and cluster are as they were.
func (c *Cluster) awaitSame(ctx context.Context, before snapshot) error {
	var differs error

	err := c.await(ctx, "nodes to be as before the installation", func() error {
		after, err := c.snapshot(ctx)
		if err != nil {
			return err
		}

		differs = before.same(after)

		return differs
	})
	if err != nil {
		return errors.Join(err, differs)
	}

	return nil
}
