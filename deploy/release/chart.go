package main

import (
	"fmt"
	"path"
	"strings"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"sigs.k8s.io/yaml"
)

// developmentImages are the lines of values.yaml in the repository that have an image, and the
// names of the images. A release has its own version in their place.
var developmentImages = map[string]string{"image: ovn-ebpf:dev\n": ourImage, "  image: ovn-ebpf-ovn:dev\n": ovnImage}

// chart packs the Helm chart with the release's version and images.
func (r *release) chart() error {
	c, err := loader.LoadDir(path.Join(r.top, "deploy/helm/ovn-ebpf"))
	if err != nil {
		return err
	}

	c.Metadata.Version, c.Metadata.AppVersion = r.version, r.version
	if err := c.Validate(); err != nil {
		return err
	}

	metadata, err := yaml.Marshal(c.Metadata)
	if err != nil {
		return err
	}

	var files []file

	for _, f := range c.Raw {
		content := f.Data
		switch f.Name {
		case "Chart.yaml":
			content = metadata
		case "values.yaml":
			if content, err = r.values(f); err != nil {
				return err
			}
		}

		files = append(files, file{name: path.Join(c.Name(), f.Name), mode: 0o644, content: content})
	}

	return r.writeTarball(r.chartName(), files)
}

// chartName is the file name of the packed chart.
func (r *release) chartName() string { return fmt.Sprintf("ovn-ebpf-%s.tgz", r.version) }

// values returns values.yaml with the release's images.
func (r *release) values(f *chart.File) ([]byte, error) {
	text := string(f.Data)
	for line, image := range developmentImages {
		if n := strings.Count(text, line); n != 1 {
			return nil, fmt.Errorf("values.yaml has %q %d times, want 1", line, n)
		}

		text = strings.Replace(text, line, strings.Replace(line, image+":dev", r.reference(image), 1), 1)
	}

	return []byte(text), nil
}
