// Package atomicfile replaces files at once. A reader, and a crash, a full disk or a loss of
// power at any moment, finds the content of before or all of the new one.
package atomicfile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// File is the coming content of a file. It is in the same directory under a name with a dot in
// front and ".tmp" behind, which no reader of ours and no container runtime takes for its own.
type File struct {
	*os.File
	path string
	done bool
}

// Create returns an empty File that will replace path, and removes what a writer that was killed
// has left. Its directory must exist. The caller must Commit or Abort it.
func Create(path string, mode os.FileMode) (*File, error) {
	if err := Sweep(path); err != nil {
		return nil, err
	}

	out, err := create(path)
	if err == nil {
		if err = out.Chmod(mode); err != nil {
			out.Abort()
		}
	}

	if err != nil {
		return nil, fmt.Errorf("replace %s: %w", path, err)
	}

	return out, nil
}

// create returns a File that is locked, by which Sweep knows that its writer lives.
func create(path string) (*File, error) {
	for {
		f, err := os.CreateTemp(filepath.Dir(path), pattern(path))
		if err != nil {
			return nil, err
		}

		out := &File{File: f, path: path}

		locked := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if locked == nil && out.linked() {
			return out, nil
		}

		out.Abort() // swept before it was locked

		if locked != nil && !errors.Is(locked, unix.EWOULDBLOCK) {
			return nil, locked
		}
	}
}

// linked reports whether the file has a name.
func (f *File) linked() bool {
	var st unix.Stat_t
	return unix.Fstat(int(f.Fd()), &st) == nil && st.Nlink > 0
}

func pattern(path string) string { return "." + filepath.Base(path) + ".*.tmp" }

// Sweep removes what writers of path that were killed have left. The last element of path may be
// "*", for all of a directory's.
func Sweep(path string) error {
	left, err := filepath.Glob(filepath.Join(filepath.Dir(path), pattern(path)))
	if err != nil {
		return fmt.Errorf("remove what is left of %s: %w", path, err)
	}

	for _, l := range left {
		f, err := os.Open(l)
		if errors.Is(err, os.ErrNotExist) {
			continue // done since
		}

		if err != nil {
			return fmt.Errorf("remove what is left of %s: %w", path, err)
		}

		if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
			os.Remove(l)
		}

		f.Close()
	}

	return nil
}

// Commit puts the content in place; after it returns nil, the content survives a crash. The file
// stays open: the caller closes it. After an error the file of before is there.
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
