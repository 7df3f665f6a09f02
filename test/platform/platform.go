// Package platform chooses the release of OVN, Open vSwitch and etcd that tests and labs run.
package platform

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	_ "embed"
)

// Env is the environment variable that names the platform.
const Env = "OVN_EBPF_PLATFORM"

// Host is this machine's own OVN, Open vSwitch and etcd.
const Host = "host"

const (
	reference = "debian13" // the default
	programs  = "usr/platform/bin"
	made      = "usr/platform/made"
)

//go:embed root
var script string

var use sync.Mutex

// Name returns the platform that the environment names, or the default one.
func Name() string { return cmp.Or(os.Getenv(Env), reference) }

// CacheDir returns the directory of what is built once: OVN_EBPF_CACHE or its default.
func CacheDir() string { return cmp.Or(os.Getenv("OVN_EBPF_CACHE"), "/var/cache/ovn-ebpf") }

// Default is Use of Name in CacheDir, for tests.
func Default(progress io.Writer) error { return Use(Name(), CacheDir(), progress) }

// Use makes the programs of this process and its children those of the named platform, in place of
// an earlier one: PATH has their directory first, and OVS_PKGDATADIR and OVN_PKGDATADIR name their
// schemas. A platform that is not below the cache yet is made, which takes a minute and is said on
// progress.
func Use(name, cache string, progress io.Writer) error {
	use.Lock()
	defer use.Unlock()

	paths := filepath.SplitList(os.Getenv("PATH"))

	others := slices.DeleteFunc(slices.Clone(paths), func(dir string) bool { return strings.HasSuffix(dir, "/"+programs) })
	if name == Host || name == "" {
		if len(others) == len(paths) {
			return nil
		}

		return set(map[string]string{"PATH": join(others), "OVS_PKGDATADIR": "", "OVN_PKGDATADIR": ""})
	}

	root, err := filepath.Abs(filepath.Join(cache, "platform", name))
	if err != nil {
		return fmt.Errorf("find platform %s: %w", name, err)
	}

	if _, err := os.Stat(filepath.Join(root, made)); err != nil {
		if err := build(name, root, progress); err != nil {
			return err
		}
	}

	return set(map[string]string{
		"PATH":           join(append([]string{filepath.Join(root, programs)}, others...)),
		"OVS_PKGDATADIR": filepath.Join(root, "usr/share/openvswitch"),
		"OVN_PKGDATADIR": filepath.Join(root, "usr/share/ovn"),
	})
}

func join(paths []string) string { return strings.Join(paths, string(filepath.ListSeparator)) }

// set changes the environment. An empty value removes a variable.
func set(environment map[string]string) error {
	var errs []error

	for key, value := range environment {
		switch {
		case os.Getenv(key) == value:
		case value == "":
			errs = append(errs, os.Unsetenv(key))
		default:
			errs = append(errs, os.Setenv(key, value))
		}
	}

	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("use platform: %w", err)
	}

	return nil
}

// build makes the platform's root directory where it is missing.
func build(name, root string, progress io.Writer) error {
	cmd := exec.Command("bash", "-s", "--", name, root)
	cmd.Stdin, cmd.Stdout = strings.NewReader(script), progress

	var stderr strings.Builder

	cmd.Stderr = &stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("make platform %s: %w: %s", name, err, strings.TrimSpace(stderr.String()))
	}

	return nil
}

// OVSFile returns the path of a file of Open vSwitch's package data, like vswitch.ovsschema.
func OVSFile(name string) string { return dataFile("OVS_PKGDATADIR", "/usr/share/openvswitch", name) }

// OVNFile returns the path of a file of OVN's package data, like ovn-nb.ovsschema.
func OVNFile(name string) string { return dataFile("OVN_PKGDATADIR", "/usr/share/ovn", name) }

func dataFile(env, otherwise, name string) string {
	return filepath.Join(cmp.Or(os.Getenv(env), otherwise), name)
}
