package kubelets

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

//go:embed node-show
var showScript string

// snapshot is the state of nodes and cluster, in lines by place and kind.
type snapshot map[string][]string

// stays are lines that remain after an uninstallation, as in docs/install.md, by kind.
var stays = []struct{ kind, line string }{
	{"links", `^(br-int|ovs-netdev|ovs-tap) `},
	{"addresses", `^(br-int|ovs-netdev) `},
	{"ovs", `^(bridge|port|interface) br-int\b`},
	{"ovs", `^port ovn-\w+-0 `},
	{"ovs", `^other_config (ovn-chassis-idx-\S+|vlan-limit)=`},
	{"pins", `^/sys/fs/bpf/(progs|maps)\.debug$`},
	{"sysctls", `^net\.ipv[46]\.(conf|neigh)\.(br-int|ovs-netdev)\.`},
	{"files", `^(/run|/var/lib)/ovn-ebpf$`},
	{"mounts", `^/sys/fs/bpf bpf$`},
}

// snapshot reads everything that an installation may change.
func (c *Cluster) snapshot(ctx context.Context) (snapshot, error) {
	out := snapshot{}

	for _, n := range c.lab.Nodes() {
		p, err := c.lab.Process(n.Name + "-init")
		if err != nil {
			return nil, err
		}

		cmd := exec.CommandContext(ctx, "nsenter", "--target", strconv.Itoa(p.PID), "--mount", "--net", fmt.Sprintf("--pid=/proc/%d/ns/pid_for_children", p.PID), "bash", "-euo", "pipefail", "-c", showScript)

		cmd.Env = append(os.Environ(), "OVS_RUNDIR=/run/openvswitch")

		var stderr bytes.Buffer

		cmd.Stderr = &stderr

		text, err := cmd.Output()
		if err != nil {
			return nil, fmt.Errorf("look at %s: %w: %s", n.Name, err, stderr.Bytes())
		}

		kind := ""

		for line := range strings.Lines(string(text)) {
			line = strings.TrimRight(line, "\n")
			if name, is := strings.CutPrefix(line, "== "); is {
				kind = n.Name + " " + name
				out[kind] = nil

				continue
			}

			out[kind] = append(out[kind], line)
		}

		node, err := c.client.CoreV1().Nodes().Get(ctx, n.Name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}

		for _, key := range slices.Sorted(maps.Keys(node.Annotations)) {
			if strings.Contains(key, "kubernetes.io/") { // created by kubelet and controller manager at any time
				continue
			}

			out[n.Name+" annotations"] = append(out[n.Name+" annotations"], key)
		}

		for _, key := range slices.Sorted(maps.Keys(node.Labels)) {
			out[n.Name+" labels"] = append(out[n.Name+" labels"], key+"="+node.Labels[key])
		}
	}

	objects, err := c.kubectl(ctx, nil, "get", "--output", "name",
		"customresourcedefinitions,clusterroles,clusterrolebindings,validatingadmissionpolicies,validatingadmissionpolicybindings,namespaces,priorityclasses")
	if err != nil {
		return nil, err
	}

	out["cluster objects"] = strings.Fields(string(objects))
	if len(out) < 10*c.opts.Nodes {
		return nil, fmt.Errorf("%d kinds seen", len(out))
	}

	return out, nil
}

// same returns nil if both are equal, except for lines of stays.
func (s snapshot) same(other snapshot) error {
	var errs []error

	for key := range maps.Keys(s) {
		if _, is := other[key]; !is {
			other[key] = nil
		}
	}

	for _, key := range slices.Sorted(maps.Keys(other)) {
		_, kind, _ := strings.Cut(key, " ")
		missing := without(s[key], other[key])

		added := slices.DeleteFunc(without(other[key], s[key]), func(line string) bool { return allowed(kind, line) })
		if len(missing) > 0 {
			errs = append(errs, fmt.Errorf("%s: gone: %q", key, missing))
		}

		if len(added) > 0 {
			errs = append(errs, fmt.Errorf("%s: left: %q", key, added))
		}
	}

	return errors.Join(errs...)
}

func allowed(kind, line string) bool {
	for _, s := range stays {
		if s.kind == kind && regexp.MustCompile(s.line).MatchString(line) {
			return true
		}
	}

	return false
}

// without returns the lines of a that are not in b.
func without(a, b []string) (out []string) {
	in := map[string]bool{}
	for _, line := range b {
		in[line] = true
	}

	for _, line := range a {
		if !in[line] {
			out = append(out, line)
		}
	}

	return out
}
