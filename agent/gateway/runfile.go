package gateway

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/ovn-ebpf/ovn-ebpf/atomicfile"
)

// runFile is a JSON file in the agent's run directory, with a value with which the next agent
// continues.
type runFile[T any] struct{ path string }

func newRunFile[T any](rundir, name string) runFile[T] {
	return runFile[T]{filepath.Join(rundir, name)}
}

// read returns the value. Without a file it returns the zero value.
func (f runFile[T]) read() (T, error) {
	var value, zero T

	b, err := os.ReadFile(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return zero, nil
	}

	if err == nil {
		err = json.Unmarshal(b, &value)
	}

	if err != nil {
		return zero, fmt.Errorf("read %s: %w", f.path, err)
	}

	return value, nil
}

func (f runFile[T]) write(value T) error {
	b, err := json.Marshal(value)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(f.path), 0o755)
	}

	if err == nil {
		err = atomicfile.Write(f.path, append(b, '\n'), 0o644)
	}

	if err != nil {
		return fmt.Errorf("write %s: %w", f.path, err)
	}

	return nil
}

// removeRunFiles removes addressFile and routesFile, if they exist.
func removeRunFiles(rundir string) error {
	var errs []error

	for _, name := range []string{addressFile, routesFile} {
		if err := os.Remove(filepath.Join(rundir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("remove the agent's record: %w", err))
		}
	}

	return errors.Join(errs...)
}
