package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// images writes the two container images, and returns the Debian packages whose files they contain.
// Their versions are separate, so that an update of the agent restarts no daemon of OVN and Open
// vSwitch.
func (r *release) images(ctx context.Context, a arch) ([]debianPackage, error) {
	d, err := r.unpack(ctx, a)
	if err != nil {
		return nil, err
	}

	// Debian chooses between variants of vswitchd by this link.
	vswitchd := file{
		name: "usr/sbin/ovs-vswitchd",
		mode: 0o777,
		link: "../lib/openvswitch-switch/ovs-vswitchd",
	}

	var all []debianPackage

	for _, i := range []struct {
		name        string
		tools, data []string
		links       []file
	}{
		{name: ourImage, tools: toolsOfAgent},
		{name: ovnImage, tools: toolsOfOVN, data: schemas, links: []file{vswitchd}},
	} {
		files, packages, err := d.files(i.tools, i.data)
		if err == nil {
			err = r.image(a, i.name, append(files, i.links...), packages)
		}

		if err != nil {
			return nil, fmt.Errorf("%s: %w", i.name, err)
		}

		for _, p := range packages {
			if !slices.Contains(all, p) {
				all = append(all, p)
			}
		}
	}

	return all, nil
}

const (
	ourImage = "ovn-ebpf"     // controller, agent and the plugin's installation
	ovnImage = "ovn-ebpf-ovn" // the daemons of OVN and Open vSwitch
)

// image writes a container image as `docker save` does, which docker and containerd load. It has
// both programs, and of Debian only these files: no shell, no package manager.
func (r *release) image(a arch, image string, files []file, packages []debianPackage) error {
	for _, p := range programs {
		b, err := os.ReadFile(filepath.Join(a.programs, p))
		if err != nil {
			return err
		}

		files = append(files, file{name: "usr/bin/" + p, mode: 0o755, content: b})
	}

	var list strings.Builder
	for _, p := range packages {
		fmt.Fprintln(&list, p.Name, p.Version)
	}

	files = append(files, file{name: "packages", mode: 0o644, content: []byte(list.String())})
	for _, link := range mergedDirs {
		files = append(files, file{name: link, mode: 0o777, link: "usr/" + link})
	}

	// Container runtimes have network namespaces below /var/run, and Open vSwitch has its sockets
	// there.
	files = append(files,
		file{name: "tmp/", mode: 0o1777},
		file{name: "run/", mode: 0o755},
		file{name: "var/run", mode: 0o777, link: "../run"})
	files = withDirectories(files)

	var layer bytes.Buffer
	if err := writeTar(&layer, files, r.date); err != nil {
		return err
	}

	img, err := r.imageOf(layer.Bytes(), a.name, image)
	if err != nil {
		return err
	}

	tag, err := name.NewTag(r.reference(image))
	if err != nil {
		return err
	}

	archive := fmt.Sprintf("%s-%s-image-%s.tar", image, r.version, a.name)

	return tarball.WriteToFile(filepath.Join(r.out, archive), tag, img)
}

// imageOf returns an image with one layer, which runs ovnkube.
func (r *release) imageOf(layer []byte, arch, title string) (v1.Image, error) {
	l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(layer)), nil
	})
	if err != nil {
		return nil, err
	}

	img, err := mutate.AppendLayers(empty.Image, l)
	if err != nil {
		return nil, err
	}

	config, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}

	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = "linux", arch, v1.Time{Time: r.date}

	config.Config = v1.Config{
		Entrypoint: []string{"/usr/bin/ovnkube"},
		Env:        []string{"PATH=/usr/sbin:/usr/bin"},
		Labels: map[string]string{
			"org.opencontainers.image.title":    title,
			"org.opencontainers.image.version":  r.version,
			"org.opencontainers.image.revision": r.commit,
			"org.opencontainers.image.licenses": "Apache-2.0",
			"org.opencontainers.image.source":   "https://github.com/ovn-ebpf/ovn-ebpf",
		},
	}

	return mutate.ConfigFile(img, config)
}

// reference returns an image's name with its tag, also in the chart.
func (r *release) reference(image string) string {
	return image + ":" + strings.ReplaceAll(r.version, "+", "-")
}

// withDirectories adds the directories of all files.
func withDirectories(files []file) []file {
	isListed := map[string]bool{}
	for _, f := range files {
		isListed[f.name] = true
	}

	for _, f := range slices.Clone(files) {
		for dir := path.Dir(strings.TrimSuffix(f.name, "/")); dir != "."; dir = path.Dir(dir) {
			if !isListed[dir+"/"] {
				isListed[dir+"/"] = true
				files = append(files, file{name: dir + "/", mode: 0o755})
			}
		}
	}

	return files
}
