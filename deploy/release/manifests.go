package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// namespace begins the manifests of an installation. Helm creates the namespace itself.
const namespace = `apiVersion: v1
kind: Namespace
metadata:
  name: ovn-ebpf
  labels:
    # The agent sets up network devices and eBPF programs of the host.
    pod-security.kubernetes.io/enforce: privileged
---
`

// manifestFlags are Helm's flags for each file of plain manifests. The member of the databases in
// complete.yaml, node1, is an example that the administrator replaces.
var manifestFlags = map[string][]string{
	"complete.yaml": {"-set=ovn.members.node1=192.0.2.1"},
	"complete-uninstall.yaml": {
		"-set=ovn.members.node1=192.0.2.1",
		"-set=uninstall=true",
		"-show-only=templates/uninstall.yaml",
	},
	"host-ovn.yaml": {"-set=ovn.host=true", "-set=ovs.host=true"},
	"host-ovn-uninstall.yaml": {
		"-set=ovn.host=true",
		"-set=ovs.host=true",
		"-set=uninstall=true",
		"-show-only=templates/uninstall.yaml",
	},
}

// renderManifests renders the packed chart's plain manifests, by file name.
func (r *release) renderManifests(ctx context.Context) (map[string][]byte, error) {
	render := filepath.Join(r.work, "render")
	build := exec.CommandContext(ctx, "go", "build", "-o", render, ".")
	build.Dir, build.Stderr = filepath.Join(r.top, "test/render"), os.Stderr

	if err := build.Run(); err != nil {
		return nil, fmt.Errorf("build test/render: %w", err)
	}

	out := map[string][]byte{}

	for name, flags := range manifestFlags {
		args := []string{"-api-versions=admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy"}
		args = append(append(args, flags...), filepath.Join(r.out, r.chartName()))
		cmd := exec.CommandContext(ctx, render, args...)

		var stdout, stderr bytes.Buffer

		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		if err := cmd.Run(); err != nil {
			return nil, fmt.Errorf("render %s: %w: %s", name, err, bytes.TrimSpace(stderr.Bytes()))
		}

		text := bytes.TrimPrefix(stdout.Bytes(), []byte("---\n"))
		if name == "complete.yaml" || name == "host-ovn.yaml" {
			text = append([]byte(namespace), text...)
		}

		out[name] = text
	}

	return out, nil
}
