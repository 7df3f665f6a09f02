package kubelets

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Images by the names in upstream's tests, CoreDNS's manifest, containerd and the overlay. Images
// are never pulled, as there is no registry.
const (
	pauseImage   = "registry.k8s.io/pause:3.10.1"
	pauseOf136   = "registry.k8s.io/pause:3.10.2" // the same, as Kubernetes 1.36 names it
	corednsImage = "registry.k8s.io/coredns/coredns:v1.13.1"
	ourImage     = "docker.io/library/ovn-ebpf" // without the release's version
	// secondImage is another name of our image, to which docs/install.md updates.
	secondImage  = "registry.example/ovn-ebpf:1.3.0"
	trafficImage = "registry.example/traffic:1" // this tree's ovnlab
	boomImage    = "registry.k8s.io/e2e-test-images/regression-issue-74839:1.4"
)

// labProgram has the servers and clients of package traffic.
const labProgram = "ovnlab"

// tools are the programs that upstream's tests run in their pods.
var tools = strings.Fields(`bash sh cat ls sleep date grep sed mawk cut tr head tail sort uniq wc env printf mkdir rm touch
	chmod echo test true false seq stat timeout hostname id uname getent dig nslookup host curl nc ip ss iperf ping tee wget dd`)

// testImages are upstream's images that one local image replaces: agnhost itself, and images used
// only for common tools.
var testImages = []string{
	"registry.k8s.io/e2e-test-images/agnhost:2.59",
	"registry.k8s.io/e2e-test-images/agnhost:2.55",
	"registry.k8s.io/e2e-test-images/agnhost:2.63.0",
	"registry.k8s.io/e2e-test-images/glibc-dns-testing:2.0.0",
	"registry.k8s.io/e2e-test-images/jessie-dnsutils:1.7",
	"registry.k8s.io/e2e-test-images/busybox:1.37.0-1",
	"registry.k8s.io/e2e-test-images/nginx:1.14-4",
}

// makeImages writes every image to dir as an archive, and further names of images to the file tags.
func (c *Cluster) makeImages(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}

	small := func(file string, names ...string) *image {
		at := "/" + filepath.Base(file)
		return &image{names: names, entrypoint: []string{at}, files: map[string]string{at: file}}
	}

	images := map[string]*image{
		"pause":   small(c.program("pause"), pauseImage, pauseOf136),
		"coredns": small(c.program("coredns"), corednsImage),
		"boom":    small(c.program("regression-issue-74839"), boomImage),
		"agnhost": c.agnhostImage(),
	}
	if c.opts.Traffic {
		traffic := small(filepath.Join(c.opts.BinDir, labProgram), trafficImage)
		traffic.entrypoint = append(traffic.entrypoint, "traffic")
		images["traffic"] = traffic
	}

	if err := images["agnhost"].add(tools...); err != nil {
		return err
	}
	// agnhost porter serves TLS with these files from its working directory.
	if _, err := c.server.Identity("localhost", "localhost", nil); err != nil {
		return err
	}

	for _, name := range []string{"localhost.crt", "localhost.key"} {
		images["agnhost"].files["/"+name] = filepath.Join(c.server.PKI(), name)
	}

	for name, file := range c.archives() {
		if err := os.Symlink(file, filepath.Join(dir, name+".tar")); err != nil {
			return err
		}
	}

	for name, i := range images {
		if err := i.write(filepath.Join(dir, name+".tar")); err != nil {
			return err
		}
	}

	_, version, _ := strings.Cut(strings.TrimSuffix(filepath.Base(c.chart()), ".tgz"), "ovn-ebpf-")

	return os.WriteFile(filepath.Join(dir, "tags"), fmt.Appendf(nil, "%s:%s %s\n", ourImage, version, secondImage), 0o644)
}

// archives returns the archives of the release's images, by the images' names.
func (c *Cluster) archives() map[string]string {
	return map[string]string{"ovn-ebpf": c.released("ovn-ebpf-[0-9]*-image-*.tar"), "ovn-ebpf-ovn": c.released("ovn-ebpf-ovn-*-image-*.tar")}
}

// released returns the release's file of this pattern, or the pattern.
func (c *Cluster) released(pattern string) string {
	if found, _ := filepath.Glob(filepath.Join(c.opts.Release, pattern)); len(found) == 1 {
		return found[0]
	}

	return filepath.Join(c.opts.Release, pattern)
}

func (c *Cluster) agnhostImage() *image {
	return &image{
		names: testImages, entrypoint: []string{"/agnhost"}, command: []string{"pause"},
		files: map[string]string{
			"/agnhost": c.program("agnhost"), "/etc/protocols": "/etc/protocols", "/etc/services": "/etc/services",
		},
		links: map[string]string{"/agnhost-2": "agnhost", "/usr/bin/awk": "mawk"},
		dirs:  []string{"/uploads", "/run", "/root"},
		content: map[string]string{
			"/etc/passwd":        "root:x:0:0:root:/root:/bin/bash\n",
			"/etc/group":         "root:x:0:\n",
			"/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\nservices: files\nprotocols: files\n",
		},
	}
}
