package kubelets

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/ovn-ebpf/ovn-ebpf/test/document"
)

// Tools returns the installation tools of docs/install.md.
func Tools() []string { return []string{kubectl, helm} }

const (
	kubectl = "kubectl" // plain manifests, which Helm renders
	helm    = "helm"
)

// The beginnings of the document's Helm commands.
const (
	helmUpgrade  = "helm upgrade ovn-ebpf deploy/helm/ovn-ebpf -n ovn-ebpf --reset-then-reuse-values --set "
	helmTemplate = "helm template "
	helmRender   = helmTemplate + "ovn-ebpf deploy/helm/ovn-ebpf -n ovn-ebpf --api-versions admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy --set image="
)

// installDocument is the document with the commands, relative to the source.
const installDocument = "docs/install.md"

// Deployment installs the network by a tool, with non-default values and the given number of
// controllers, updates it while pods and Services change, and uninstalls it. It runs the commands
// of docs/install.md. The update must complete, no two controllers may lead at the same time, and
// OVN's database must contain the changes. In the end nodes and cluster must be unchanged, except
// for what the document lists. The cluster must be without our network (Options.Bare).
func (c *Cluster) Deployment(ctx context.Context, tool string, controllers int) error {
	d := &deployment{Cluster: c, tool: tool, controllers: controllers, dir: c.path("typing")}
	if err := d.run(ctx); err != nil {
		return fmt.Errorf("deployment by %s with %d controllers: %w", tool, controllers, err)
	}
	return nil
}

type deployment struct {
	*Cluster
	tool        string
	controllers int
	dir         string // working directory of the commands, with deploy/ and values.yaml
	blocks      []document.Block
}

func (d *deployment) run(ctx context.Context) error {
	if err := d.prepare(); err != nil {
		return err
	}
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
	err = d.block(ctx, d.begin(helmRender+secondImage, helmUpgrade+"image="))
	if err == nil {
		err = d.running(ctx, secondImage)
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
	if err := d.block(ctx, d.begin("kubectl -n ovn-ebpf delete deployments,statefulsets", helmUpgrade+"uninstall=true")); err != nil {
		return err
	}
	if err := d.awaitSame(ctx, before); err != nil {
		return err
	}
	d.step("%s: nodes and cluster are as before the installation", d.tool)
	return nil
}

// begin returns the beginning of the block for the tool.
func (d *deployment) begin(byKubectl, byHelm string) string {
	if d.tool == helm {
		return byHelm
	}
	return byKubectl
}

// prepare creates the working directory and reads the document.
func (d *deployment) prepare() error {
	text, err := os.ReadFile(filepath.Join(d.opts.Source, installDocument))
	if err != nil {
		return err
	}
	if d.blocks, err = document.Blocks(string(text)); err != nil {
		return fmt.Errorf("%s: %w", installDocument, err)
	}
	return errors.Join(os.RemoveAll(d.dir), os.CopyFS(filepath.Join(d.dir, "deploy"), os.DirFS(filepath.Join(d.opts.Source, "deploy"))))
}

// values returns settings, none with its default.
func (d *deployment) values() map[string]string {
	values := d.configuration()
	for key, value := range map[string]string{
		"GATEWAY_V4_JOIN_SUBNET": "100.65.0.0/16", "GATEWAY_V6_JOIN_SUBNET": "fd97::/64", "SNAT_PORT_RANGE": "50000-60000",
	} {
		values[key] = value
	}
	for key, value := range numbers {
		values[key] = strconv.Itoa(value)
	}
	return values
}

// numbers are the numeric settings among the values.
var numbers = map[string]int{"MTU": 1300, "LOG_LEVEL": 5}

// install runs the document's commands with this cluster's values.
func (d *deployment) install(ctx context.Context) error {
	values := map[string]any{"AGENT_METRICS_BIND_ADDRESS": "127.0.0.1:9510"}
	for key, value := range d.values() {
		values[key] = value
	}
	for key, value := range numbers {
		values[key] = value // the chart's schema rejects text for a number
	}
	others := map[string]any{"host": true} // nodes have OVN and Open vSwitch of their own
	b, err := yaml.Marshal(map[string]any{"config": values, "controllerUser": 65532, "replicas": d.controllers, "ovn": others, "ovs": others})
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(d.dir, valuesFile), b, 0o644); err != nil {
		return err
	}
	if d.tool == kubectl {
		err = d.block(ctx, helmRender+firstImage)
	} else {
		err = d.installChart(ctx, values)
	}
	if err != nil {
		return err
	}
	return d.ready(ctx)
}

// valuesFile has the cluster's values, in the working directory of the commands.
const valuesFile = "values.yaml"

func (d *deployment) installChart(ctx context.Context, values map[string]any) error {
	line, err := d.line("helm install ", "ovn.host=true")
	if err != nil {
		return err
	}
	line += fmt.Sprintf(" -f %s --set config.NB_ADDRESS=%s --set config.SB_ADDRESS=%s", valuesFile, values["NB_ADDRESS"], values["SB_ADDRESS"])
	return d.types(ctx, line)
}

// ready waits until every pod of the network and every node is ready.
func (d *deployment) ready(ctx context.Context) error {
	for _, what := range []string{"deployment/ovn-ebpf-controller", "daemonset/ovn-ebpf-node"} {
		if err := d.types(ctx, "kubectl -n ovn-ebpf rollout status "+what+" --timeout=5m"); err != nil {
			return err
		}
	}
	if err := d.awaitNodes(ctx); err != nil {
		return err
	}
	return d.running(ctx, firstImage)
}

// running waits until the expected number of the network's pods are ready and use that image.
func (d *deployment) running(ctx context.Context, image string) error {
	return d.await(ctx, fmt.Sprintf("pods of ours with image %s", image), func() error {
		pods, err := d.client.CoreV1().Pods("ovn-ebpf").List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for i := range pods.Items {
			p := &pods.Items[i]
			if got := p.Spec.Containers[0].Image; got != image {
				return fmt.Errorf("pod %s has image %s", p.Name, got)
			}
			if err := unready(p); err != nil {
				return err
			}
		}
		if want := d.controllers + d.opts.Nodes; len(pods.Items) != want {
			return fmt.Errorf("%d pods, want %d", len(pods.Items), want)
		}
		return nil
	})
}

// line returns the document's only command with this beginning and part.
func (d *deployment) line(begins, part string) (string, error) {
	for _, b := range d.blocks {
		for _, command := range b.Commands() {
			if strings.HasPrefix(command.Line, begins) && strings.Contains(command.Line, part) {
				return command.Line, nil
			}
		}
	}
	return "", fmt.Errorf("%s has no command %q any more", installDocument, begins)
}

// block runs all commands of the block with this beginning. A rendering of plain manifests gets the
// cluster's values.
func (d *deployment) block(ctx context.Context, begins string) error {
	for _, b := range d.blocks {
		commands := b.Commands()
		if len(commands) == 0 || !strings.HasPrefix(commands[0].Line, begins) {
			continue
		}
		for _, command := range commands {
			line := command.Line
			if strings.HasPrefix(line, helmTemplate) {
				line += " -f " + valuesFile
			}
			if err := d.types(ctx, line); err != nil {
				return err
			}
		}
		return nil
	}
	return fmt.Errorf("%s has no block that begins with %q any more", installDocument, begins)
}

// script runs the block with this beginning as one script, after the replacements, and returns its
// output.
func (d *deployment) script(ctx context.Context, begins string, replace ...string) (string, error) {
	for _, b := range d.blocks {
		if len(b.Lines) > 0 && strings.HasPrefix(b.Lines[0], begins) {
			return d.output(ctx, strings.NewReplacer(replace...).Replace(strings.Join(b.Lines, "\n")))
		}
	}
	return "", fmt.Errorf("%s has no block that begins with %q any more", installDocument, begins)
}

// types runs a line as an administrator with kubectl and helm.
func (d *deployment) types(ctx context.Context, line string) error {
	_, err := d.output(ctx, line)
	return err
}

// output is types, and returns what was printed.
func (d *deployment) output(ctx context.Context, line string) (string, error) {
	d.step("$ %s", line)
	cmd, err := d.Command(ctx, "bash", "-ec", line)
	if err != nil {
		return "", err
	}
	cmd.Dir = d.dir
	home := "HOME=" + d.dir // Helm's cache
	cmd.Env = append(cmd.Env, home)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s: %w: %s", line, err, strings.TrimSpace(out.String()))
	}
	return out.String(), nil
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
