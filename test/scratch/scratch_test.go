package scratch_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/test/scratch"
)

func TestOwnedUntilRemoved(t *testing.T) {
	temp := t.TempDir()
	for _, other := range []string{"ovn-ebpf-release-1", "ovn-ebpf.x", "ovn-ebpf.x.", "ovn-ebpf.X.1", "ovn-ebpf..1", "x.1"} {
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
