// Package atomicfile replaces files atomically. At any moment, a reader finds the complete old or
// the complete new content. The same holds after a crash, a loss of power, or an error such as a
// full disk.
//
// The new content is written to a temporary file in the same directory, which is synced and then
// renamed. Write does all of this. Create, File.Commit and File.Abort are for content that is
// written in parts.
package atomicfile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// File is the new content of a file until Commit. It is in the same directory, under a hidden name
// that ends in ".tmp". Readers of the directory, such as container runtimes, ignore such names.
type File struct {
	*os.File
	path        string // of the file that it replaces
	isCommitted bool
}

// Create returns an empty File that replaces path at Commit. The directory must exist. The caller
// must Commit or Abort the File. Create also removes the files of writers that were killed.
func Create(path string, mode os.FileMode) (*File, error) {
	if err := Sweep(path); err != nil {
		return nil, err
	}

	f, err := createLocked(path)
	if err != nil {
		return nil, fmt.Errorf("replace %s: %w", path, err)
	}

	if err := f.Chmod(mode); err != nil {
		f.Abort()
		return nil, fmt.Errorf("replace %s: %w", path, err)
	}

	return f, nil
}

// createLocked creates the temporary file and locks it. Sweep leaves a locked file alone, because
// its writer is alive.
func createLocked(path string) (*File, error) {
	for {
		temporary, err := os.CreateTemp(filepath.Dir(path), temporaryPattern(path))
		if err != nil {
			return nil, err
		}

		f := &File{File: temporary, path: path}

		errLock := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if errLock == nil && f.exists() {
			return f, nil
		}

		f.Abort()

		// Sweep of another writer has locked or removed the file before it was locked here: try again.
		if errLock != nil && !errors.Is(errLock, unix.EWOULDBLOCK) {
			return nil, errLock
		}
	}
}

// exists reports whether the file still has a name.
func (f *File) exists() bool {
	var st unix.Stat_t
	return unix.Fstat(int(f.Fd()), &st) == nil && st.Nlink > 0
}

// temporaryPattern returns the pattern of the names of temporary files for path, for os.CreateTemp
// and filepath.Glob.
func temporaryPattern(path string) string { return "." + filepath.Base(path) + ".*.tmp" }

// Sweep removes the temporary files of writers of path that were killed. The last element of path
// may be "*", which stands for all files of the directory.
func Sweep(path string) error {
	leftovers, err := filepath.Glob(filepath.Join(filepath.Dir(path), temporaryPattern(path)))
	if err != nil {
		return fmt.Errorf("remove what is left of %s: %w", path, err)
	}

	for _, leftover := range leftovers {
		f, err := os.Open(leftover)
		if errors.Is(err, os.ErrNotExist) {
			continue // its writer has committed it in the meantime
		}

		if err != nil {
			return fmt.Errorf("remove what is left of %s: %w", path, err)
		}

		if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil { // the writer was killed
			os.Remove(leftover)
		}

		f.Close()
	}

	return nil
}

// Commit replaces the file. If Commit returns nil, the new content survives a crash. After an
// error, the old file may still be in place. The caller closes the File, which stays open.
func (f *File) Commit() error {
	err := f.Sync()
	if err == nil {
		err = os.Rename(f.Name(), f.path)
	}

	if err != nil {
		return fmt.Errorf("replace %s: %w", f.path, err)
	}

	f.isCommitted = true
	if err := syncDir(filepath.Dir(f.path)); err != nil {
		return fmt.Errorf("replace %s: %w", f.path, err)
	}

	return nil
}

// Abort closes the File. Unless it is committed, Abort removes it and the old file stays.
func (f *File) Abort() {
	f.Close()

	if !f.isCommitted {
		os.Remove(f.Name())
	}
}

// Write replaces the file at path with one of this content and mode. The directory must exist.
func Write(path string, content []byte, mode os.FileMode) error {
	f, err := Create(path, mode)
	if err != nil {
		return err
	}
	defer f.Abort() // after Commit, it only closes the file

	if _, err := f.Write(content); err != nil {
		return fmt.Errorf("replace %s: %w", path, err)
	}

	return f.Commit()
}

// syncDir makes changes of names in the directory survive a crash.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}

	return errors.Join(d.Sync(), d.Close())
}
