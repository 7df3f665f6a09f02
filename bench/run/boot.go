package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// build builds the harness without cgo, to avoid dependencies on the machine. The flag -plant can
// slow it down on purpose.
func build(ctx context.Context, path string, stderr io.Writer) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-tags", "slow", "-o", path, "./bench/harness")

	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")

	cmd.Stderr = stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("build harness: %w", err)
	}

	return nil
}

// boot boots the VM once for a command and returns its output.
func boot(ctx context.Context, c config, stderr io.Writer, command ...string) (*bytes.Buffer, error) {
	argv := append([]string{"test/vm/run", "-i", "-k", c.kernel, "-t", fmt.Sprint(int(c.timeout.Seconds())), "--"}, command...)
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	// The scheduler's signals would count as part of the code that they interrupt.
	cmd.Env = append(os.Environ(), "GODEBUG=asyncpreemptoff=1")
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second

	var out bytes.Buffer

	cmd.Stdout, cmd.Stderr = &out, stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("run in the VM: %w", errors.Join(err, ctx.Err()))
	}

	return &out, nil
}
