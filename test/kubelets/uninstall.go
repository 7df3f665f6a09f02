package kubelets

import (
	"context"
	"errors"
	"fmt"
)

// Uninstall takes the chart off again, in the steps of docs/install.md. Nodes and cluster must be as
// before the installation, except for what the document lists. It needs Options.Uninstall.
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
	if _, err := c.kubectl(ctx, []byte(c.dns()), "delete", "-f", "-"); err != nil {
		return err
	}
	if err := c.helm(ctx, "upgrade", "ovn-ebpf", c.chart(), "-n", "ovn-ebpf", "--reset-then-reuse-values", "--set", "uninstall=true"); err != nil {
		return err
	}
	if _, err := c.kubectl(ctx, nil, "-n", "ovn-ebpf", "rollout", "status", "daemonset/ovn-ebpf-uninstall", "--timeout=5m"); err != nil {
		return err
	}
	if err := c.helm(ctx, "uninstall", "ovn-ebpf", "-n", "ovn-ebpf", "--wait"); err != nil {
		return err
	}
	if _, err := c.kubectl(ctx, nil, "delete", "namespace", "ovn-ebpf"); err != nil {
		return err
	}
	if err := c.awaitSame(ctx, c.before); err != nil {
		return err
	}
	c.step("uninstalled: nodes and cluster are as before")
	return nil
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
