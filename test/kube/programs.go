package kube

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// programs are what a cluster with kubelets has beside the API server, and what
// its tests need. module/kube.mod names them too, but for tests, which a module
// cannot.
var programs = map[string]string{
	"kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
	"kube-scheduler":          "k8s.io/kubernetes/cmd/kube-scheduler",
	"kubectl":                 "k8s.io/kubernetes/cmd/kubectl",
	"kubelet":                 "k8s.io/kubernetes/cmd/kubelet",
	"agnhost":                 "k8s.io/kubernetes/test/images/agnhost",
	"ginkgo":                  "github.com/onsi/ginkgo/v2/ginkgo",
}

const (
	e2eTest    = "e2e.test"
	e2ePackage = "k8s.io/kubernetes/test/e2e"
)

// BuildAll builds everything that a cluster with kubelets is made of, and
// upstream's e2e.test, and returns their directory. Like Build it does so once;
// cold it takes about ten minutes.
func BuildAll(ctx context.Context, cacheDir string, progress io.Writer) (string, error) {
	binary, err := Build(ctx, cacheDir, progress)
	if err != nil {
		return "", err
	}
	dir := filepath.Dir(binary)
	if builtAll(dir) {
		return dir, nil
	}
	unlock, err := lock(ctx, filepath.Join(dir, "lock"), progress)
	if err != nil {
		return "", fmt.Errorf("build Kubernetes: %w", err)
	}
	defer unlock()
	if builtAll(dir) {
		return dir, nil // built while we waited
	}
	if err := buildAll(ctx, dir, progress); err != nil {
		return "", fmt.Errorf("build Kubernetes: %w", err)
	}
	return dir, nil
}

func builtAll(dir string) bool {
	for name := range programs {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			return false
		}
	}
	_, err := os.Stat(filepath.Join(dir, e2eTest))
	return err == nil
}

func buildAll(ctx context.Context, dir string, progress io.Writer) error {
	src, err := sources(dir)
	if err != nil {
		return err
	}
	defer os.RemoveAll(src)
	out := filepath.Join(src, "bin") + "/"
	args := []string{"-o", out}
	for _, pkg := range programs {
		args = append(args, pkg)
	}
	if err := os.Mkdir(out, 0o755); err != nil {
		return err
	}
	for _, step := range []struct {
		what, verb string
		args       []string
	}{
		{"building kubelet and others " + Version + " (about 2 min)", "build", args},
		{"building e2e.test " + Version + " (about 2 min)", "test", []string{"-c", "-o", out + e2eTest, e2ePackage}},
	} {
		stop := ticker(progress, step.what)
		err := goCommand(ctx, src, step.verb, step.args...)
		stop()
		if err != nil {
			return err
		}
	}
	built, err := os.ReadDir(out)
	if err != nil {
		return err
	}
	for _, f := range built {
		if err := os.Rename(filepath.Join(out, f.Name()), filepath.Join(dir, f.Name())); err != nil {
			return err
		}
	}
	return nil
}
