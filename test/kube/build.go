package kube

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ovn-ebpf/ovn-ebpf/test/platform"
)

// releases are the Kubernetes releases that Build can build. The first is the default.
var releases = []string{"v1.35.4", "v1.36.3"}

// Version returns the Kubernetes release that Build builds: OVN_EBPF_KUBERNETES, or the default.
func Version() string { return cmp.Or(os.Getenv("OVN_EBPF_KUBERNETES"), releases[0]) }

// apiserver is the package to build.
const apiserver = "k8s.io/kubernetes/cmd/kube-apiserver"

// modules has the module of each release's build. They are separate from the main module and its
// dependencies. Their file names permit embedding, so a program with this package can build the API
// server without a source tree.
//
//go:embed module
var modules embed.FS

// CacheDir returns the directory of cached builds: OVN_EBPF_CACHE or its default.
func CacheDir() string { return platform.CacheDir() }

func binaryIn(cacheDir string) string {
	return filepath.Join(cacheDir, "kube-"+Version(), "kube-apiserver")
}

// Built returns nil if Build has nothing to do.
func Built(cacheDir string) error {
	_, err := os.Stat(binaryIn(cacheDir))
	return err
}

// Build returns the path of kube-apiserver below cacheDir. It builds a missing one, once even for
// concurrent callers. A cold build takes about five minutes and needs the go command and a module
// proxy. progress gets a line every ten seconds.
func Build(ctx context.Context, cacheDir string, progress io.Writer) (string, error) {
	if !slices.Contains(releases, Version()) {
		return "", fmt.Errorf("build kube-apiserver: OVN_EBPF_KUBERNETES is %s, want one of %s", Version(), strings.Join(releases, ", "))
	}

	binary := binaryIn(cacheDir)
	if Built(cacheDir) == nil {
		return binary, nil
	}

	dir := filepath.Dir(binary)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("build kube-apiserver: %w", err)
	}

	unlock, err := lock(ctx, filepath.Join(dir, "lock"), progress)
	if err != nil {
		return "", fmt.Errorf("build kube-apiserver: %w", err)
	}
	defer unlock()

	if Built(cacheDir) == nil {
		return binary, nil // built by another process meanwhile
	}

	if err := build(ctx, dir, binary, progress); err != nil {
		return "", fmt.Errorf("build kube-apiserver: %w", err)
	}

	return binary, nil
}

func build(ctx context.Context, dir, binary string, progress io.Writer) error {
	src, err := sources(dir)
	if err != nil {
		return err
	}
	defer os.RemoveAll(src)

	stop := ticker(progress, "building kube-apiserver "+Version()+" (about 5 min when nothing is cached)")
	out := filepath.Join(src, "kube-apiserver")
	err = goCommand(ctx, src, "build", "-o", out, apiserver)

	stop()

	if err != nil {
		return err
	}

	return os.Rename(out, binary)
}

// sources creates a directory with the build's module below dir.
func sources(dir string) (string, error) {
	if _, err := exec.LookPath("go"); err != nil {
		return "", fmt.Errorf("it is built from source: %w", err)
	}

	src, err := os.MkdirTemp(dir, "src-")
	if err != nil {
		return "", err
	}

	for _, file := range []string{"mod", "sum"} {
		text, err := modules.ReadFile("module/" + Version() + "." + file)
		if err == nil {
			err = os.WriteFile(filepath.Join(src, "go."+file), text, 0o644)
		}

		if err != nil {
			return "", errors.Join(err, os.RemoveAll(src))
		}
	}

	return src, nil
}

// goCommand runs a compiling verb of the go command in the module at src.
func goCommand(ctx context.Context, src, verb string, args ...string) error {
	argv := append([]string{"-n", "5", "go", verb, "-trimpath", "-buildvcs=false", "-ldflags", ldflags()}, args...)
	cmd := exec.CommandContext(ctx, "nice", argv...)
	cmd.Dir = src

	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=")
	// SIGTERM lets the go command remove its work directory.
	cmd.Cancel = func() error { return cmd.Process.Signal(unix.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	text, err := cmd.CombinedOutput()

	if ctx.Err() != nil {
		return context.Cause(ctx)
	}

	if err != nil {
		return fmt.Errorf("go %s: %w: %s", verb, err, lastLine(text))
	}

	return nil
}

// ldflags returns flags that set the version. Clients cannot parse the default one.
func ldflags() string {
	flags := []string{"-s", "-w"}

	parts := strings.Split(strings.TrimPrefix(Version(), "v"), ".")
	for _, pkg := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		for _, v := range [][2]string{
			{"gitVersion", Version()},
			{"gitMajor", parts[0]},
			{"gitMinor", parts[1]},
			{"gitTreeState", "clean"},
			{"gitCommit", strings.Repeat("0", 40)},
			{"buildDate", "1970-01-01T00:00:00Z"},
		} {
			flags = append(flags, "-X", pkg+"."+v[0]+"="+v[1])
		}
	}

	return strings.Join(flags, " ")
}

// lock waits for the file lock, which the kernel releases when its holder ends.
func lock(ctx context.Context, file string, progress io.Writer) (unlock func(), err error) {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_RDWR|unix.O_CLOEXEC, 0o644)
	if err != nil {
		return nil, err
	}

	stop := func() {}

	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()

	for waiting := false; ; waiting = true {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			stop()
			return func() { f.Close() }, nil
		}

		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			f.Close()
			return nil, fmt.Errorf("lock %s: %w", file, err)
		}

		if !waiting {
			stop = ticker(progress, "waiting for another build of kube-apiserver")
		}

		select {
		case <-ctx.Done():
			stop()
			f.Close()

			return nil, context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// ticker writes the current activity, now and every ten seconds until stop.
func ticker(w io.Writer, what string) (stop func()) {
	if w == nil {
		return func() {}
	}

	began := time.Now()

	fmt.Fprintf(w, "%s\n", what)

	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)

		t := time.NewTicker(10 * time.Second)
		defer t.Stop()

		for {
			select {
			case <-quit:
				return
			case <-t.C:
				fmt.Fprintf(w, "%s: %s\n", what, time.Since(began).Round(time.Second))
			}
		}
	}()

	return func() { close(quit); <-done }
}

func lastLine(text []byte) string {
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return lines[len(lines)-1]
}
