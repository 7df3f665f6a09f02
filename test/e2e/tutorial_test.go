package e2e

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
	"github.com/ovn-ebpf/ovn-ebpf/test/document"
	"github.com/ovn-ebpf/ovn-ebpf/test/kube"
	"github.com/ovn-ebpf/ovn-ebpf/test/lab"
)

// vmChapter is the last chapter of docs/lab.md. It has a lab of its own.
const vmChapter = "VMs of a cloud"

// TestTutorial runs docs/lab.md in a shell, block by block, and compares the output.
func TestTutorial(t *testing.T) {
	if testing.Short() {
		t.Skip(inFull)
	}

	if datapath, _ := ovs.DetectDatapath(link.HasGenericFamily); datapath == ovs.DatapathNetdev && oldSwitch(t.Context()) {
		t.Skip("ovnkube status says that pods can abort this ovs-vswitchd, and the tutorial shows nodes without that line")
	}

	name := cmp.Or(os.Getenv(nameEnv), "e2e") + ".tutorial"
	dir, full := lab.Named(name)
	sh := newShell(t, "OVNKUBE_LAB="+name, "PATH="+os.Getenv("BIN_DIR")+":"+os.Getenv("PATH"))
	t.Cleanup(func() {
		if t.Failed() {
			keepLogs(t, dir)
		}

		if l, err := lab.Open(dir); err == nil {
			if err := l.Down(context.Background()); err != nil {
				t.Error(err)
			}
		} else if !errors.Is(err, os.ErrNotExist) {
			t.Error(err)
		}

		if residue, err := lab.Residue(dir, full); len(residue) > 0 || err != nil {
			t.Errorf("left behind: %v, %v", residue, err)
		}
	})
	// The first lab of a machine would build these.
	cache := kube.CacheDir()
	if _, err := kube.Build(t.Context(), cache, os.Stdout); err != nil {
		t.Fatal(err)
	}

	if _, err := kube.BuildForPods(t.Context(), cache, os.Stdout); err != nil {
		t.Fatal(err)
	}

	text, err := os.ReadFile("../../docs/lab.md")
	if err != nil {
		t.Fatal(err)
	}

	blocks, err := document.Blocks(string(text))
	if err != nil {
		t.Fatal(err)
	}

	typed := 0

	if !slices.ContainsFunc(blocks, func(b document.Block) bool { return b.Heading == vmChapter }) {
		t.Errorf("lab.md has no chapter %q", vmChapter)
	}

	for _, b := range blocks {
		for _, c := range b.Commands() {
			if !c.Shown {
				if c.Line != "make build" && !strings.HasPrefix(c.Line, "export PATH=") {
					t.Errorf("lab.md:%d: %q is not typed: its output is not shown", b.Line, c.Line)
				}

				continue
			}

			began := time.Now()
			out, status, err := sh.types(c.Line)
			t.Logf("lab.md:%d, %.1fs: $ %s\n%s", b.Line, time.Since(began).Seconds(), c.Line, out)

			if err != nil || status != 0 && typed == 0 {
				t.Fatalf("lab.md:%d: $ %s: exit status %d, %v", b.Line, c.Line, status, err)
			}

			typed++

			if status != 0 {
				t.Errorf("lab.md:%d: $ %s: exit status %d", b.Line, c.Line, status)
			} else if err := document.Compare(c.Output, out); err != nil {
				t.Errorf("lab.md:%d: $ %s: %v", b.Line, c.Line, err)
			}
		}
	}

	if typed < 30 {
		t.Errorf("%d commands typed: are they still found?", typed)
	}
}

// shell is a bash that runs one command after another, so that functions, variables and jobs
// persist.
type shell struct {
	in  io.Writer
	out *bufio.Reader
	cmd *exec.Cmd
}

// typingLimit is the time limit of a command. Waiting commands end much earlier.
const typingLimit = 3 * time.Minute

func newShell(t *testing.T, env ...string) *shell {
	t.Helper()

	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}

	cmd := exec.Command("bash", "--noprofile", "--norc")

	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = t.TempDir(), append(os.Environ(), env...), w, w
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // with its jobs

	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}

	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}

	_ = w.Close() // used by the shell only

	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // fails if all have ended
		_ = cmd.Wait()
		_ = r.Close()
	})

	return &shell{in: in, out: bufio.NewReader(r), cmd: cmd}
}

const typedMark = "exit status of what was typed:"

// types returns the output and the exit status of a command.
func (s *shell) types(line string) (out string, status int, err error) {
	limit := time.AfterFunc(typingLimit, func() { _ = syscall.Kill(-s.cmd.Process.Pid, syscall.SIGKILL) })
	defer limit.Stop()

	if _, err := fmt.Fprintf(s.in, "{ %s\n} </dev/null\nprintf '\\n%s %%d\\n' $?\n", line, typedMark); err != nil {
		return "", 0, err
	}

	var b strings.Builder

	for {
		got, err := s.out.ReadString('\n')
		if err != nil {
			return b.String() + got, 0, fmt.Errorf("the shell has ended, or was killed after %s: %w", typingLimit, err)
		}

		if code, ok := strings.CutPrefix(got, typedMark); ok {
			status, err := strconv.Atoi(strings.TrimSpace(code))
			return strings.TrimSuffix(b.String(), "\n"), status, err // the mark's own line begins with one
		}

		b.WriteString(got)
	}
}

// The shell separates a command's output and status from those of the next one.
func TestShell(t *testing.T) {
	sh := newShell(t, "X=1")
	for _, c := range []struct {
		line, out string
		status    int
	}{
		{"f() { echo \"$X $1\"; }", "", 0},
		{"f a; f b >&2", "1 a\n1 b\n", 0},
		{"cat <<EOF\n$X\n  y\nEOF", "1\n  y\n", 0},
		{"cat; printf end; (exit 3)", "end", 3},
		{"sleep 600 &", "", 0},
		{"pwd -P", "", 0},
	} {
		out, status, err := sh.types(c.line)
		if c.line == "pwd -P" {
			c.out, out = filepath.Base(sh.cmd.Dir), filepath.Base(strings.TrimSuffix(out, "\n"))
		}

		if err != nil || out != c.out || status != c.status {
			t.Errorf("%s: %q, %d, %v; want %q, %d", c.line, out, status, err, c.out, c.status)
		}
	}
}
