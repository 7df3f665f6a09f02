package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/test/document"
	"github.com/ovn-ebpf/ovn-ebpf/test/lab"
)

// operatorShell runs commands on a node as an operator does: by name and with default paths. A
// mount namespace gives each node of the lab these paths.
type operatorShell struct {
	*lab.Lab
	bin                      string // links to ovnkube with names of the first generation
	blocks                   [][]string
	apiServer, caCert, token string            // variables in the first generation's documents
	mounts                   map[string]string // further paths and their sources on a node; NODE is its name
}

// newOperatorShell creates the links as in the document, and the mount points.
func newOperatorShell(t *testing.T, l *lab.Lab, ovnkube string) *operatorShell {
	t.Helper()

	k := &operatorShell{Lab: l, bin: filepath.Join(t.TempDir(), "bin"), blocks: codeBlocks(t, "../../docs/first-generation.md")}
	if err := os.Mkdir(k.bin, 0o755); err != nil {
		t.Fatal(err)
	}

	if err := os.Symlink(ovnkube, filepath.Join(k.bin, "ovnkube")); err != nil {
		t.Fatal(err)
	}

	for _, line := range k.block(t, 0, 1) {
		if out, err := exec.CommandContext(t.Context(), "bash", "-c", strings.ReplaceAll(line, "/usr/bin/", k.bin+"/")).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", line, err, out)
		}
	}

	for _, dir := range []string{"/run/openvswitch", "/run/ovn", "/run/ovn-ebpf", "/etc/cni/net.d", "/var/log/openvswitch", "/var/lib/openvswitch", "/etc/ovn"} {
		if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}

			t.Cleanup(func() { _ = os.Remove(dir) }) // fails if it is not empty, and so in use
		}
	}

	return k
}

// codeBlocks returns the commands of each code block of a document.
func codeBlocks(t *testing.T, path string) [][]string {
	t.Helper()

	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}

	found, err := document.Blocks(string(text))
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}

	var blocks [][]string

	for _, b := range found {
		var lines []string
		for _, c := range b.Commands() {
			lines = append(lines, c.Line)
		}

		blocks = append(blocks, lines)
	}

	return blocks
}

// block returns the i-th code block. If it does not have n lines, the document has changed, and the
// caller must change, too.
func (k *operatorShell) block(t *testing.T, i, n int) []string {
	t.Helper()

	if len(k.blocks) <= i || len(k.blocks[i]) != n {
		t.Fatalf("docs/first-generation.md: code block %d of %q has not %d lines", i, k.blocks, n)
	}

	return k.blocks[i]
}

// try runs a line on the i-th node.
func (k *operatorShell) try(ctx context.Context, i int, line string) (string, error) {
	cmd, err := k.shell(ctx, i, line)
	if err != nil {
		return "", err
	}

	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s: %s: %w: %s", k.Node(i).Name, line, err, out)
	}

	return string(out), err
}

// shell returns the command for a line on the i-th node.
func (k *operatorShell) shell(ctx context.Context, i int, line string) (*exec.Cmd, error) {
	n := k.Node(i)

	logs := filepath.Join(n.RunDir, "log")
	if err := os.MkdirAll(logs, 0o755); err != nil {
		return nil, err
	}

	script := "set -e; export PATH=" + k.bin + ":$PATH\n"
	for to, from := range map[string]string{
		"/run/openvswitch": n.RunDir, "/run/ovn": n.RunDir, "/run/ovn-ebpf": n.RunDir, "/etc/cni/net.d": n.CNIConfDir,
		"/var/log/openvswitch": logs, "/sys/fs/bpf": n.PinDir,
	} {
		script += fmt.Sprintf("mount --bind %s %s\n", from, to)
	}

	for to, from := range k.mounts {
		script += fmt.Sprintf("mount --bind %s %s\n", strings.ReplaceAll(from, "NODE", n.Name), to)
	}

	return k.Command(ctx, n.Name, "unshare", "--mount", "--propagation", "slave", "bash", "-c", script+line)
}

// types runs a line that must succeed.
func (k *operatorShell) types(t *testing.T, i int, format string, args ...any) string {
	t.Helper()

	line := fmt.Sprintf(format, args...)

	out, err := k.try(t.Context(), i, line)
	if err != nil {
		t.Fatal(err)
	}

	t.Logf("node%d# %s\n%s", i, line, out)

	return out
}
