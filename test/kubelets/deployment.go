package kubelets

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// Tools returns the ways of docs/install.md to install on nodes that have a part of OVN.
func Tools() []string { return []string{kubectl, helm, helmOVS} }

const (
	kubectl = "kubectl"  // plain manifests, which Helm renders
	helm    = "helm"     // on nodes with OVN and Open vSwitch
	helmOVS = "helm-ovs" // on nodes with Open vSwitch: the chart brings OVN and ovn-controller
)

// Deployment installs the network by a tool, with non-default values and the given number of
// controllers, updates it while pods and Services change, and uninstalls it. It runs the commands
// of docs/install.md. The update must complete, no two controllers may lead at the same time, and
// OVN's database must contain the changes. In the end nodes and cluster must be unchanged, except
// for what the document lists. The cluster must be without our network (Options.NoNetwork).
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
	if d.tool == helmOVS {
		if err := d.stopControllers(); err != nil {
			return err
		}
	}

	before, err := d.snapshot(ctx)
	if err != nil {
		return err
	}

	if err := d.configureNodes(ctx); err != nil {
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
	if d.tool == kubectl {
		return byKubectl
	}

	return byHelm
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

	set := map[string]any{"config": values, "controllerUser": 65532, "replicas": d.controllers, "ovn": others, "ovs": others}
	if d.tool == helmOVS {
		delete(values, "NB_ADDRESS") // the chart's own
		delete(values, "SB_ADDRESS")
		delete(set, "ovn")
	}

	if err := d.typing.values(set); err != nil {
		return err
	}

	var err error

	switch d.tool {
	case kubectl:
		_, err = d.typing.chapter(ctx, installingPlain)
	case helmOVS:
		err = d.typing.install(ctx, installing)
	default:
		err = d.typing.install(ctx, installingOnOthers,
			"ssl:192.0.2.1:6641", d.lab.NBAddress(), "ssl:192.0.2.1:6642", d.lab.SBAddress())
	}

	if err != nil {
		return err
	}

	return d.ready(ctx)
}

// stopControllers stops the nodes' own ovn-controllers, as docs/install.md asks for.
func (d *deployment) stopControllers() error {
	for _, n := range d.lab.Nodes() {
		p, err := d.lab.Process(n.Name + "-ovn-controller")
		if err == nil {
			err = p.Stop(10 * time.Second)
		}

		if err != nil {
			return fmt.Errorf("stop ovn-controller of %s: %w", n.Name, err)
		}
	}

	return nil
}

// northbound returns the values of a column in OVN's Northbound database, separated by spaces.
func (d *deployment) northbound(ctx context.Context, table, column string) (string, error) {
	if d.tool != helmOVS {
		out, err := d.lab.Exec(ctx, "central", "ovn-nbctl", "--bare", "--columns="+column, "list", table)
		return string(out), err
	}

	t := &central{Cluster: d.Cluster}

	pod, err := t.leader(ctx, northbound)
	if err != nil {
		return "", err
	}

	out, err := t.inside(ctx, pod, northbound, "ovsdb-client", "--timeout=30", "--format=csv", "--no-headings", "--data=bare", "dump", socket(northbound), northbound.name, table, column)

	return strings.ReplaceAll(string(out), `"`, " "), err
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
