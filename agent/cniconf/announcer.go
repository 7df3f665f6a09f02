package cniconf

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/atomicfile"
)

// File is the name of our configuration.
const File = "10-ovn-kubernetes.conflist"

// withdrawAfter is the time after which an unready node withdraws its configuration. Runtimes that
// do not use STATUS then report the node as not ready, but they can no longer delete sandboxes
// either. That is too high a price for short faults, such as the restart of a daemon.
const withdrawAfter = 20 * time.Second

// Announcer maintains our configuration: it exists while the node is ready, and for withdrawAfter
// longer. After the start of an agent, the configuration of an earlier agent stays as long. Step
// must not be called concurrently.
type Announcer struct {
	Dir       string // of CNI configurations; "": none is written
	Socket    string // of the agent, for the plugin
	Exclusive bool   // hide the configurations of other networks from runtimes
	Log       *slog.Logger

	written      bool      // this agent has written the configuration
	wasReady     bool      // the node was ready at the last Step
	unreadySince time.Time // zero while the node is ready, and before the first Step
}

// Step must be called regularly, and after each change of missing, the items that the node lacks.
// It writes the configuration when none is missing, withdraws it when the node stays unready, and
// logs changes of the readiness.
func (a *Announcer) Step(missing []string, now time.Time) error {
	ready := len(missing) == 0
	if ready != a.wasReady {
		a.Log.Info("readiness", "ready", ready, "missing", missing)
	}

	a.wasReady = ready
	if a.Dir == "" {
		return nil
	}

	path := filepath.Join(a.Dir, File)
	_, err := os.Stat(path)
	exists := err == nil

	unready := a.unreadyFor(ready, now)

	switch {
	case ready && (!a.written || !exists): // also replaces the configuration of an earlier agent
		err := write(a.Dir, a.Socket)
		a.written = err == nil

		return errors.Join(err, a.setOthersAside())
	case ready:
		return a.setOthersAside()
	case unready >= withdrawAfter && exists:
		a.Log.Warn("withdrawing the CNI configuration of an unready node", "missing", missing)
		return remove(path)
	}

	return nil
}

// unreadyFor returns the time for which the node has not been ready, or 0 if it is ready.
func (a *Announcer) unreadyFor(ready bool, now time.Time) time.Duration {
	if ready {
		a.unreadySince = time.Time{}
		return 0
	}

	if a.unreadySince.IsZero() {
		a.unreadySince = now
	}

	return now.Sub(a.unreadySince)
}

// setOthersAside sets the configurations of other networks aside, if the Announcer is Exclusive.
func (a *Announcer) setOthersAside() error {
	if !a.Exclusive {
		return nil
	}

	done, err := setAside(a.Dir)
	for _, path := range done {
		a.Log.Warn("CNI configuration of another network set aside", "file", path)
	}

	return err
}

// Remove removes our configuration from dir, if it exists, and restores those that were set aside.
func Remove(dir string) error {
	return errors.Join(remove(filepath.Join(dir, File)), restore(dir))
}

// write writes our configuration atomically. Runtimes that support 1.1.0 find it in cniVersions and
// then use STATUS and GC; others read cniVersion only.
func write(dir, socket string) error {
	content, err := json.MarshalIndent(map[string]any{
		"cniVersion":  "1.0.0",
		"cniVersions": []string{"0.3.1", "0.4.0", "1.0.0", "1.1.0"},
		"name":        "ovn-kubernetes",
		"plugins":     []any{map[string]any{"type": Plugin, "serverSocket": socket}},
	}, "", "  ")
	if err != nil {
		return fmt.Errorf("write CNI configuration: %w", err)
	}

	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("write CNI configuration: %w", err)
	}

	if err := atomicfile.Write(filepath.Join(dir, File), append(content, '\n'), 0o644); err != nil {
		return fmt.Errorf("write CNI configuration: %w", err)
	}

	return nil
}

// remove removes a file, if it exists.
func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove CNI configuration: %w", err)
	}

	return nil
}
