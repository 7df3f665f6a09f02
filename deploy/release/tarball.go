package main

import (
	"archive/tar"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// file is an entry of an archive: a regular file, a directory, or a symbolic link. It has neither
// times nor owners, so that two builds make equal archives.
type file struct {
	name    string // without a leading slash; a directory ends with one
	mode    int64
	content []byte
	link    string // target of a symbolic link
}

// writeTar writes the files sorted by name. All have the same time and belong to root.
func writeTar(w io.Writer, files []file, when time.Time) error {
	out := tar.NewWriter(w)

	slices.SortFunc(files, func(a, b file) int { return strings.Compare(a.name, b.name) })

	for _, f := range files {
		h := &tar.Header{
			Name:     f.name,
			Mode:     f.mode,
			Size:     int64(len(f.content)),
			ModTime:  when,
			Typeflag: tar.TypeReg,
			Format:   tar.FormatUSTAR,
		}
		switch {
		case f.link != "":
			h.Typeflag, h.Linkname = tar.TypeSymlink, f.link
		case strings.HasSuffix(f.name, "/"):
			h.Typeflag = tar.TypeDir
		}

		if err := out.WriteHeader(h); err != nil {
			return fmt.Errorf("write %s: %w", f.name, err)
		}

		if _, err := out.Write(f.content); err != nil {
			return fmt.Errorf("write %s: %w", f.name, err)
		}
	}

	return out.Close()
}

// writeTarball writes a compressed tar file into the directory of artifacts.
func (r *release) writeTarball(name string, files []file) error {
	f, err := os.Create(filepath.Join(r.out, name))
	if err != nil {
		return err
	}
	defer f.Close()

	z, err := gzip.NewWriterLevel(f, gzip.BestCompression)
	if err != nil {
		return err
	}

	if err := writeTar(z, files, r.date); err != nil {
		return err
	}

	if err := z.Close(); err != nil {
		return err
	}

	return f.Close()
}

// tarball packs programs, licence, systemd units and plain manifests.
func (r *release) tarball(a arch) error {
	dir := fmt.Sprintf("ovn-ebpf-%s-linux-%s", r.version, a.name)

	var files []file

	add := func(from, to string, mode int64) error {
		b, err := os.ReadFile(from)
		files = append(files, file{name: path.Join(dir, to), mode: mode, content: b})

		return err
	}

	for _, p := range programs {
		if err := add(filepath.Join(a.programs, p), path.Join("bin", p), 0o755); err != nil {
			return err
		}
	}

	for _, name := range []string{"LICENSE", "README.md", "CHANGELOG.md"} {
		if err := add(filepath.Join(r.top, name), name, 0o644); err != nil {
			return err
		}
	}

	entries, err := os.ReadDir(filepath.Join(r.top, "deploy/systemd"))
	if err != nil {
		return err
	}

	for _, e := range entries {
		unit := path.Join("deploy/systemd", e.Name())
		if err := add(filepath.Join(r.top, unit), unit, 0o644); err != nil {
			return err
		}
	}

	for name, content := range r.manifests {
		name = path.Join(dir, "deploy/manifests", name)
		files = append(files, file{name: name, mode: 0o644, content: content})
	}

	return r.writeTarball(dir+".tar.gz", files)
}
