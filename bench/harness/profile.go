package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// leaveSymbols copies the kernel's symbols to the directory that bench/run reads, while the
// variant's modules and programs are still loaded.
func leaveSymbols(dir string) error {
	if dir == "" {
		return errors.New("leave symbols: no VM_OUT to put them into")
	}

	data, err := os.ReadFile("/proc/kallsyms")
	if err != nil {
		return fmt.Errorf("leave symbols: %w", err)
	}

	return os.WriteFile(filepath.Join(dir, "kallsyms"), data, 0o644)
}
