package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestSize: the linker leaves methods out that nothing calls. A call of reflect's Method with a
// name that is not constant, anywhere in the program, makes it keep all of them: 58 MB. One link
// tells: go build -ldflags=-dumpdep 2>&1 | grep ReflectMethod.
func TestSize(t *testing.T) {
	const most = 45_000_000
	path := filepath.Join(t.TempDir(), "ovnkube")
	if out, err := exec.Command("go", "build", "-ldflags", "-s -w", "-o", path, ".").CombinedOutput(); err != nil {
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
