package testnode

import (
	"bufio"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ovn-ebpf/ovn-ebpf/test/scratch"
)

// Cgroup returns the directory of a new cgroup that contains the test's process until the test
// ends.
func Cgroup(t testing.TB) string {
	t.Helper()

	root := t.TempDir()
	if err := unix.Mount("cgroup2", root, "cgroup2", 0, ""); err != nil {
		t.Fatalf("mount cgroup2: %v", err)
	}

	t.Cleanup(func() { _ = unix.Unmount(root, unix.MNT_DETACH) })
	before := ownCgroup(t, root)

	made, err := scratch.MakeIn(root, "sock")
	if err != nil {
		t.Fatal(err)
	}

	enter := func(cgroup string) error {
		return os.WriteFile(filepath.Join(cgroup, "cgroup.procs"), []byte(strconv.Itoa(os.Getpid())), 0)
	}
	if err := enter(made.Path); err != nil {
		t.Fatalf("enter cgroup: %v", err)
	}

	t.Cleanup(func() {
		if err := errors.Join(enter(before), made.Remove()); err != nil {
			t.Errorf("leave cgroup: %v", err)
		}
	})

	return made.Path
}

// ownCgroup returns the directory of the process's cgroup below root, where cgroup2 is mounted.
func ownCgroup(t testing.TB, root string) string {
	t.Helper()

	f, err := os.Open("/proc/self/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()

	for lines := bufio.NewScanner(f); lines.Scan(); {
		if path, ok := strings.CutPrefix(lines.Text(), "0::"); ok {
			return filepath.Join(root, path)
		}
	}

	t.Fatal("this process is in no cgroup2 cgroup")

	return ""
}
