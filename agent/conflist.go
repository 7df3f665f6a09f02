package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/agent/loop"
)

// ConfListName is the CNI configuration's file name.
const ConfListName = "10-ovn-kubernetes.conflist"

const pluginName = "ovn-k8s-cni-overlay"

func confList(socket string) ([]byte, error) {
	b, err := json.MarshalIndent(map[string]any{
		"cniVersion": "1.0.0",
		"name":       "ovn-kubernetes",
		"plugins":    []any{map[string]any{"type": pluginName, "serverSocket": socket}},
	}, "", "  ")
	return append(b, '\n'), err
}

// writeConfList puts the CNI configuration in place at once. The temporary
// file is in the same directory: container runtimes miss a file that is
// renamed in from another.
func writeConfList(dir, socket string) error {
	if dir == "" {
		return nil
	}
	content, err := confList(socket)
	if err != nil {
		return fmt.Errorf("write CNI configuration: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("write CNI configuration: %w", err)
	}
	tmp := filepath.Join(dir, "."+ConfListName+".tmp") // no runtime reads that suffix
	if err := os.WriteFile(tmp, content, 0o644); err != nil {
		return fmt.Errorf("write CNI configuration: %w", err)
	}
	if err := os.Rename(tmp, filepath.Join(dir, ConfListName)); err != nil {
		return errors.Join(fmt.Errorf("write CNI configuration: %w", err), os.Remove(tmp))
	}
	return nil
}

// removeFile removes a file; none is no error.
func removeFile(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// announce writes the CNI configuration once nothing is missing, and logs
// readiness as it comes and goes.
func (a *agent) announce(ctx context.Context) error {
	written, was := false, false
	return loop.Run(ctx, loop.Options{
		Name: "CNI configuration", Wake: a.ready.changed, Resync: 10 * time.Second, Log: a.log,
		Apply: func(context.Context) error {
			missing := a.ready.missing()
			is := len(missing) == 0
			if is != was {
				a.log.Info("readiness", "ready", is, "missing", missing)
			}
			was = is
			if !is || written {
				return nil
			}
			if err := writeConfList(a.cfg.CNIConfDir, a.cfg.CNISocket); err != nil {
				return err
			}
			written = true
			return nil
		},
	})
}
