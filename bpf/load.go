package bpf

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// ClsactFuncs attach a program where the kernel has no tcx. They live with the
// caller because they need netlink.
type ClsactFuncs struct {
	// Attach runs the program in direct-action mode on the interface's TC
	// ingress. A filter of the same name is replaced.
	Attach func(ifindex, progFD int, name string) error
	// Detach removes the filter; one that is not there, or whose interface is gone, is no error.
	Detach func(ifindex int, name string) error
	// AttachAt and DetachAt are the same with a direction. Nil: ingress only, by the two above.
	AttachAt func(ifindex, progFD int, name string, egress bool) error
	DetachAt func(ifindex int, name string, egress bool) error
	// Attached reports whether the filter is there. Nil: it is taken to be.
	Attached func(ifindex int, name string, egress bool) bool
}

func (c ClsactFuncs) attach(ifindex, progFD int, name string, egress bool) error {
	switch {
	case c.AttachAt != nil:
		return c.AttachAt(ifindex, progFD, name, egress)
	case c.Attach != nil && !egress:
		return c.Attach(ifindex, progFD, name)
	}
	return errors.New("kernel has no tcx, and no clsact functions are given")
}

func (c ClsactFuncs) detach(ifindex int, name string, egress bool) error {
	switch {
	case c.DetachAt != nil:
		return c.DetachAt(ifindex, name, egress)
	case c.Detach != nil && !egress:
		return c.Detach(ifindex, name)
	}
	return errors.New("clsact filter is attached, and no clsact functions are given")
}

// Options say where a gateway keeps its state and what it starts with.
type Options struct {
	PinDir      string // on bpffs, which is mounted on its parent if need be
	Config      Config
	Log         *slog.Logger
	Clsact      ClsactFuncs
	ForceClsact bool // use Clsact although the kernel has tcx

	CountServices int // ports of Services that are counted at most
}

// Gateway is one load of the programs of a layout, over the pinned state of
// the node. Different methods may run at once, the same method may not.
type Gateway struct {
	opts   Options
	objs   objects
	progs  map[string]*ebpf.Program // by name, the layout's
	digest *digest
	counts *serviceCounts
	at     attachedTo
}

// objects are what the programs of every layout share.
type objects struct {
	gatewayMaps
	gatewayVariables
}

// Open loads the programs of the layout. State pinned by an earlier Open is
// taken over, but for maps of another kind: those are replaced. Nothing is
// attached; what an earlier Open attached goes on with its old programs until Attach.
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
	if err := errors.Join(dropIncompatible(spec, opts.PinDir, opts.Log), dropAbandoned(opts.PinDir)); err != nil {
		return nil, err
	}
	g := &Gateway{opts: opts, progs: make(map[string]*ebpf.Program)}
	if err := g.load(spec); err != nil {
		return nil, fmt.Errorf("load gateway programs: %w", err)
	}
	g.counts = newServiceCounts(g.objs.ServiceSlots, g.objs.ServiceCounts, g.opts.CountServices)
	g.digest = newDigest(&g.objs.gatewayVariables)
	if err := errors.Join(g.SetConfig(opts.Config), g.restore()); err != nil {
		return nil, errors.Join(err, g.Close())
	}
	return g, nil
}

// load loads the maps, and those programs that the layout has.
func (g *Gateway) load(spec *ebpf.CollectionSpec) error {
	wanted := make(map[string]bool)
	for _, h := range layoutHooks[g.opts.Config.Layout] {
		wanted[h.program] = true
	}
	maps.DeleteFunc(spec.Programs, func(name string, _ *ebpf.ProgramSpec) bool { return !wanted[name] })
	if n := g.opts.CountServices; n > 0 {
		spec.Maps["service_counts"].MaxEntries = uint32(n)
		if err := spec.Variables["count_services"].Set(uint8(1)); err != nil {
			return err
		}
	}
	coll, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{Maps: ebpf.MapOptions{PinPath: g.opts.PinDir}})
	if err != nil {
		return err
	}
	defer coll.Close()
	if err := coll.Assign(&g.objs); err != nil {
		return err
	}
	for name := range wanted {
		g.progs[name] = coll.DetachProgram(name)
	}
	return nil
}

// SetConfig changes the running programs' configuration. It is not atomic
// over the fields; each is.
func (g *Gateway) SetConfig(c Config) error {
	if err := c.Validate(); err != nil {
		return fmt.Errorf("check gateway config: %w", err)
	}
	if c.Layout != g.opts.Config.Layout {
		return fmt.Errorf("set gateway config: layout %s is loaded, not %s", g.opts.Config.Layout, c.Layout)
	}
	if err := errors.Join(g.digest.configure(c), g.syncNetworks(c), g.objs.Cfg.Set(c.cell())); err != nil {
		return fmt.Errorf("set gateway config: %w", err)
	}
	return nil
}

// restore makes the digests of tables that were there before.
func (g *Gateway) restore() error {
	if err := errors.Join(g.restoreAddrs(), g.restoreServices(), g.restoreFlows()); err != nil {
		return fmt.Errorf("restore digests: %w", err)
	}
	return nil
}

// Close releases this load. What is attached stays attached, and pinned.
func (g *Gateway) Close() error {
	err := g.objs.Close()
	for _, p := range g.progs {
		err = errors.Join(err, p.Close())
	}
	return err
}

// abandoned are maps that earlier versions have pinned.
var abandoned = []string{"flows"}

// dropAbandoned unpins those that no program has any more. Attached programs of before
// go on with theirs.
func dropAbandoned(dir string) error {
	var errs []error
	for _, name := range abandoned {
		if err := os.Remove(filepath.Join(dir, name)); !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("unpin map of an earlier version: %w", err)
	}
	return nil
}

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
	if err := MountFS(parent); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("make pin directory %q: %w", dir, err)
	}
	return nil
}

// MountFS mounts a bpffs at dir unless one is there.
func MountFS(dir string) error {
	if err := mountBPFFS(dir); err != nil {
		return fmt.Errorf("mount bpffs at %q: %w", dir, err)
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
