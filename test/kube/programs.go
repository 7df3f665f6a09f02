package kube

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// programs are the programs of a cluster with kubelets besides the API server, and those of its
// tests. The modules in module/ list them too, except for tests, which a module cannot.
var programs = map[string]string{
	"kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
	"kube-scheduler":          "k8s.io/kubernetes/cmd/kube-scheduler",
	"kubectl":                 "k8s.io/kubernetes/cmd/kubectl",
	"kubelet":                 "k8s.io/kubernetes/cmd/kubelet",
	"agnhost":                 "k8s.io/kubernetes/test/images/agnhost",
	"regression-issue-74839":  "k8s.io/kubernetes/test/images/regression-issue-74839", // sends segments outside the window
	"ginkgo":                  "github.com/onsi/ginkgo/v2/ginkgo",
}

const (
	e2eTest    = "e2e.test"
	e2ePackage = "k8s.io/kubernetes/test/e2e"
)

// forPods are the programs for running pods, besides the API server and kubelets.
var forPods = []string{"kube-controller-manager", "kube-scheduler", "kubectl"}

// BuildForPods builds the API server, the controller manager, the scheduler and kubectl, and
// returns their directory. Like Build it builds only once; a cold build takes about six minutes.
func BuildForPods(ctx context.Context, cacheDir string, progress io.Writer) (string, error) {
	return buildOnce(ctx, cacheDir, forPods, progress)
}

// BuiltForPods reports whether BuildForPods has nothing to do.
func BuiltForPods(cacheDir string) bool {
	return Built(cacheDir) == nil && len(missing(filepath.Dir(binaryIn(cacheDir)), forPods)) == 0
}

// BuildAll builds all programs of a cluster with kubelets and upstream's e2e.test, and returns
// their directory. Like Build it builds only once; a cold build takes about ten minutes.
func BuildAll(ctx context.Context, cacheDir string, progress io.Writer) (string, error) {
	return buildOnce(ctx, cacheDir, append(slices.Sorted(maps.Keys(programs)), e2eTest), progress)
}

// buildOnce builds the API server and the missing ones of the named programs.
func buildOnce(ctx context.Context, cacheDir string, names []string, progress io.Writer) (string, error) {
	binary, err := Build(ctx, cacheDir, progress)
	if err != nil {
		return "", err
	}

	dir := filepath.Dir(binary)
	if len(missing(dir, names)) == 0 {
		return dir, nil
	}

	unlock, err := lock(ctx, filepath.Join(dir, "lock"), progress)
	if err != nil {
		return "", fmt.Errorf("build Kubernetes: %w", err)
	}
	defer unlock()
	// Fewer, or none, if another process has built them meanwhile.
	if err := buildThese(ctx, dir, missing(dir, names), progress); err != nil {
		return "", fmt.Errorf("build Kubernetes: %w", err)
	}

	return dir, nil
}

// missing returns the names that are not in dir.
func missing(dir string, names []string) (absent []string) {
	for _, name := range names {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			absent = append(absent, name)
		}
	}

	return absent
}

func buildThese(ctx context.Context, dir string, names []string, progress io.Writer) error {
	if len(names) == 0 {
		return nil
	}

	src, err := sources(dir)
	if err != nil {
		return err
	}
	defer os.RemoveAll(src)

	out := filepath.Join(src, "bin") + "/"
	if err := os.Mkdir(out, 0o755); err != nil {
		return err
	}

	build, test := []string{"-o", out}, []string(nil)

	for _, name := range names {
		if name == e2eTest {
			test = []string{"-c", "-o", out + e2eTest, e2ePackage}
			continue
		}

		build = append(build, programs[name])
	}

	for _, step := range []struct {
		what, verb string
		args       []string
	}{
		{"building " + strings.Join(names, ", ") + " " + Version() + " (about 2 min)", "build", build},
		{"building e2e.test " + Version() + " (about 2 min)", "test", test},
	} {
		if len(step.args) < 3 { // no package
			continue
		}

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
