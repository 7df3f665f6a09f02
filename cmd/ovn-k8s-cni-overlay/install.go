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
)

const pluginName = "ovn-k8s-cni-overlay"

const usage = `CNI plugin ovn-k8s-cni-overlay. A container runtime calls it without arguments.
  ovn-k8s-cni-overlay install DIR            copies it into the runtime's directory of plugins
  ovn-k8s-cni-overlay uninstall [--stay] DIR removes it there; --stay then waits for SIGTERM
An image needs no shell for either`

// manage is the program when it has arguments: no runtime gives any.
func manage(ctx context.Context, args []string) error {
	stay := len(args) > 1 && args[0] == "uninstall" && args[1] == "--stay"
	if stay {
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
		if err := os.Remove(filepath.Join(args[1], pluginName)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("uninstall plugin: %w", err)
		}
		if stay {
			<-ctx.Done()
		}
		return nil
	}
	return errors.New(usage)
}

// install puts the program into dir at once: a runtime may call it at any moment,
// and one that runs cannot be written to.
func install(program, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("install plugin: %w", err)
	}
	from, err := os.Open(program)
	if err != nil {
		return fmt.Errorf("install plugin: %w", err)
	}
	defer from.Close()
	to, err := os.CreateTemp(dir, "."+pluginName+"-*")
	if err != nil {
		return fmt.Errorf("install plugin: %w", err)
	}
	_, err = io.Copy(to, from)
	if err == nil {
		err = to.Chmod(0o755)
	}
	if err == nil {
		err = to.Sync()
	}
	err = errors.Join(err, to.Close())
	if err == nil {
		err = os.Rename(to.Name(), filepath.Join(dir, pluginName))
	}
	if err != nil {
		return errors.Join(fmt.Errorf("install plugin: %w", err), os.Remove(to.Name()))
	}
	return nil
}

// runManage returns the exit status.
func runManage(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if err := manage(ctx, args); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}
