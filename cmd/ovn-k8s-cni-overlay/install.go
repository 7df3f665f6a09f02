package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/ovn-ebpf/ovn-ebpf/atomicfile"
)

const pluginName = "ovn-k8s-cni-overlay"

const usage = `CNI plugin ovn-k8s-cni-overlay. A container runtime calls it without arguments.
  ovn-k8s-cni-overlay install DIR            copies it into the runtime's directory of plugins
  ovn-k8s-cni-overlay uninstall [--stay] DIR removes it there; --stay then waits for SIGTERM
An image needs no shell for either`

// installerStatus runs the installer and returns the exit status. The chart's containers call the
// plugin with arguments, container runtimes call it without.
func installerStatus(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()

	if err := runInstaller(ctx, args); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}

	return 0
}

// runInstaller handles calls with arguments: install and uninstall, as described in usage.
func runInstaller(ctx context.Context, args []string) error {
	staysAfterwards := len(args) > 1 && args[0] == "uninstall" && args[1] == "--stay"
	if staysAfterwards {
		args = append([]string{"uninstall"}, args[2:]...)
	}

	if len(args) != 2 {
		return errors.New(usage)
	}

	switch args[0] {
	case "install":
		self, err := os.Executable()
		if err != nil {
			return err
		}

		return install(self, args[1])
	case "uninstall":
		err := os.Remove(filepath.Join(args[1], pluginName))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("uninstall plugin: %w", err)
		}

		if staysAfterwards {
			<-ctx.Done()
		}

		return nil
	}

	return errors.New(usage)
}

// install writes the program into dir atomically, because a runtime may call the plugin at any
// moment, and a running binary cannot be overwritten.
func install(program, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("install plugin: %w", err)
	}

	source, err := os.Open(program)
	if err != nil {
		return fmt.Errorf("install plugin: %w", err)
	}
	defer source.Close()

	target, err := atomicfile.Create(filepath.Join(dir, pluginName), 0o755)
	if err != nil {
		return fmt.Errorf("install plugin: %w", err)
	}
	defer target.Abort()

	if _, err = io.Copy(target, source); err == nil {
		err = target.Commit()
	}

	if err != nil {
		return fmt.Errorf("install plugin: %w", err)
	}

	return nil
}
