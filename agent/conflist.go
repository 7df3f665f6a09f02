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
	"github.com/ovn-ebpf/ovn-ebpf/agent/loop"
	"github.com/ovn-ebpf/ovn-ebpf/atomicfile"
)

// ConfListName is the CNI configuration's file name.
const ConfListName = "10-ovn-kubernetes.conflist"

// confList names 1.1.0 where runtimes look for it that know it: those ask for
// STATUS and GC. Others read cniVersion alone.
func confList(socket string) ([]byte, error) {
	b, err := json.MarshalIndent(map[string]any{
		"cniVersion":  "1.0.0",
		"cniVersions": []string{"0.3.1", "0.4.0", "1.0.0", "1.1.0"},
		"name":        "ovn-kubernetes",
		"plugins":     []any{map[string]any{"type": cniconf.Plugin, "serverSocket": socket}},
	}, "", "  ")
	return append(b, '\n'), err
}

// writeConfList puts the CNI configuration in place at once.
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

// removeFile removes a file; none is no error.
func removeFile(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// withdrawAfter is how long the node may be unready before its CNI
// configuration goes. Without it runtimes that do not know STATUS call the node
// not ready, but neither do they delete sandboxes: what heals at once, as the
// restart of a daemon, is not worth that.
const withdrawAfter = 20 * time.Second

// announcement keeps the CNI configuration. The zero value is for the agent's
// start: what an agent before has written stays for as long as its own would.
type announcement struct {
	written bool      // by this agent
	was     bool      // ready
	lost    time.Time // since when not ready
}

// want says whether the configuration is to be there.
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

// step writes the configuration once nothing is missing, withdraws it when the
// node has been unready for a while, and logs readiness as it comes and goes.
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
	case is && (!n.written || !there): // also over one that another version has written
		err := writeConfList(cfg.CNIConfDir, cfg.CNISocket)
		n.written = err == nil
		return errors.Join(err, cfg.setOthersAside(log))
	case is:
		return cfg.setOthersAside(log)
	case !want && there:
		log.Warn("the node stays unready: withdrawing the CNI configuration", "missing", missing)
		return removeFile(path)
	}
	return nil
}

// setOthersAside keeps runtimes from other networks' configurations, if it is wanted.
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
	return loop.Run(ctx, loop.Options{
		Name: "CNI configuration", Wake: a.ready.changed, Resync: 5 * time.Second, Log: a.log,
		Apply: func(context.Context) error { return n.step(a.cfg, a.ready.missing(), time.Now(), a.log) },
	})
}
