package openstack

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// locations returns the paths at which clouds.yaml may be, in the order in which OpenStack's own
// clients look for it. file, if not "", is the only one, or else the environment variable
// OS_CLIENT_CONFIG_FILE.
func locations(file string) []string {
	if file == "" {
		file = os.Getenv("OS_CLIENT_CONFIG_FILE")
	}

	if file != "" {
		return []string{file}
	}

	all := []string{"clouds.yaml"}
	if dir, err := os.UserConfigDir(); err == nil {
		all = append(all, filepath.Join(dir, "openstack", "clouds.yaml"))
	}

	return append(all, "/etc/openstack/clouds.yaml")
}

// checkCloud returns the path of clouds.yaml, and checks that the file has an entry of that name.
// Otherwise, its error says where to write the entry, or lists those that exist.
func checkCloud(file, name string) (string, error) {
	all := locations(file)

	var (
		path string
		text []byte
	)

	for _, path = range all {
		var err error
		if text, err = os.ReadFile(path); err == nil {
			break
		}

		if !errors.Is(err, os.ErrNotExist) {
			return path, fmt.Errorf("read clouds.yaml: %w", err)
		}
	}

	if text == nil {
		return "", fmt.Errorf("there is no file %s: write the credentials of the project to "+
			"it, or name another file by --clouds-file", strings.Join(all, " or "))
	}

	var content struct {
		Clouds map[string]any `json:"clouds"`
	}
	if err := yaml.Unmarshal(text, &content); err != nil {
		return path, fmt.Errorf("read %s: %w", path, err)
	}

	if _, exists := content.Clouds[name]; exists {
		return path, nil
	}

	var names []string
	for n := range content.Clouds {
		names = append(names, n)
	}

	slices.Sort(names)

	if len(names) == 0 {
		return path, fmt.Errorf("%s has no entries below \"clouds:\"", path)
	}

	return path, fmt.Errorf("%s has no entry %q: name one of its entries by --cloud: %s",
		path, name, strings.Join(names, ", "))
}
