// Package cniconf handles the directory of CNI configurations, usually /etc/cni/net.d: our file,
// which exists while the node is ready (Announcer), and those of other networks (this file). A
// container runtime uses the first file by name, so another network's file may keep pods off this
// network.
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

// Plugin is the type of our plugin in a configuration, which is also the name of its program.
const Plugin = "ovn-k8s-cni-overlay"

// keptSuffix marks a file that was set aside, so that runtimes do not read it.
const keptSuffix = ".ovn-ebpf-kept"

// OtherNetwork is the configuration of another network.
type OtherNetwork struct {
	Path    string
	Plugin  string // type of its first plugin; "" if unreadable
	Earlier bool   // runtimes prefer it to ours
}

// Others returns the configurations of other networks in dir, in the order in which runtimes read
// them. It omits Multus, whose configuration comes first and delegates to ours.
func Others(dir string) ([]OtherNetwork, error) {
	files, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}

	if err != nil {
		return nil, fmt.Errorf("read CNI configurations: %w", err)
	}

	var out []OtherNetwork

	for _, f := range files { // ReadDir sorts by name, as runtimes do
		name := f.Name()
		if f.IsDir() || name == File ||
			!slices.Contains([]string{".conf", ".conflist", ".json"}, filepath.Ext(name)) {
			continue
		}

		o := OtherNetwork{Path: filepath.Join(dir, name), Earlier: name < File}
		if o.Plugin = pluginOf(o.Path); o.Plugin == Plugin || strings.HasPrefix(o.Plugin, "multus") {
			continue
		}

		out = append(out, o)
	}

	return out, nil
}

// Preferred returns the configurations that runtimes prefer to ours.
func Preferred(others []OtherNetwork) []OtherNetwork {
	return slices.DeleteFunc(slices.Clone(others), func(o OtherNetwork) bool { return !o.Earlier })
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

// setAside renames the configurations of other networks in dir, so that runtimes ignore them, and
// returns their former paths. Remove undoes it.
func setAside(dir string) ([]string, error) {
	others, err := Others(dir)
	if err != nil {
		return nil, err
	}

	var (
		done []string
		errs []error
	)

	for _, o := range others {
		if err := os.Rename(o.Path, o.Path+keptSuffix); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, fmt.Errorf("set CNI configuration aside: %w", err))
			continue
		}

		done = append(done, o.Path)
	}

	return done, errors.Join(errs...)
}

// restore undoes setAside in dir. If the old name is in use again, it removes the renamed file.
func restore(dir string) error {
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
