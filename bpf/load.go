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

// ClsactFuncs attach a program where the kernel has no tcx. The caller provides them because they
// need netlink.
type ClsactFuncs struct {
	// Attach attaches the program in direct-action mode to the interface's TC ingress or egress. It
	// replaces a filter of the same name.
	Attach func(ifindex, progFD int, name string, egress bool) error
	// Detach removes the filter. A missing filter or interface is not an error.
	Detach func(ifindex int, name string, egress bool) error
	// Attached reports whether the filter is attached. If nil, the filter is assumed to be attached.
	Attached func(ifindex int, name string, egress bool) bool
}

func (c ClsactFuncs) attach(ifindex, progFD int, name string, egress bool) error {
	if c.Attach == nil {
		return errors.New("kernel has no tcx, and no clsact functions are given")
	}

	return c.Attach(ifindex, progFD, name, egress)
}

func (c ClsactFuncs) detach(ifindex int, name string, egress bool) error {
	if c.Detach == nil {
		return errors.New("clsact filter is attached, and no clsact functions are given")
	}

	return c.Detach(ifindex, name, egress)
}

// Sizes holds capacities of tables by name, in place of those in the programs. Tests use it,
// because filling the real tables takes seconds.
type Sizes map[string]uint32

// apply changes the capacities in spec. Names that spec lacks are ignored.
func (s Sizes) apply(spec *ebpf.CollectionSpec) {
	for name, size := range s {
		if m := spec.Maps[name]; m != nil {
			m.MaxEntries = size
		}
	}
}

// Options configures the pinned state and the initial settings of a gateway.
type Options struct {
	PinDir      string // on bpffs, which is mounted on its parent if necessary
	Config      Config
	Log         *slog.Logger // nil: discard
	Clsact      ClsactFuncs
	ForceClsact bool // use Clsact even if the kernel has tcx

	CountServices int   // limit of Service ports with packet counts; 0: count none
	Sizes         Sizes // nil: as in the programs
	Shortcuts     ShortcutOptions
}

func (o Options) attacher() attacher {
	return attacher{pinDir: o.PinDir, clsact: o.Clsact, forceClsact: o.ForceClsact}
}

// Gateway is one load of the programs of a layout, over the pinned state of the node. Different
// methods may run concurrently, but each method only once at a time.
type Gateway struct {
	opts     Options
	attacher attacher
	objs     objects
	progs    map[string]*ebpf.Program // of the layout, by name
	digest   *digest
	counts   *serviceCounts
	at       attachedTo

	unwritten      overflow[gatewayServiceKey, uint8] // of the service table
	unwrittenAddrs int                                // entries of the last SyncAddrs without room
}

// objects are the maps and variables of the programs, which are the same in each layout.
type objects struct {
	gatewayMaps
	gatewayVariables
}

// Open loads the programs of the layout. It adopts maps that an earlier Open has pinned. A pinned
// map whose keys, values or size are of another version is unpinned, and starts empty. Open
// attaches nothing: programs that an earlier Open attached stay until AttachUplink and
// AttachBridge.
func Open(opts Options) (*Gateway, error) {
	if err := opts.Config.Validate(); err != nil {
		return nil, fmt.Errorf("check gateway config: %w", err)
	}

	spec, err := loadGateway()
	if err != nil {
		return nil, fmt.Errorf("read gateway programs: %w", err)
	}

	opts.Sizes.apply(spec)

	if err := prepareShortcuts(spec, opts); err != nil {
		return nil, fmt.Errorf("prepare shortcuts: %w", err)
	}

	if err := preparePins(spec, opts.PinDir, opts.Log); err != nil {
		return nil, err
	}

	if err := unpinMaps(opts.PinDir, abandoned...); err != nil {
		return nil, err
	}

	g := &Gateway{
		opts: opts, attacher: opts.attacher(),
		progs: make(map[string]*ebpf.Program), unwritten: overflow[gatewayServiceKey, uint8]{},
	}
	if err := g.load(spec); err != nil {
		return nil, fmt.Errorf("load gateway programs: %w", err)
	}

	if opts.podProgram() == "" { // shortcuts are off
		if err := dropShortcuts(opts); err != nil {
			return nil, errors.Join(err, g.Close())
		}
	}

	g.counts = newServiceCounts(g.objs.ServiceSlots, g.objs.ServiceCounts, g.opts.CountServices)
	g.digest = newDigest(&g.objs.gatewayVariables)

	if err := errors.Join(g.SetConfig(opts.Config), g.restore()); err != nil {
		return nil, errors.Join(err, g.Close())
	}

	return g, nil
}

// load loads the maps and the programs of the layout.
func (g *Gateway) load(spec *ebpf.CollectionSpec) error {
	wanted := make(map[string]bool)
	for _, h := range layoutHooks[g.opts.Config.Layout] {
		wanted[h.program] = true
	}

	if name := g.opts.podProgram(); name != "" {
		wanted[name] = true
	}

	maps.DeleteFunc(spec.Programs, func(name string, _ *ebpf.ProgramSpec) bool { return !wanted[name] })

	if n := g.opts.CountServices; n > 0 {
		spec.Maps["service_counts"].MaxEntries = uint32(n)
		if err := spec.Variables["count_services"].Set(uint8(1)); err != nil {
			return err
		}
	}

	coll, err := ebpf.NewCollectionWithOptions(spec,
		ebpf.CollectionOptions{Maps: ebpf.MapOptions{PinPath: g.opts.PinDir}})
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

// SetConfig changes the configuration of the running programs, and ends all shortcuts. Each field
// changes atomically, but not all together. The layout cannot change.
func (g *Gateway) SetConfig(c Config) error {
	if err := c.Validate(); err != nil {
		return fmt.Errorf("check gateway config: %w", err)
	}

	if c.Layout != g.opts.Config.Layout {
		return fmt.Errorf("set gateway config: layout %s is loaded, not %s", g.opts.Config.Layout, c.Layout)
	}

	err := errors.Join(g.digest.configure(c), g.syncNetworks(c), g.objs.Cfg.Set(c.cell()),
		g.ForgetShortcuts())
	if err != nil {
		return fmt.Errorf("set gateway config: %w", err)
	}

	return nil
}

// restore rebuilds the digests of existing tables.
func (g *Gateway) restore() error {
	if err := errors.Join(g.restoreAddrs(), g.restoreServices(), g.restoreFlows()); err != nil {
		return fmt.Errorf("restore digests: %w", err)
	}

	return nil
}

// Close releases this load. Attached programs stay attached and pinned.
func (g *Gateway) Close() error {
	err := g.objs.Close()
	for _, p := range g.progs {
		err = errors.Join(err, p.Close())
	}

	return err
}

// abandoned are maps that earlier versions pinned. Open unpins them. Attached programs of an
// earlier version keep their maps.
var abandoned = []string{"flows"}

// preparePins creates the pin directory, and unpins maps that are incompatible with spec, because
// they are of another version. log may be nil.
func preparePins(spec *ebpf.CollectionSpec, dir string, log *slog.Logger) error {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}

	if err := preparePinDir(dir); err != nil {
		return err
	}

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

		log.Warn("pinned map has another layout, starting it afresh", "map", name, "error", err)

		if err := os.Remove(path); err != nil {
			return fmt.Errorf("unpin map %q: %w", name, err)
		}
	}

	return nil
}

// compatible returns ebpf.ErrMapIncompatible if the map pinned at path differs from want.
func compatible(path string, want *ebpf.MapSpec) error {
	m, err := ebpf.LoadPinnedMap(path, nil)
	if err != nil {
		return err
	}
	defer m.Close()

	return want.Compatible(m)
}

// preparePinDir creates dir on a bpffs.
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

// MountFS mounts a bpffs at dir unless one is mounted.
func MountFS(dir string) error {
	if err := mountBPFFS(dir); err != nil {
		return fmt.Errorf("mount bpffs at %q: %w", dir, err)
	}

	return nil
}

// mountBPFFS mounts a bpffs at dir. It takes a lock: the agents of two nodes may share dir, and a
// second mount would hide the pins in the first.
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
