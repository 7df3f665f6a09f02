package bpf

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// ClsactFuncs attach a program where the kernel has no tcx. They live with the
// caller because they need netlink. Both act on TC ingress of the interface.
type ClsactFuncs struct {
	// Attach runs the program in direct-action mode. A filter of the same name is replaced.
	Attach func(ifindex, progFD int, name string) error
	// Detach removes the filter; one that is not there, or whose interface is gone, is no error.
	Detach func(ifindex int, name string) error
}

// Options say where a gateway keeps its state and what it starts with.
type Options struct {
	PinDir      string // on bpffs, which is mounted on its parent if need be
	Config      Config
	Log         *slog.Logger
	Clsact      ClsactFuncs
	ForceClsact bool // use Clsact although the kernel has tcx
}

// Gateway is one load of the programs, over the pinned state of the node.
// Different methods may run at once, the same method may not.
type Gateway struct {
	opts  Options
	objs  gatewayObjects
	hooks [2]hook // uplink, bridge
}

// Open loads the programs. State pinned by an earlier Open is taken over, but
// for maps of another layout: those are replaced. Nothing is attached; what an
// earlier Open attached goes on with its old programs until Attach.
func Open(opts Options) (*Gateway, error) {
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	if err := opts.Config.Validate(); err != nil {
		return nil, fmt.Errorf("check gateway config: %w", err)
	}
	if err := preparePinDir(opts.PinDir); err != nil {
		return nil, err
	}
	spec, err := loadGateway()
	if err != nil {
		return nil, fmt.Errorf("read gateway programs: %w", err)
	}
	if err := dropIncompatible(spec, opts.PinDir, opts.Log); err != nil {
		return nil, err
	}
	g := &Gateway{opts: opts}
	collection := ebpf.CollectionOptions{Maps: ebpf.MapOptions{PinPath: opts.PinDir}}
	if err := spec.LoadAndAssign(&g.objs, &collection); err != nil {
		return nil, fmt.Errorf("load gateway programs: %w", err)
	}
	g.hooks = [2]hook{
		{name: uplinkIngress, prog: g.objs.UplinkIngress},
		{name: bridgeIngress, prog: g.objs.BridgeIngress},
	}
	if err := errors.Join(g.SetConfig(opts.Config), g.restoreServicePorts()); err != nil {
		return nil, errors.Join(err, g.Close())
	}
	return g, nil
}

// SetConfig changes the running programs' configuration. It is not atomic
// over the fields; each is.
func (g *Gateway) SetConfig(c Config) error {
	if err := c.Validate(); err != nil {
		return fmt.Errorf("check gateway config: %w", err)
	}
	if err := g.objs.Cfg.Set(c.cell()); err != nil {
		return fmt.Errorf("set gateway config: %w", err)
	}
	return nil
}

// Close releases this load. What is attached stays attached, and pinned.
func (g *Gateway) Close() error { return g.objs.Close() }

// dropIncompatible unpins maps that an older or newer version laid out otherwise.
func dropIncompatible(spec *ebpf.CollectionSpec, dir string, log *slog.Logger) error {
	for name, want := range spec.Maps {
		if want.Pinning != ebpf.PinByName {
			continue
		}
		path := filepath.Join(dir, name)
		err := compatible(path, want)
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if !errors.Is(err, ebpf.ErrMapIncompatible) {
			return fmt.Errorf("open pinned map %q: %w", path, err)
		}
		log.Warn("pinned map has another layout, starting it afresh", "map", name, "err", err)
		if err := os.Remove(path); err != nil {
			return fmt.Errorf("unpin map %q: %w", name, err)
		}
	}
	return nil
}

func compatible(path string, want *ebpf.MapSpec) error {
	m, err := ebpf.LoadPinnedMap(path, nil)
	if err != nil {
		return err
	}
	defer m.Close()
	return want.Compatible(m)
}

// preparePinDir makes dir, on a bpffs.
func preparePinDir(dir string) error {
	if !filepath.IsAbs(dir) || dir == "/" {
		return fmt.Errorf("use pin directory %q: not an absolute path", dir)
	}
	if ok, _ := onBPFFS(dir); ok {
		return nil
	}
	parent := filepath.Dir(dir)
	if err := mountBPFFS(parent); err != nil {
		return fmt.Errorf("mount bpffs at %q: %w", parent, err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("make pin directory %q: %w", dir, err)
	}
	return nil
}

// mountBPFFS makes dir a bpffs. Under a lock: two nodes' agents may share dir,
// and a second mount would hide the pins in the first.
func mountBPFFS(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		return err
	}
	if ok, err := onBPFFS(dir); ok || err != nil {
		return err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	if len(entries) > 0 {
		return errors.New("directory is not empty")
	}
	return unix.Mount("bpf", dir, "bpf", 0, "mode=0700")
}

func onBPFFS(path string) (bool, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return false, err
	}
	return st.Type == unix.BPF_FS_MAGIC, nil
}
