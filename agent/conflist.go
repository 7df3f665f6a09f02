package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/agent/cniconf"
	"github.com/ovn-ebpf/ovn-ebpf/atomicfile"
	"github.com/ovn-ebpf/ovn-ebpf/loop"
)

// ConfListName is the file name of the CNI configuration.
const ConfListName = "10-ovn-kubernetes.conflist"

// confList returns the CNI configuration. Runtimes that support 1.1.0 find it in cniVersions and
// then use STATUS and GC; others read cniVersion only.
func confList(socket string) ([]byte, error) {
	b, err := json.MarshalIndent(map[string]any{
		"cniVersion":  "1.0.0",
		"cniVersions": []string{"0.3.1", "0.4.0", "1.0.0", "1.1.0"},
		"name":        "ovn-kubernetes",
		"plugins":     []any{map[string]any{"type": cniconf.Plugin, "serverSocket": socket}},
	}, "", "  ")
	return append(b, '\n'), err
}

// writeConfList writes the CNI configuration atomically.
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
	if err := atomicfile.Write(filepath.Join(dir, ConfListName), content, 0o644); err != nil {
		return fmt.Errorf("write CNI configuration: %w", err)
	}
	return nil
}

// removeFile removes a file, if it exists.
func removeFile(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// withdrawAfter is the time after which an unready node withdraws its CNI configuration. Runtimes
// without STATUS then report the node as not ready, but they can no longer delete sandboxes either.
// That is too high a price for short faults, such as the restart of a daemon.
const withdrawAfter = 20 * time.Second

// announcement maintains the CNI configuration. Its zero value is the state at the agent's start: the
// configuration of an earlier agent stays as long as its own would.
type announcement struct {
	written bool      // by this agent
	was     bool      // whether the node was ready
	lost    time.Time // start of the unready time
}

// want reports whether the configuration should exist.
func (n *announcement) want(ready, there bool, now time.Time) bool {
	if ready {
		n.lost = time.Time{}
		return true
	}
	if n.lost.IsZero() {
		n.lost = now
	}
	return there && now.Sub(n.lost) < withdrawAfter
}

// step writes the configuration when the node is ready, withdraws it when the node stays unready,
// and logs changes of the readiness.
func (n *announcement) step(cfg Config, missing []string, now time.Time, log *slog.Logger) error {
	is := len(missing) == 0
	if is != n.was {
		log.Info("readiness", "ready", is, "missing", missing)
	}
	n.was = is
	if cfg.CNIConfDir == "" {
		return nil
	}
	path := filepath.Join(cfg.CNIConfDir, ConfListName)
	_, err := os.Stat(path)
	there := err == nil
	want := n.want(is, there, now)
	switch {
	case is && (!n.written || !there): // replaces one of another version as well
		err := writeConfList(cfg.CNIConfDir, cfg.CNISocket)
		n.written = err == nil
		return errors.Join(err, cfg.setOthersAside(log))
	case is:
		return cfg.setOthersAside(log)
	case !want && there:
		log.Warn("withdrawing the CNI configuration of an unready node", "missing", missing)
		return removeFile(path)
	}
	return nil
}

// setOthersAside hides the configurations of other networks from runtimes, if configured.
func (c Config) setOthersAside(log *slog.Logger) error {
	if !c.CNIExclusive {
		return nil
	}
	done, err := cniconf.SetAside(filepath.Join(c.CNIConfDir, ConfListName))
	for _, path := range done {
		log.Warn("CNI configuration of another network set aside", "file", path)
	}
	return err
}

func (a *agent) announce(ctx context.Context) error {
	var n announcement
	var preferred bool // the runtime prefers another network
	return loop.Run(ctx, loop.Options{
		Name: "CNI configuration", Wake: a.ready.Changed, Resync: 5 * time.Second, Log: a.log,
		Apply: func(ctx context.Context) error {
			if is := a.otherNetworkFirst(ctx) != nil; is != preferred {
				preferred = is
				a.environment.Trigger()
			}
			return n.step(a.cfg, a.ready.Missing(), time.Now(), a.log)
		},
	})
}
