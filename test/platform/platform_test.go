package platform

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestUseRefusesUnknown: a misspelt platform is refused by name, and nothing is made or changed.
func TestUseRefusesUnknown(t *testing.T) {
	cache, path := t.TempDir(), os.Getenv("PATH")

	err := Use("debian99", cache, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "no platform debian99: debian13, debian12 or host") {
		t.Errorf("error %v, want the platforms that there are", err)
	}

	if left, err := os.ReadDir(cache); err != nil || len(left) > 0 {
		t.Errorf("the cache has %v, %v", left, err)
	}

	if now := os.Getenv("PATH"); now != path {
		t.Errorf("PATH became %q", now)
	}
}

// TestUseReplaces: a platform's programs are found, another one takes its place, and host leaves
// neither.
func TestUseReplaces(t *testing.T) {
	cache, path := t.TempDir(), os.Getenv("PATH")
	t.Setenv("PATH", path)

	for _, env := range []string{"OVS_PKGDATADIR", "OVN_PKGDATADIR"} {
		t.Setenv(env, "")
	}

	if err := Use(Host, cache, io.Discard); err != nil { // make has put one into PATH
		t.Fatal(err)
	}

	path = os.Getenv("PATH")

	const program = "ovs-of-a-platform"

	for _, name := range []string{"one", "two"} {
		dir := filepath.Join(cache, "platform", name, programs)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}

		for _, file := range []string{filepath.Join(dir, program), filepath.Join(cache, "platform", name, made)} {
			if err := os.WriteFile(file, nil, 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}

	for _, name := range []string{"one", "one", "two", "one", "host"} {
		if err := Use(name, cache, io.Discard); err != nil {
			t.Fatal(err)
		}

		root := filepath.Join(cache, "platform", name)
		found, err := exec.LookPath(program)

		wantPath, wantFound, wantOVS, wantOVN := filepath.Join(root, programs)+":"+path, filepath.Join(root, programs, program), filepath.Join(root, "usr/share/openvswitch/s"), filepath.Join(root, "usr/share/ovn/s")
		if name == Host {
			wantPath, wantFound, wantOVS, wantOVN = path, "", "/usr/share/openvswitch/s", "/usr/share/ovn/s"
		}

		if found != wantFound || os.Getenv("PATH") != wantPath || OVSFile("s") != wantOVS || OVNFile("s") != wantOVN {
			t.Errorf("%s: found %q, %v; PATH %q; %s; %s", name, found, err, os.Getenv("PATH"), OVSFile("s"), OVNFile("s"))
		}
	}
}
