package bpf

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// cgroupRootIno is the inode of the root of the cgroup2 hierarchy, because kernfs gives its first
// number to the root. Inside a cgroup namespace, the root of a mount may be another cgroup, which
// has another inode.
const cgroupRootIno = 1

// ErrNoCgroup means that no usable cgroup2 mount exists. The host's sockets then cannot be
// translated, and their binds cannot be observed.
var ErrNoCgroup = errors.New("no mount of the cgroup2 hierarchy's root")

// findCgroup returns the mount point of the root of the cgroup2 hierarchy.
func findCgroup() (string, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return "", fmt.Errorf("find cgroup2 mount: %w", err)
	}
	defer f.Close()

	points, err := cgroup2Mounts(f)
	if err != nil {
		return "", fmt.Errorf("find cgroup2 mount: read %s: %w", f.Name(), err)
	}

	for _, p := range points {
		// In a container the mount may show a cgroup below the root. Programs there would not see the
		// host's processes.
		if ino, err := cgroupID(p); err == nil && ino == cgroupRootIno {
			return p, nil
		}
	}

	return "", fmt.Errorf("find cgroup2 mount in %s: %w (cgroup2 mounts: %q)", f.Name(), ErrNoCgroup, points)
}

// CheckCgroup returns an error that wraps ErrNoCgroup if the root of the cgroup2 hierarchy is not
// mounted.
func CheckCgroup() error {
	_, err := findCgroup()
	return err
}

// cgroup2Mounts returns the mount points of type cgroup2 in a mountinfo(5) file.
func cgroup2Mounts(r io.Reader) ([]string, error) {
	var points []string

	lines := bufio.NewScanner(r)
	for lines.Scan() {
		mount, rest, ok := strings.Cut(lines.Text(), " - ")

		fields := strings.Fields(mount)
		if !ok || len(fields) < 5 || !strings.HasPrefix(rest, "cgroup2 ") {
			continue
		}

		points = append(points, unescapeOctal(fields[4]))
	}

	return points, lines.Err()
}

// unescapeOctal decodes white space and backslashes of mountinfo.
func unescapeOctal(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

// cgroupID returns the ID of the cgroup at path: its inode, on 64-bit kernels.
func cgroupID(path string) (uint64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return 0, fmt.Errorf("inspect cgroup %q: %w", path, err)
	}

	if st.Type != unix.CGROUP2_SUPER_MAGIC {
		return 0, fmt.Errorf("inspect cgroup %q: not on a cgroup2 filesystem", path)
	}

	var s unix.Stat_t
	if err := unix.Stat(path, &s); err != nil {
		return 0, fmt.Errorf("inspect cgroup %q: %w", path, err)
	}

	return s.Ino, nil
}

// CgroupOptions are options of programs that are attached to a cgroup. The programs act on sockets
// of processes in this cgroup, if the sockets are in the host's network namespace.
type CgroupOptions struct {
	PinDir      string // the gateway's directory for pinned maps and links, on bpffs
	CgroupPath  string // mount point or directory of the cgroup; "": the root of the cgroup2 hierarchy
	NetnsCookie uint64 // of the host's network namespace; 0: the calling thread is in it
	Sizes       Sizes
	Log         *slog.Logger
}

// load loads the programs and maps of spec into objs. Maps that are pinned in PinDir already are
// used again. netns is the variable of the programs that gets the cookie of the host's network
// namespace. load returns the options with defaults filled in.
func (o CgroupOptions) load(
	spec *ebpf.CollectionSpec,
	netns *ebpf.VariableSpec,
	objs any,
) (CgroupOptions, error) {
	var err error

	if o.CgroupPath == "" {
		if o.CgroupPath, err = findCgroup(); err != nil {
			return o, err
		}
	}

	if o.NetnsCookie == 0 {
		if o.NetnsCookie, err = netnsCookie(); err != nil {
			return o, err
		}
	}

	if err := netns.Set(o.NetnsCookie); err != nil {
		return o, fmt.Errorf("set the host's network namespace: %w", err)
	}

	o.Sizes.apply(spec)

	if err := preparePins(spec, o.PinDir, o.Log); err != nil {
		return o, err
	}

	return o, spec.LoadAndAssign(objs, &ebpf.CollectionOptions{Maps: ebpf.MapOptions{PinPath: o.PinDir}})
}

// cgroupHook is a program for a cgroup. name is the name of its pinned link.
type cgroupHook struct {
	name   string
	prog   *ebpf.Program
	attach ebpf.AttachType
}

// cgroupPrograms are loaded programs, which are attached to one cgroup.
type cgroupPrograms struct {
	kind  string // in errors
	opts  CgroupOptions
	hooks []cgroupHook // in the order of attachment
}

// Attach attaches the programs to the cgroup, beside foreign ones. It replaces programs of an
// earlier load, each atomically. It is idempotent.
func (p *cgroupPrograms) Attach() error {
	for _, h := range p.hooks {
		if err := attachCgroup(p.opts.PinDir, p.opts.CgroupPath, h); err != nil {
			return fmt.Errorf("attach %s programs: %w", p.kind, err)
		}
	}

	return nil
}

// Attached reports whether all programs are attached to the cgroup and belong to this load.
func (p *cgroupPrograms) Attached() (bool, error) {
	id, err := cgroupID(p.opts.CgroupPath)
	if err != nil {
		return false, err
	}

	for _, h := range p.hooks {
		cgroup, prog, err := pinnedCgroup(filepath.Join(p.opts.PinDir, h.name))
		if err != nil || cgroup != id {
			return false, err
		}

		own, err := programID(h.prog)
		if err != nil {
			return false, fmt.Errorf("inspect program %s: %w", h.name, err)
		}

		if own != prog {
			return false, nil
		}
	}

	return true, nil
}

// detach detaches the programs, the last attached one first. It removes their pins and those of the
// maps.
func (p *cgroupPrograms) detach(maps ...string) error {
	for _, h := range slices.Backward(p.hooks) {
		if err := dropLink(filepath.Join(p.opts.PinDir, h.name)); err != nil {
			return fmt.Errorf("detach %s: %w", h.name, err)
		}
	}

	return unpinMaps(p.opts.PinDir, maps...)
}

// attachCgroup attaches the hook's program to the cgroup at path, beside foreign ones. If the
// program of an earlier load is attached there, its link gets the new program, atomically. If it is
// attached to another cgroup, it is detached after the new one is attached.
func attachCgroup(pinDir, path string, h cgroupHook) error {
	id, err := cgroupID(path)
	if err != nil {
		return err
	}

	pin := filepath.Join(pinDir, h.name)

	current, _, err := pinnedCgroup(pin)
	if err != nil {
		return err
	}

	if current == id {
		return updateLink(pin, h.prog)
	}

	l, err := link.AttachCgroup(link.CgroupOptions{Path: path, Attach: h.attach, Program: h.prog})
	if err != nil {
		return fmt.Errorf("attach %s to cgroup %q: %w", h.name, path, err)
	}

	if err := errors.Join(removeIfThere(pin), l.Pin(pin)); err != nil {
		return errors.Join(fmt.Errorf("pin link %q: %w", pin, err), l.Close())
	}

	return l.Close()
}

// pinnedCgroup returns the ID of the cgroup of the link at pin, and its program. The ID is 0 if
// there is no link, or if its cgroup is gone.
func pinnedCgroup(pin string) (cgroup uint64, prog ebpf.ProgramID, err error) {
	l, err := link.LoadPinnedLink(pin, nil)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, 0, nil
	}

	if err != nil {
		return 0, 0, fmt.Errorf("open link %q: %w", pin, err)
	}

	defer l.Close()

	info, err := l.Info()
	if err != nil {
		return 0, 0, fmt.Errorf("inspect link %q: %w", pin, err)
	}

	if c := info.Cgroup(); c != nil {
		return c.CgroupId, info.Program, nil
	}

	return 0, 0, nil
}

// netnsCookie returns the kernel's cookie of the calling thread's network namespace.
func netnsCookie() (uint64, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("read netns cookie: open socket: %w", err)
	}
	defer unix.Close(fd)

	cookie, err := unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
	if err != nil {
		return 0, fmt.Errorf("read netns cookie: %w", err)
	}

	return cookie, nil
}
