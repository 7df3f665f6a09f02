package atomicfile_test

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ovn-ebpf/ovn-ebpf/atomicfile"
	"github.com/ovn-ebpf/ovn-ebpf/test/source"
)

func write(t *testing.T, path string, content []byte) {
	t.Helper()

	if err := atomicfile.Write(path, content, 0o640); err != nil {
		t.Fatal(err)
	}
}

func expect(t *testing.T, path string, want []byte) {
	t.Helper()

	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}

	if !bytes.Equal(got, want) {
		t.Errorf("%s has %d bytes, want %d", path, len(got), len(want))
	}
}

func TestWriteReplacesTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "record")
	write(t, path, []byte("before\n"))

	reader, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()

	write(t, path, []byte("x\n"))

	if got, err := io.ReadAll(reader); err != nil || string(got) != "before\n" {
		t.Errorf("a reader that had opened the file sees %q, %v", got, err)
	}

	expect(t, path, []byte("x\n"))

	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}

	if info.Mode().Perm() != 0o640 {
		t.Errorf("mode %v", info.Mode())
	}

	only(t, path)
}

// only fails unless the directory has no other file.
func only(t *testing.T, path string) {
	t.Helper()

	files, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}

	if len(files) != 1 || files[0].Name() != filepath.Base(path) {
		t.Errorf("left in the directory: %v", files)
	}
}

func TestFullDiskKeepsTheFile(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("not root: it cannot mount")
	}

	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})

	path := filepath.Join(dir, "record")
	before := bytes.Repeat([]byte("x"), 40<<10)
	write(t, path, before)

	for _, size := range []int{25 << 10, 60 << 10, 1 << 20} {
		if err := atomicfile.Write(path, make([]byte, size), 0o600); err == nil {
			t.Errorf("%d bytes: no error", size)
		}

		expect(t, path, before)
		only(t, path)
	}
}

func TestUnwritableDirectoryKeepsTheFile(t *testing.T) {
	if err := atomicfile.Write(filepath.Join(t.TempDir(), "none", "record"), nil, 0o600); err == nil {
		t.Error("no error")
	}

	dir := filepath.Join(t.TempDir(), "record") // a directory is where the file is to be
	if err := os.MkdirAll(filepath.Join(dir, "x"), 0o700); err != nil {
		t.Fatal(err)
	}

	if err := atomicfile.Write(dir, nil, 0o600); err == nil {
		t.Error("no error")
	}

	only(t, dir)
}

// A writer that is killed leaves its file, which the next one removes; one that lives keeps its
// own.
func TestKilledWriterLeavesNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "record")
	for _, name := range []string{".record.1.tmp", ".record.2.tmp"} {
		if err := os.WriteFile(filepath.Join(filepath.Dir(path), name), []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	living, err := atomicfile.Create(path, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer living.Abort()

	if _, err := living.WriteString("living"); err != nil {
		t.Fatal(err)
	}

	write(t, path, []byte("other"))

	if err := atomicfile.Sweep(filepath.Join(filepath.Dir(path), "*")); err != nil {
		t.Fatal(err)
	}

	if err := living.Commit(); err != nil {
		t.Fatal(err)
	}

	expect(t, path, []byte("living"))
	only(t, path)
}

func TestWritersDoNotMix(t *testing.T) {
	path := filepath.Join(t.TempDir(), "record")

	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			for range 20 {
				write(t, path, bytes.Repeat([]byte{'a' + byte(i)}, 10<<10))

				got, err := os.ReadFile(path)
				if err != nil || len(got) != 10<<10 || !bytes.Equal(got, bytes.Repeat(got[:1], len(got))) {
					t.Errorf("a mixture: %d bytes, %v", len(got), err)
				}
			}
		})
	}

	group.Wait()
	only(t, path)
}

// Every file that the product leaves on a node is replaced at once. What is listed is none that a
// program reads again.
func TestOnlyAtomicfileWrites(t *testing.T) {
	allowed := []string{
		"agent/cniconf/cniconf.go: os.Rename",           // another network's file, as it is
		"agent/link/nicbridge/lock.go: os.OpenFile",     // has no content
		"agent/link/nicbridge/watchdog.go: os.OpenFile", // a log, appended to
		"agent/link/sysctl.go: os.WriteFile",            // /proc/sys
		"cmd/ovnkube/monitor.go: os.OpenFile",           // a capture, where the user says
		"cmd/ovnkube/daemon/pidfile.go: os.OpenFile",    // to read
		"cmd/ovnkube/daemon/start.go: os.OpenFile",      // /dev/null
		"controller/nb/nbtest/nbtest.go: os.WriteFile",  // likewise
		"agent/testnode/testnode.go: os.WriteFile",      // a test's
		"agent/testnode/cgroup.go: os.WriteFile",        // likewise
		"ovnd/backup.go: os.Rename",                     // a directory
		"ovnd/database.go: os.Rename",                   // a database that ovsdb-tool made
		"ovnd/switch.go: os.Rename",                     // likewise
	}

	var found []string

	for _, use := range source.Uses(t, "..", "os", "WriteFile", "Create", "CreateTemp", "OpenFile", "Rename") {
		file, rest, _ := strings.Cut(use, ":")

		_, name, _ := strings.Cut(rest, ": ")
		if file = file + ": " + name; !strings.HasPrefix(file, "atomicfile/") {
			found = append(found, file)
		}
	}

	for _, f := range found {
		if !slices.Contains(allowed, f) {
			t.Errorf("%s: use atomicfile", f)
		}
	}

	for _, a := range allowed {
		if !slices.Contains(found, a) {
			t.Errorf("%s: is not there any more", a)
		}
	}
}
