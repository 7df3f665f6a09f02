// Package atomicfile replaces files at once. A reader, and a crash, a full disk or a loss of
// power at any moment, finds the content of before or all of the new one.
package atomicfile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// File is the coming content of a file. It is in the same directory under a name with a dot in
// front and ".tmp" behind, which no reader of ours and no container runtime takes for its own.
type File struct {
	*os.File
	path string
	done bool
}

// Create returns an empty File that will replace path. Its directory must exist. The caller must
// Commit or Abort it.
func Create(path string, mode os.FileMode) (*File, error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*.tmp")
	if err != nil {
		return nil, fmt.Errorf("replace %s: %w", path, err)
	}
	out := &File{File: f, path: path}
	if err := f.Chmod(mode); err != nil {
		out.Abort()
		return nil, fmt.Errorf("replace %s: %w", path, err)
	}
	return out, nil
}

// Commit puts the content in place; after it returns nil, that survives a crash. The file stays
// open: the caller closes it. After an error the file of before is there.
func (f *File) Commit() error {
	err := f.Sync()
	if err == nil {
		err = os.Rename(f.Name(), f.path)
	}
	if err != nil {
		return fmt.Errorf("replace %s: %w", f.path, err)
	}
	f.done = true
	if err := syncDir(filepath.Dir(f.path)); err != nil {
		return fmt.Errorf("replace %s: %w", f.path, err)
	}
	return nil
}

// Abort closes the file, and removes what was not committed.
func (f *File) Abort() {
	f.Close()
	if !f.done {
		os.Remove(f.Name())
	}
}

// Write replaces the file at path, whose directory must exist, with one of that mode.
func Write(path string, content []byte, mode os.FileMode) error {
	f, err := Create(path, mode)
	if err != nil {
		return err
	}
	defer f.Abort()
	if _, err := f.Write(content); err != nil {
		return fmt.Errorf("replace %s: %w", path, err)
	}
	return f.Commit()
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
