package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// The linker drops methods that are never called. A single call of reflect's Method with a
// non-constant name makes it keep all: 58 MB. This finds the call: go build -ldflags=-dumpdep 2>&1
// | grep ReflectMethod.
func TestSize(t *testing.T) {
	const most = 46_000_000

	path := filepath.Join(t.TempDir(), "ovnkube")
	build := exec.Command("go", "build", "-ldflags", "-s -w", "-o", path, ".")

	build.Env = append(os.Environ(), "CGO_ENABLED=0") // as in the Makefile; the race detector needs cgo
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}

	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}

	if info.Size() > most {
		t.Errorf("the program has %d bytes, want at most %d", info.Size(), most)
	}
}
