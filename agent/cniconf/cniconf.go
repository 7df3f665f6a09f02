// Package cniconf looks after the other files in the directory of CNI configurations. A container
// runtime takes the first one by name, so another network's file may keep pods from ours.
package cniconf

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Plugin is our plugin's type.
const Plugin = "ovn-k8s-cni-overlay"

// keptSuffix is behind the name of a file that is set aside: no runtime reads it.
const keptSuffix = ".ovn-ebpf-kept"

// Other is another network's configuration.
type Other struct {
	Path    string
	Plugin  string // type of its first plugin; "" where it cannot be read
	Earlier bool   // runtimes take it before ours
}

// Others returns the other networks' configurations beside ours, in the order in which runtimes
// read them. A delegating plugin, like Multus, is none: it comes first and calls ours.
func Others(ours string) ([]Other, error) {
	files, err := os.ReadDir(filepath.Dir(ours))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read CNI configurations: %w", err)
	}
	var out []Other
	for _, f := range files { // sorted by name, as runtimes sort them
		name := f.Name()
		if f.IsDir() || name == filepath.Base(ours) || !slices.Contains([]string{".conf", ".conflist", ".json"}, filepath.Ext(name)) {
			continue
		}
		o := Other{Path: filepath.Join(filepath.Dir(ours), name), Earlier: name < filepath.Base(ours)}
		if o.Plugin = pluginOf(o.Path); o.Plugin == Plugin || strings.HasPrefix(o.Plugin, "multus") {
			continue
		}
		out = append(out, o)
	}
	return out, nil
}

// pluginOf returns the type of a configuration's first plugin.
func pluginOf(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	var c struct {
		Type    string
		Plugins []struct{ Type string }
	}
	if json.Unmarshal(b, &c) != nil {
		return ""
	}
	if len(c.Plugins) > 0 {
		return c.Plugins[0].Type
	}
	return c.Type
}

// SetAside renames the other networks' configurations, so that no runtime reads them, and returns
// their paths. Restore is the way back.
func SetAside(ours string) ([]string, error) {
	others, err := Others(ours)
	if err != nil {
		return nil, err
	}
	var done []string
	var errs []error
	for _, o := range others {
		if err := os.Rename(o.Path, o.Path+keptSuffix); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, fmt.Errorf("set CNI configuration aside: %w", err))
			continue
		}
		done = append(done, o.Path)
	}
	return done, errors.Join(errs...)
}

// Restore renames the files in dir that SetAside has renamed to what they were. A file that has
// been written again under its old name stays as it is.
func Restore(dir string) error {
	kept, err := filepath.Glob(filepath.Join(dir, "*"+keptSuffix))
	if err != nil {
		return err
	}
	var errs []error
	for _, path := range kept {
		// Unlike a rename, a link replaces no file.
		err := os.Link(path, strings.TrimSuffix(path, keptSuffix))
		if err == nil || errors.Is(err, os.ErrExist) {
			err = os.Remove(path)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("restore CNI configuration: %w", err))
		}
	}
	return errors.Join(errs...)
}
