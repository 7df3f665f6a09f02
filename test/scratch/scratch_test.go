package scratch_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/test/scratch"
)

func TestOwnedUntilRemoved(t *testing.T) {
	temp := t.TempDir()
	for _, other := range []string{"ovn-ebpf-release-1", "ovn-ebpf.x", "ovn-ebpf.x.", "ovn-ebpf.X.1", "ovn-ebpf..1", "ovn-ebpf.x.1.2", "x.1"} {
		if err := os.Mkdir(filepath.Join(temp, other), 0o700); err != nil {
			t.Fatal(err)
		}
	}

	d, err := scratch.MakeIn(temp, "x")
	if err != nil {
		t.Fatal(err)
	}

	if found, err := scratch.List(temp); err != nil || !slices.Equal(found, []string{d.Path}) {
		t.Errorf("List: %v, %v, want %s", found, err, d.Path)
	}

	if err := scratch.IfStale(d.Path, func() error { t.Error("called"); return nil }); !errors.Is(err, scratch.ErrInUse) {
		t.Errorf("IfStale: %v", err)
	}

	if got, want := scratch.Owner(d.Path), fmt.Sprintf("process %d", os.Getpid()); got != want {
		t.Errorf("owner %q, want %q", got, want)
	}

	if err := os.WriteFile(filepath.Join(d.Path, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}

	if err := d.Remove(); err != nil {
		t.Fatal(err)
	}

	if _, err := os.Stat(d.Path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("after Remove: %v", err)
	}
}

// TestScript makes a directory as test/release does.
func TestScript(t *testing.T) {
	cmd := exec.Command("bash", "-c", `dir=$(mktemp -d -t ovn-ebpf.logs.XXXXXX); exec 8<"$dir" && flock 8; echo "$dir"; read`)
	temp := t.TempDir()
	cmd.Env = append(os.Environ(), "TMPDIR="+temp)

	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}

	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}

	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}

	var dir string
	if _, err := fmt.Fscanln(out, &dir); err != nil {
		t.Fatal(err)
	}

	if found, err := scratch.List(temp); err != nil || !slices.Equal(found, []string{dir}) {
		t.Errorf("List: %v, %v, want %s", found, err, dir)
	}

	if err := scratch.IfStale(dir, func() error { return nil }); !errors.Is(err, scratch.ErrInUse) {
		t.Errorf("IfStale: %v", err)
	}

	in.Close()

	_ = cmd.Wait() // read fails at the end of the input

	if err := scratch.IfStale(dir, func() error { return os.Remove(dir) }); err != nil {
		t.Errorf("IfStale after the end: %v", err)
	}
}
