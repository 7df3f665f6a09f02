// Command release makes everything that a release consists of, for amd64 and arm64: tarballs,
// Debian packages, two container images, the Helm chart, a bill of materials (SPDX) and checksums.
// Two runs of the same commit make equal files as long as Debian's archive does not change. It is
// a module of its own, so that its libraries are in no other go.mod.
//
// With -images it makes only the images.
//
//	release -version 1.2.3 -out DIRECTORY [-arch amd64,arm64] [-suite trixie] [-mirror URL] [-images]
package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/Masterminds/semver/v3"
)

// release is a release that is being made. Its methods write the artifacts to out.
type release struct {
	version    string // semantic, without v
	commit     string
	date       time.Time // of the commit, and of all files
	top        string    // the repository
	out        string    // where the artifacts go
	work       string    // removed at the end
	suite      string    // of Debian
	mirror     string
	onlyImages bool
	manifests  map[string][]byte // plain manifests, by file name
}

// arch is one architecture's programs, and the Debian packages whose files its images contain.
type arch struct {
	name     string
	programs string // directory
	debian   []debianPackage
}

// programs are the commands of a release.
var programs = []string{"ovnkube", "ovn-k8s-cni-overlay"}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])

	stop()

	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// run makes the release in a temporary directory, and then copies the artifacts.
func run(ctx context.Context, args []string) (err error) {
	r, architectures, err := parse(ctx, args)
	if err != nil {
		return err
	}

	if r.work, err = os.MkdirTemp("", "ovn-ebpf-release-"); err != nil {
		return fmt.Errorf("make directory: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(r.work)) }()

	// A release that fails half-way leaves nothing in its directory.
	destination := r.out
	r.out = filepath.Join(r.work, "out")

	if err := os.Mkdir(r.out, 0o755); err != nil {
		return fmt.Errorf("make directory: %w", err)
	}

	if !r.onlyImages {
		if err := r.chart(); err != nil {
			return fmt.Errorf("package chart: %w", err)
		}

		if r.manifests, err = r.renderManifests(ctx); err != nil {
			return err
		}
	}

	var all []arch

	for _, name := range architectures {
		a, err := r.architecture(ctx, name)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}

		all = append(all, a)
	}

	if !r.onlyImages {
		if err := r.bill(all); err != nil {
			return fmt.Errorf("write bill of materials: %w", err)
		}
	}

	if err := r.checksums(); err != nil {
		return fmt.Errorf("write checksums: %w", err)
	}

	return publish(r.out, destination)
}

// parse returns the release that the flags and the working tree describe, and its architectures.
func parse(ctx context.Context, args []string) (*release, []string, error) {
	flags := flag.NewFlagSet("release", flag.ContinueOnError)
	versionFlag := flags.String("version", "", "semantic `version`, as 1.2.3 or 1.3.0-rc.1")
	out := flags.String("out", "build/release", "`directory` of the artifacts, which must be empty or missing")
	architectures := flags.String("arch", "amd64,arm64", "architectures")
	suite := flags.String("suite", "trixie", "Debian's `suite`, whose files the images have")
	mirror := flags.String("mirror", "http://deb.debian.org/debian", "Debian's archive")
	images := flags.Bool("images", false, "make only the container images")
	changes := flags.Bool("changes", false, "allow changes that are not committed, for tests")

	if err := flags.Parse(args); err != nil {
		return nil, nil, err
	}

	v, err := semver.StrictNewVersion(strings.TrimPrefix(*versionFlag, "v"))
	if err != nil {
		return nil, nil, fmt.Errorf("parse version %q: %w (as in VERSION=1.2.3)", *versionFlag, err)
	}

	names := strings.Split(*architectures, ",")
	for _, name := range names {
		if !slices.Contains([]string{"amd64", "arm64"}, name) {
			return nil, nil, fmt.Errorf("architecture %q: want amd64 or arm64", name)
		}
	}

	if entries, err := os.ReadDir(*out); err == nil && len(entries) > 0 {
		return nil, nil, fmt.Errorf("directory %s is not empty: remove it, or choose another", *out)
	}

	r := &release{version: v.String(), out: *out, suite: *suite, mirror: *mirror, onlyImages: *images}
	if r.top, err = output(ctx, ".", "git", "rev-parse", "--show-toplevel"); err != nil {
		return nil, nil, err
	}

	changed, err := output(ctx, r.top, "git", "status", "--porcelain")
	if err != nil {
		return nil, nil, err
	}

	if changed != "" && !*changes {
		return nil, nil, fmt.Errorf("the working tree has changes, which no commit describes:\n%s", changed)
	}

	return r, names, r.readCommit(ctx)
}

// readCommit reads the commit of the working tree and its date.
func (r *release) readCommit(ctx context.Context) error {
	var err error
	if r.commit, err = output(ctx, r.top, "git", "rev-parse", "--short=12", "HEAD"); err != nil {
		return err
	}

	date, err := output(ctx, r.top, "git", "show", "-s", "--format=%cI")
	if err != nil {
		return err
	}

	if r.date, err = time.Parse(time.RFC3339, date); err != nil {
		return fmt.Errorf("parse date of commit: %w", err)
	}

	r.date = r.date.UTC()

	return nil
}

// architecture makes the artifacts of one architecture.
func (r *release) architecture(ctx context.Context, name string) (arch, error) {
	a := arch{name: name, programs: filepath.Join(r.work, "programs-"+name)}
	slog.Info("building programs", "arch", name)

	if err := r.compile(ctx, a); err != nil {
		return a, fmt.Errorf("build programs: %w", err)
	}

	if !r.onlyImages {
		slog.Info("packing tarball and Debian package", "arch", name)

		if err := r.tarball(a); err != nil {
			return a, fmt.Errorf("pack tarball: %w", err)
		}

		if err := r.deb(a); err != nil {
			return a, fmt.Errorf("pack Debian package: %w", err)
		}
	}

	slog.Info("making images", "arch", name, "suite", r.suite)

	var err error
	if a.debian, err = r.images(ctx, a); err != nil {
		return a, fmt.Errorf("make images: %w", err)
	}

	return a, nil
}

// compile builds static programs. Its flags are those of `make build`.
func (r *release) compile(ctx context.Context, a arch) error {
	const versionPackage = "github.com/ovn-ebpf/ovn-ebpf/version"

	ldflags := fmt.Sprintf("-s -w -X %[1]s.Version=%[2]s -X %[1]s.Commit=%[3]s -X %[1]s.Date=%[4]s",
		versionPackage, r.version, r.commit, r.date.Format(time.RFC3339))

	args := []string{"build", "-trimpath", "-buildvcs=false", "-ldflags", ldflags, "-o", a.programs + "/"}
	for _, p := range programs {
		args = append(args, "./cmd/"+p)
	}

	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Stderr = r.top, os.Stderr
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+a.name, "GOFLAGS=")

	if err := os.Mkdir(a.programs, 0o755); err != nil {
		return err
	}

	return cmd.Run()
}

// checksums writes SHA256SUMS, in the format of sha256sum.
func (r *release) checksums() error {
	entries, err := os.ReadDir(r.out)
	if err != nil {
		return err
	}

	var text strings.Builder

	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(r.out, e.Name()))
		if err != nil {
			return err
		}

		fmt.Fprintf(&text, "%x  %s\n", sha256.Sum256(b), e.Name())
	}

	return os.WriteFile(filepath.Join(r.out, "SHA256SUMS"), []byte(text.String()), 0o644)
}

// publish copies the finished artifacts, so that a run that fails leaves none.
func publish(from, to string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return fmt.Errorf("make directory: %w", err)
	}

	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		return fmt.Errorf("copy artifacts: %w", err)
	}

	sums, err := os.ReadFile(filepath.Join(to, "SHA256SUMS"))
	if err != nil {
		return fmt.Errorf("copy artifacts: %w", err)
	}

	fmt.Print(string(sums))
	slog.Info("release made", "directory", to)

	return nil
}

// output returns what a command prints, without white space around.
func output(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	out, err := cmd.Output()

	var exit *exec.ExitError
	if errors.As(err, &exit) {
		err = fmt.Errorf("%w: %s", err, strings.TrimSpace(string(exit.Stderr)))
	}

	if err != nil {
		return "", fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), err)
	}

	return strings.TrimSpace(string(out)), nil
}
