package ovnd

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/loop"
)

// logOptions make daemons log to the container's output only.
var logOptions = []string{"-vconsole:info", "-vsyslog:off", "-vfile:off"}

// run runs a tool and returns its output.
func run(ctx context.Context, argv ...string) ([]byte, error) { return runWith(ctx, nil, argv...) }

// runWith runs a tool with an input and returns its output.
func runWith(ctx context.Context, stdin io.Reader, argv ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)

	var stdout, stderr bytes.Buffer

	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("run %s: %w: %s", argv[0], err, bytes.TrimSpace(stderr.Bytes()))
	}

	return stdout.Bytes(), nil
}

// await calls ready until it returns nil or the context ends.
func await(ctx context.Context, ready func() error) error {
	for {
		err := ready()
		if err == nil {
			return nil
		}

		if !loop.Pause(ctx, 200*time.Millisecond) {
			return fmt.Errorf("%w (%w)", err, ctx.Err())
		}
	}
}

// Become replaces this process by a program. It returns only if that fails.
func Become(argv []string) error {
	path, err := exec.LookPath(argv[0])
	if err != nil {
		return fmt.Errorf("start daemon: %w", err)
	}

	if err := syscall.Exec(path, argv, os.Environ()); err != nil {
		return fmt.Errorf("start %s: %w", argv[0], err)
	}

	return nil
}

// schemaPath returns the path of an installed schema. The environment variables OVN_PKGDATADIR and
// OVS_PKGDATADIR replace the directories of Debian's packages, as for OVN's own scripts.
func schemaPath(name string) string {
	dir, env := "/usr/share/ovn", "OVN_PKGDATADIR"
	if name == vswitchSchema {
		dir, env = "/usr/share/openvswitch", "OVS_PKGDATADIR"
	}

	if configured := os.Getenv(env); configured != "" {
		dir = configured
	}

	return filepath.Join(dir, name)
}
