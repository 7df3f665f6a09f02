package cniconf

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/google/go-cmp/cmp"
)

const (
	flannel = `{"name": "cbr0", "cniVersion": "1.0.0", "plugins": [{"type": "flannel"}, {"type": "portmap"}]}`
	bridge  = `{"name": "net", "cniVersion": "1.0.0", "type": "bridge"}`
	multus  = `{"name": "multus-cni-network", "type": "multus-shim"}`
	own     = `{"name": "ovn-kubernetes", "plugins": [{"type": "ovn-k8s-cni-overlay"}]}`
)

// directory creates a directory with our configuration and these files, and returns its path.
func directory(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()

	files[File] = own
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	return dir
}

// first returns the configuration that a runtime uses.
func first(t *testing.T, dir string) string {
	t.Helper()

	files, err := libcni.ConfFiles(dir, []string{".conf", ".conflist", ".json"})
	if err != nil || len(files) == 0 {
		t.Fatalf("%v, %v", files, err)
	}

	return filepath.Base(files[0])
}

// Configurations that a runtime prefers to ours are found in each syntax, and only those are marked
// as earlier. Not listed are delegating plugins, ovn-kubernetes with the same plugin, and files
// that runtimes ignore.
func TestOthersFindsEarlierConfigurations(t *testing.T) {
	dir := directory(t, map[string]string{
		"00-multus.conf": multus, "10-flannel.conflist": flannel, "05-broken.conf": "{", "10-ovn-kubernetes.conf": `{"type": "ovn-k8s-cni-overlay"}`,
		"87-podman.conflist": bridge, "01-notes.txt": "", "10-a.conflist.bak": flannel,
	})

	got, err := Others(dir)
	if err != nil {
		t.Fatal(err)
	}

	want := []OtherNetwork{
		{Path: filepath.Join(dir, "05-broken.conf"), Earlier: true},
		{Path: filepath.Join(dir, "10-flannel.conflist"), Plugin: "flannel", Earlier: true},
		{Path: filepath.Join(dir, "87-podman.conflist"), Plugin: "bridge"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}

	if none, err := Others(filepath.Join(t.TempDir(), "nosuch")); err != nil || none != nil {
		t.Errorf("no directory: %v, %v", none, err)
	}
}

// After setAside the runtime uses our configuration, also after the owner has rewritten its file.
// restore restores the other files.
func TestSetAsideAndRestore(t *testing.T) {
	dir := directory(t, map[string]string{"10-flannel.conflist": flannel, "87-podman.conflist": bridge})
	if got := first(t, dir); got != "10-flannel.conflist" {
		t.Fatalf("before, a runtime takes %s", got)
	}

	for _, again := range []bool{false, true} {
		if again {
			if err := os.WriteFile(filepath.Join(dir, "10-flannel.conflist"), []byte(bridge), 0o600); err != nil {
				t.Fatal(err)
			}
		}

		if done, err := setAside(dir); err != nil || len(done) == 0 || done[0] != filepath.Join(dir, "10-flannel.conflist") {
			t.Errorf("set aside: %v, %v", done, err)
		}

		if got := first(t, dir); got != File {
			t.Errorf("a runtime takes %s", got)
		}
	}

	if done, err := setAside(dir); err != nil || len(done) > 0 {
		t.Errorf("again: %v, %v", done, err)
	}

	written := filepath.Join(dir, "87-podman.conflist")
	if err := os.WriteFile(written, []byte("new"), 0o600); err != nil {
		t.Fatal(err)
	}

	for range 2 {
		if err := restore(dir); err != nil {
			t.Error(err)
		}
	}

	for name, want := range map[string]string{"10-flannel.conflist": bridge, "87-podman.conflist": "new"} {
		if b, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(b) != want {
			t.Errorf("%s: %q, %v; want %q", name, b, err, want)
		}
	}

	if kept, _ := filepath.Glob(filepath.Join(dir, "*"+keptSuffix)); len(kept) > 0 {
		t.Errorf("left behind: %v", kept)
	}
}
