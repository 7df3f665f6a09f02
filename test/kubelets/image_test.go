package kubelets

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
)

func TestImage(t *testing.T) {
	dir := t.TempDir()

	file := filepath.Join(dir, "program")
	if err := os.WriteFile(file, []byte("program"), 0o755); err != nil {
		t.Fatal(err)
	}

	i := &image{
		names: []string{"registry.example/a:1"}, entrypoint: []string{"/program"},
		files: map[string]string{"/program": file, "/lib/a": file, "/usr/lib/a": file}, links: map[string]string{"/b": "program"},
		content: map[string]string{"/etc/c": "c"},
	}

	layer, err := i.layer()
	if err != nil {
		t.Fatal(err)
	}

	if err := i.write(filepath.Join(dir, "layer-in.tar")); err != nil {
		t.Fatal(err)
	}

	if err := os.WriteFile(filepath.Join(dir, "layer.tar"), layer, 0o644); err != nil {
		t.Fatal(err)
	}

	if !bytes.HasSuffix(layer, make([]byte, 1024)) {
		t.Error("the layer has no end of archive")
	}

	got := entries(t, filepath.Join(dir, "layer.tar"))
	for name, mode := range map[string]int64{
		"program": 0o755, "usr/lib/a": 0o755, "etc/c": 0o644, "b": 0o777, "lib": 0o777, "usr/lib/": 0o755, "tmp/": 0o1777,
	} {
		if h := got[name]; h == nil || h.Mode != mode {
			t.Errorf("layer has %s as %+v, want mode %o", name, h, mode)
		}
	}

	if outer := entries(t, filepath.Join(dir, "layer-in.tar")); len(outer) != 3 || outer["manifest.json"] == nil {
		t.Errorf("archive has %v", outer)
	}
}

// entries reads an archive and fails on duplicates.
func entries(t *testing.T, file string) map[string]*tar.Header {
	t.Helper()

	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()

	got := map[string]*tar.Header{}

	for r := tar.NewReader(f); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return got
		}

		if err != nil {
			t.Fatal(err)
		}

		if got[h.Name] != nil {
			t.Errorf("%s is twice in %s", h.Name, file)
		}

		got[h.Name] = h
	}
}

// A program is added with its libraries.
func TestPrograms(t *testing.T) {
	i := &image{names: []string{"a"}, files: map[string]string{}}
	if err := i.add("bash"); err != nil {
		t.Fatal(err)
	}

	libc := false
	for at := range i.files {
		libc = libc || filepath.Base(at) == "libc.so.6"
	}

	if !libc {
		t.Errorf("no libc with bash: %v", i.files)
	}

	if err := i.add("no-such-program"); err == nil {
		t.Error("a missing program was added")
	}
}
