package main

import (
	"context"
	"os"
	"path/filepath"
	"testing"
)

func TestInstall(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cni", "bin")

	plugin := filepath.Join(dir, pluginName)
	for range 2 {
		if err := runInstaller(t.Context(), []string{"install", dir}); err != nil {
			t.Fatal(err)
		}
	}

	self, err := os.Stat("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}

	if info, err := os.Stat(plugin); err != nil || info.Mode().Perm() != 0o755 || info.Size() != self.Size() {
		t.Errorf("plugin %v, error %v", info, err)
	}
	// An open file remains the old program.
	open, err := os.Open(plugin)
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()

	other := filepath.Join(t.TempDir(), "other")
	if err := os.WriteFile(other, []byte("other"), 0o755); err != nil {
		t.Fatal(err)
	}

	if err := install(other, dir); err != nil {
		t.Fatal(err)
	}

	if info, err := open.Stat(); err != nil || info.Size() != self.Size() {
		t.Errorf("the file was written to: %v, error %v", info, err)
	}
	// With a directory in the plugin's place, a failed attempt leaves no files.
	blocked := t.TempDir()
	if err := os.MkdirAll(filepath.Join(blocked, pluginName, "x"), 0o755); err != nil {
		t.Fatal(err)
	}

	if err := install(other, blocked); err == nil {
		t.Error("installed over a directory")
	}

	for _, d := range []string{dir, blocked} {
		if entries, err := os.ReadDir(d); err != nil || len(entries) != 1 {
			t.Errorf("%s has %v, error %v", d, entries, err)
		}
	}

	ended, cancel := context.WithCancel(t.Context())
	cancel()

	for range 2 {
		if err := runInstaller(ended, []string{"uninstall", "--stay", dir}); err != nil {
			t.Error(err)
		}
	}

	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
		t.Errorf("left: %v, error %v", entries, err)
	}

	for _, args := range [][]string{{"install"}, {"nonsense", dir}, {"uninstall", "--stay"}} {
		if err := runInstaller(ended, args); err == nil {
			t.Errorf("%v: no error", args)
		}
	}
}
