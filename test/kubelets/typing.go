package kubelets

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/ovn-ebpf/ovn-ebpf/test/document"
)

// InstallDocument has the commands that clusters type, by its path in the source.
const InstallDocument = "docs/install.md"

// The chapters of the document whose commands clusters type, by their headings.
const (
	installing         = "Installing"
	checking           = "Checking the installation"
	settingNode        = "Settings of one node"
	updating           = "Updating"
	updatingSwitch     = "Updating Open vSwitch"
	uninstalling       = "Uninstalling"
	backingUp          = "Backups"
	restoring          = "Restoring a backup"
	installingPlain    = "Installing plain manifests"
	updatingPlain      = "Updating plain manifests"
	uninstallingPlain  = "Uninstalling plain manifests"
	installingOnOthers = "Installing on nodes with OVN and Open vSwitch"
)

// A run is a way to run this package that types some chapters.
type run string

const (
	runDefault    run = "make e2e"
	runCentral    run = `make e2e SUITES="-central -uninstall"`
	runDeployment run = `make e2e SUITES="-deployment TOOL"`
)

// chapters are those that each run types. A run fails at its end if it has not typed all of them.
func chapters(r run, tool string) []string {
	switch {
	case r == runDefault:
		return []string{installing, checking, updating, uninstalling}
	case r == runCentral:
		return []string{settingNode, updatingSwitch, backingUp, restoring}
	case tool == kubectl:
		return []string{installingPlain, updatingPlain, uninstallingPlain}
	case tool == helmOVS:
		return []string{installing, updating, uninstalling}
	}

	return []string{installingOnOthers, updating, uninstalling}
}

// Typed returns the headings of all chapters that clusters type.
func Typed() []string {
	typed := slices.Concat(chapters(runDefault, ""), chapters(runCentral, ""))
	for _, tool := range Tools() {
		typed = append(typed, chapters(runDeployment, tool)...)
	}

	slices.Sort(typed)

	return slices.Compact(typed)
}

// typing types the document's commands as an administrator with kubectl and helm.
type typing struct {
	c      *Cluster
	dir    string // working directory of the commands, with the packed chart and values.yaml
	blocks []document.Block
	done   map[string]bool // headings of the chapters that were typed
}

// documentCharts returns the files of the packed charts in the document: of the release that it
// installs, and of the release to which it updates. Both are the same chart here.
func documentCharts() []string { return []string{"ovn-ebpf-1.2.3.tgz", "ovn-ebpf-1.3.0.tgz"} }

const (
	// sampleHost and samplePort set the API server's address in the document's helm install.
	sampleHost = "KUBERNETES_SERVICE_HOST=192.0.2.10"
	samplePort = "KUBERNETES_SERVICE_PORT=6443"
	// valuesFile has the cluster's values, in the working directory.
	valuesFile = "values.yaml"
)

// newTyping creates the working directory and reads the document.
func (c *Cluster) newTyping() (*typing, error) {
	text, err := os.ReadFile(filepath.Join(c.opts.Source, InstallDocument))
	if err != nil {
		return nil, err
	}

	t := &typing{c: c, dir: c.path("typing"), done: map[string]bool{}}
	if t.blocks, err = document.Blocks(string(text)); err != nil {
		return nil, fmt.Errorf("%s: %w", InstallDocument, err)
	}

	if err := os.MkdirAll(t.dir, 0o755); err != nil {
		return nil, err
	}

	for _, chart := range documentCharts() {
		if err := os.Symlink(c.chart(), filepath.Join(t.dir, chart)); err != nil {
			return nil, err
		}
	}

	return t, nil
}

// values writes the values that commands of Helm get if they do not reuse those of the release.
func (t *typing) values(values map[string]any) error {
	b, err := yaml.Marshal(values)
	if err != nil {
		return err
	}

	return os.WriteFile(filepath.Join(t.dir, valuesFile), b, 0o644)
}

// chapter types the commands of a chapter and returns their output. Each block is a script of its
// own. The replacements, pairs of an example in the document and this cluster's value, must occur.
func (t *typing) chapter(ctx context.Context, heading string, replace ...string) (string, error) {
	scripts := script(t.blocks, heading)
	if len(scripts) == 0 {
		return "", fmt.Errorf("%s has no commands below %q any more", InstallDocument, heading)
	}

	for i := 0; i < len(replace); i += 2 {
		if !strings.Contains(strings.Join(scripts, "\n"), replace[i]) {
			return "", fmt.Errorf("%s has no %q below %q any more", InstallDocument, replace[i], heading)
		}
	}

	var out strings.Builder

	for _, s := range scripts {
		printed, err := t.run(ctx, strings.NewReplacer(replace...).Replace(s))
		if err != nil {
			return "", fmt.Errorf("%s, %q: %w", InstallDocument, heading, err)
		}

		out.WriteString(printed)
	}

	t.done[heading] = true

	return out.String(), nil
}

// install types a chapter that installs the chart, with the address of this cluster's API server.
// The replacements are as in chapter.
func (t *typing) install(ctx context.Context, heading string, replace ...string) error {
	server := t.c.serverAddress()

	_, err := t.chapter(ctx, heading, append(replace,
		sampleHost, "KUBERNETES_SERVICE_HOST="+server.Addr().String(),
		samplePort, fmt.Sprintf("KUBERNETES_SERVICE_PORT=%d", server.Port()))...)

	return err
}

// script returns the commands of each block below a heading. Commands that need all of the chart's
// values get the file with the cluster's, unless the document already names this file.
func script(blocks []document.Block, heading string) (scripts []string) {
	for _, b := range blocks {
		if b.Heading != heading {
			continue
		}

		var lines []string

		for _, c := range b.Commands() {
			line := c.Line

			needsValues := strings.HasPrefix(line, "helm install ") || strings.HasPrefix(line, "helm template ")
			if file := " -f " + valuesFile; needsValues && !strings.Contains(line, file) {
				line += file
			}

			lines = append(lines, line)
		}

		scripts = append(scripts, strings.Join(lines, "\n"))
	}

	return scripts
}

func (t *typing) run(ctx context.Context, script string) (string, error) {
	for line := range strings.Lines(script) {
		t.c.step("$ %s", strings.TrimSpace(line))
	}

	cmd, err := t.c.Command(ctx, "bash", "-c", "set -eo pipefail; trap 'echo \"failed: $BASH_COMMAND\" >&2' ERR\n"+script)
	if err != nil {
		return "", err
	}

	cmd.Dir = t.dir
	cmd.Env = append(cmd.Env, "HOME="+t.dir) // Helm's cache

	var stdout, stderr bytes.Buffer

	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%w: %s", err, bytes.TrimSpace(append(stdout.Bytes(), stderr.Bytes()...)))
	}

	return stdout.String(), nil
}

// complete returns an error with the chapters that the run should have typed.
func (t *typing) complete(r run, tool string) error {
	var errs []error

	for _, heading := range chapters(r, tool) {
		if !t.done[heading] {
			errs = append(errs, fmt.Errorf("%s has not typed %q of %s, only %q", r, heading, InstallDocument, slices.Sorted(maps.Keys(t.done))))
		}
	}

	return errors.Join(errs...)
}
