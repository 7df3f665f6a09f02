// Package platform chooses the release of OVN, Open vSwitch and etcd that tests and labs run.
package platform

import (
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

//go:embed root
var script string

var use sync.Mutex

// Name returns the platform that the environment names, or the default one.
func Name() string {
	if name := os.Getenv(Env); name != "" {
		return name
	}
	return Host
}

// Use makes the programs of this process and its children those of the named platform: PATH has
// their directory first, and OVS_PKGDATADIR and OVN_PKGDATADIR name their schemas. A platform that
// is not below the cache yet is made, which takes a minute and is said on progress.
func Use(name, cache string, progress io.Writer) error {
	if name == Host || name == "" {
		return nil
	}
	use.Lock()
	defer use.Unlock()
	root, err := filepath.Abs(filepath.Join(cache, "platform", name))
	if err != nil {
		return fmt.Errorf("find platform %s: %w", name, err)
	}
	bin := filepath.Join(root, "usr/platform/bin")
	paths := filepath.SplitList(os.Getenv("PATH"))
	if slices.Contains(paths, bin) {
		return nil
	}
	if err := build(name, root, progress); err != nil {
		return err
	}
	for key, value := range map[string]string{
		"PATH":           strings.Join(append([]string{bin}, paths...), string(filepath.ListSeparator)),
		"OVS_PKGDATADIR": filepath.Join(root, "usr/share/openvswitch"),
		"OVN_PKGDATADIR": filepath.Join(root, "usr/share/ovn"),
	} {
		if err := os.Setenv(key, value); err != nil {
			return fmt.Errorf("use platform %s: %w", name, err)
		}
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
	if dir := os.Getenv(env); dir != "" {
		otherwise = dir
	}
	return filepath.Join(otherwise, name)
}
