package kubelets

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Tools returns the installation tools of docs/install.md.
func Tools() []string { return []string{kubectl, helm} }

const (
	kubectl = "kubectl" // plain manifests, which Helm renders
	helm    = "helm"
)

// Deployment installs the network by a tool, with non-default values and the given number of
// controllers, updates it while pods and Services change, and uninstalls it. It runs the commands
// of docs/install.md. The update must complete, no two controllers may lead at the same time, and
// OVN's database must contain the changes. In the end nodes and cluster must be unchanged, except
// for what the document lists. The cluster must be without our network (Options.Bare).
func (c *Cluster) Deployment(ctx context.Context, tool string, controllers int) error {
	d := &deployment{Cluster: c, tool: tool, controllers: controllers}
	if err := d.run(ctx); err != nil {
		return fmt.Errorf("deployment by %s with %d controllers: %w", tool, controllers, err)
	}
	return nil
}

type deployment struct {
	*Cluster
	tool        string
	controllers int
}

func (d *deployment) run(ctx context.Context) error {
	before, err := d.snapshot(ctx)
	if err != nil {
		return err
	}
	if err := d.tellNodes(ctx); err != nil {
		return err
	}
	if err := d.install(ctx); err != nil {
		return err
	}
	changes, err := d.startChanges(ctx)
	if err != nil {
		return err
	}
	watch := d.watchLeaders(ctx)
	_, err = d.typing.chapter(ctx, d.heading(updatingPlain, updating))
	if err == nil {
		err = d.updated(ctx, d.controllers)
	}
	err = errors.Join(err, changes.stop(ctx), watch.stop())
	d.step("%s: %s; %s", d.tool, changes, watch)
	if err != nil {
		return err
	}
	if err := changes.programmed(ctx); err != nil {
		return err
	}
	d.step("%s: everything is programmed", d.tool)
	if err := changes.remove(ctx); err != nil {
		return err
	}
	if _, err := d.typing.chapter(ctx, d.heading(uninstallingPlain, uninstalling)); err != nil {
		return err
	}
	if err := d.awaitSame(ctx, before); err != nil {
		return err
	}
	d.step("%s: nodes and cluster are as before the installation", d.tool)
	return d.typing.complete(runDeployment, d.tool)
}

// heading returns the chapter of the document for the tool.
func (d *deployment) heading(byKubectl, byHelm string) string {
	if d.tool == helm {
		return byHelm
	}
	return byKubectl
}

// install runs the document's commands with this cluster's values, none with its default.
func (d *deployment) install(ctx context.Context) error {
	values := map[string]any{
		"AGENT_METRICS_BIND_ADDRESS": "127.0.0.1:9510", "GATEWAY_V4_JOIN_SUBNET": "100.65.0.0/16", "GATEWAY_V6_JOIN_SUBNET": "fd97::/64",
		"SNAT_PORT_RANGE": "50000-60000", "MTU": 1300, "LOG_LEVEL": 5, // the chart's schema rejects text for a number
	}
	for key, value := range d.configuration() {
		values[key] = value
	}
	others := map[string]any{"host": true} // nodes have OVN and Open vSwitch of their own
	if err := d.typing.values(map[string]any{"config": values, "controllerUser": 65532, "replicas": d.controllers, "ovn": others, "ovs": others}); err != nil {
		return err
	}
	var err error
	if d.tool == kubectl {
		_, err = d.typing.chapter(ctx, installingPlain)
	} else {
		_, err = d.typing.chapter(ctx, installingOnOthers,
			"ssl:192.0.2.1:6641", d.lab.NBAddress(), "ssl:192.0.2.1:6642", d.lab.SBAddress())
	}
	if err != nil {
		return err
	}
	return d.ready(ctx)
}

// ready waits until every pod of the network and every node is ready.
func (d *deployment) ready(ctx context.Context) error {
	for _, what := range []string{"deployment/ovn-ebpf-controller", "daemonset/ovn-ebpf-node"} {
		if _, err := d.kubectl(ctx, nil, "-n", "ovn-ebpf", "rollout", "status", what, "--timeout=5m"); err != nil {
			return err
		}
	}
	return d.awaitNodes(ctx)
}

// buildHelm builds Helm's command.
func (c *Cluster) buildHelm(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", c.program(helm), "helm.sh/helm/v3/cmd/helm")
	cmd.Dir = filepath.Join(c.opts.Source, "test/render")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build helm: %w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}
