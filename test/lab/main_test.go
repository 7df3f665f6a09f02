package lab_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ovn-ebpf/ovn-ebpf/test/lab"
	"github.com/ovn-ebpf/ovn-ebpf/test/lab/traffic"
	"github.com/ovn-ebpf/ovn-ebpf/test/tether"
)

// The test binary also acts as three programs: by the name ovnlab, as `ovnlab traffic` and `ovnlab
// kubelet --dir DIR NODE`, and as a process that brings a lab up until it is killed.
const upEnv = "LAB_TEST_UP"

func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "ovnlab" && os.Args[1] == "kubelet" {
		l, err := lab.Open(os.Args[3])
		if err == nil {
			err = l.RunKubelet(context.Background(), os.Args[4], slog.New(slog.NewTextHandler(os.Stderr, nil)))
		}

		fmt.Println("kubelet ended:", err)
		os.Exit(1)
	}

	if filepath.Base(os.Args[0]) == "ovnlab" {
		os.Exit(traffic.Main(os.Args[2:], os.Stdout))
	}

	if dir := os.Getenv(upEnv); dir != "" {
		o := lab.Options{Dir: dir, Name: filepath.Base(dir), Nodes: 2, Progress: os.Stdout, CacheDir: os.Getenv("OVN_EBPF_CACHE")}
		o.Kube = os.Getenv(upEnv+"_KUBE") != ""
		_, err := lab.Up(context.Background(), o)
		fmt.Println("up returned:", err)

		select {}
	}

	os.Exit(tether.Main(m))
}

// binDir returns a directory with this binary under the name ovnlab.
func binDir(t *testing.T) string {
	t.Helper()

	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}

	dir := t.TempDir()
	if err := os.Symlink(self, filepath.Join(dir, "ovnlab")); err != nil {
		t.Fatal(err)
	}

	return dir
}

// killedUp brings a lab up in a separate process, which it kills when the text appears. It reports
// whether the text appeared.
func killedUp(t *testing.T, o lab.Options, kube, at string) bool {
	t.Helper()

	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}

	killed := false
	cmd := exec.Command(self)

	cmd.Env = append(os.Environ(), upEnv+"="+o.Dir, upEnv+"_KUBE="+kube)
	cmd.Stdout = writerFunc(func(b []byte) {
		t.Logf("%s", b)

		if strings.Contains(string(b), at) {
			killed = true

			if err := cmd.Process.Signal(unix.SIGKILL); err != nil {
				t.Error(err)
			}
		}

		if strings.Contains(string(b), "up returned") {
			_ = cmd.Process.Kill() // may have been killed just above
		}
	})
	err = cmd.Run()

	return killed && err != nil
}

func TestKilledUp(t *testing.T) {
	for _, c := range []struct {
		step, kube string
	}{{"fabric", ""}, {"node1", ""}, {"all chassis", ""}, {"node2", "yes"}, {"API server", "yes"}} {
		t.Run(strings.ReplaceAll(c.step, " ", "-")+c.kube, func(t *testing.T) {
			o := options(t)
			if !killedUp(t, o, c.kube, "] "+c.step) {
				t.Fatal("it ended by itself")
			}

			l, err := lab.Open(o.Dir)
			if err != nil {
				t.Fatal(err)
			}

			if err := l.Down(t.Context()); err != nil {
				t.Fatal(err)
			}

			noResidue(t, o)
		})
	}
}
