package keyfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestExposed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key.pem")
	if got := Exposed(path); got != "" {
		t.Errorf("not there: %q", got)
	}

	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}

	for mode, want := range map[fs.FileMode]string{0o600: "", 0o400: "", 0: "", 0o640: "0640", 0o644: "0644", 0o604: "0604", 0o620: "0620"} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}

		got := Exposed(path)
		if (got == "") != (want == "") || !strings.Contains(got, want) || want != "" && strings.Count(got, path) != 2 {
			t.Errorf("mode %04o: %q", mode, got)
		}
	}
}

// TestRead reads as a user without root's rights.
func TestRead(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("not root: it cannot change its user")
	}

	dir := t.TempDir()

	path := filepath.Join(dir, "key.pem")
	if err := errors.Join(os.WriteFile(path, []byte("secret"), 0o600), os.Chmod(dir, 0o755), os.Chmod(filepath.Dir(dir), 0o755)); err != nil {
		t.Fatal(err)
	}

	if b, err := Read(path); err != nil || string(b) != "secret" {
		t.Errorf("as root: %q, %v", b, err)
	}

	done := make(chan error)

	go func() {
		runtime.LockOSThread() // and ends with the thread: its user does not come back

		if err := unix.Setfsuid(65534); err != nil {
			done <- err
			return
		}

		_, err := Read(path)
		done <- err
	}()

	err := <-done
	if !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "mode 0600 of user 0, group 0") {
		t.Errorf("as another: %v", err)
	}

	if _, err := Read(path + "x"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("not there: %v", err)
	}
}
