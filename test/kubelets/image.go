package kubelets

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// image is a container image of one layer, built from this machine's files.
type image struct {
	names      []string // with registry and tag
	entrypoint []string
	command    []string
	files      map[string]string // path in the image → file here
	links      map[string]string // path in the image → its target
	dirs       []string
	content    map[string]string // path in the image → content
}

// add adds programs with their libraries: this machine's at the same paths, the platform's in
// /usr/bin.
func (i *image) add(programs ...string) error {
	for _, name := range programs {
		file, err := exec.LookPath(name)
		if err != nil {
			return err
		}

		at := file
		if filepath.Base(filepath.Dir(filepath.Dir(file))) == "platform" {
			at = "/usr/bin/" + name
		}

		i.files[at] = file

		out, err := exec.Command("ldd", file).CombinedOutput()
		if err != nil && !bytes.Contains(out, []byte("not a dynamic executable")) {
			return fmt.Errorf("list libraries of %s: %w: %s", file, err, bytes.TrimSpace(out))
		}

		for _, word := range strings.Fields(string(out)) {
			if strings.HasPrefix(word, "/") {
				i.files[word] = word
			}
		}
	}

	return nil
}

// write writes an archive in the format of `docker save`, which containerd imports.
func (i *image) write(file string) error {
	layer, err := i.layer()
	if err != nil {
		return fmt.Errorf("make image %s: %w", i.names[0], err)
	}

	config, err := json.Marshal(map[string]any{
		"architecture": "amd64", "os": "linux",
		"config": map[string]any{"Entrypoint": i.entrypoint, "Cmd": i.command, "Env": []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + digest(layer)}},
	})
	if err != nil {
		return err
	}

	manifest, err := json.Marshal([]any{map[string]any{"Config": "config.json", "RepoTags": i.names, "Layers": []string{"layer.tar"}}})
	if err != nil {
		return err
	}

	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer f.Close()

	w := tar.NewWriter(f)
	for _, part := range []struct {
		name    string
		content []byte
	}{{"config.json", config}, {"layer.tar", layer}, {"manifest.json", manifest}} {
		if err := put(w, part.name, 0o644, part.content); err != nil {
			return err
		}
	}

	return w.Close()
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// layer returns the layer. In a merged /usr layout, files below /bin, /sbin and /lib* are stored
// below /usr, with links in their place.
func (i *image) layer() ([]byte, error) {
	var b bytes.Buffer

	w := tar.NewWriter(&b)

	made := map[string]bool{}
	for _, dir := range slices.Sorted(slices.Values(append([]string{"/tmp", "/usr/bin", "/usr/sbin", "/usr/lib", "/usr/lib64"}, i.dirs...))) {
		if err := putDir(w, dir, made); err != nil {
			return nil, err
		}
	}

	links := map[string]string{"/bin": "usr/bin", "/sbin": "usr/sbin", "/lib": "usr/lib", "/lib64": "usr/lib64", "/var/run": "../run"}
	for at, to := range i.links {
		links[at] = to
	}

	for at, to := range links {
		if err := putDir(w, path.Dir(at), made); err != nil {
			return nil, err
		}

		if err := w.WriteHeader(&tar.Header{Name: at[1:], Typeflag: tar.TypeSymlink, Linkname: to, Mode: 0o777}); err != nil {
			return nil, err
		}
	}

	written := map[string]bool{}

	write := func(at string, mode os.FileMode, content []byte) error {
		if written[at] {
			return nil
		}

		written[at] = true
		if err := putDir(w, path.Dir(at), made); err != nil {
			return err
		}

		return put(w, at[1:], int64(mode.Perm()), content)
	}
	for at, file := range i.files {
		content, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}

		st, err := os.Stat(file)
		if err != nil {
			return nil, err
		}

		if err := write(merged(at), st.Mode(), content); err != nil {
			return nil, err
		}
	}

	for at, content := range i.content {
		if err := write(at, 0o644, []byte(content)); err != nil {
			return nil, err
		}
	}

	if err := w.Close(); err != nil {
		return nil, err
	}

	return b.Bytes(), nil
}

// merged returns the path on a system where /bin is a link to /usr/bin.
func merged(p string) string {
	first, _, _ := strings.Cut(strings.TrimPrefix(p, "/"), "/")
	if slices.Contains([]string{"bin", "sbin", "lib", "lib64"}, first) {
		return filepath.Join("/usr", p)
	}

	return filepath.Clean(p)
}

func putDir(w *tar.Writer, dir string, made map[string]bool) error {
	if dir == "/" || made[dir] {
		return nil
	}

	if err := putDir(w, path.Dir(dir), made); err != nil {
		return err
	}

	made[dir] = true

	mode := int64(0o755)
	if dir == "/tmp" {
		mode = 0o1777
	}

	return w.WriteHeader(&tar.Header{Name: dir[1:] + "/", Typeflag: tar.TypeDir, Mode: mode})
}

func put(w *tar.Writer, name string, mode int64, content []byte) error {
	if err := w.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: mode, Size: int64(len(content))}); err != nil {
		return err
	}

	_, err := w.Write(content)

	return err
}
