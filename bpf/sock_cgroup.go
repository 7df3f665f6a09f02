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
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// cgroupRootIno is the inode of a cgroup2 hierarchy's root (the kernel's
// kernfs gives it the first number), also as seen from inside a cgroup namespace.
const cgroupRootIno = 1

// ErrNoCgroup means that no usable cgroup2 mount is there: the host's sockets
// cannot be translated, nor seen when they bind.
var ErrNoCgroup = errors.New("no mount of the cgroup2 hierarchy's root")

// findCgroup returns where the root of the cgroup2 hierarchy is mounted.
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
		// In a container the mount may be of a cgroup below: its programs would not see the host's
		// processes.
		if ino, err := cgroupID(p); err == nil && ino == cgroupRootIno {
			return p, nil
		}
	}
	return "", fmt.Errorf("find cgroup2 mount in %s: %w (cgroup2 mounts: %q)", f.Name(), ErrNoCgroup, points)
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

// unescapeOctal undoes what mountinfo does to white space and backslashes.
func unescapeOctal(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

// cgroupID returns the id of the cgroup at path: its inode, on 64-bit kernels.
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

// CgroupOptions say whose sockets programs on a cgroup are for, and where their
// state is kept.
type CgroupOptions struct {
	PinDir      string // on bpffs; the gateway's
	CgroupPath  string // the cgroup whose processes are meant; "": the root of the cgroup2 hierarchy
	NetnsCookie uint64 // of the host's network namespace; 0: that of the calling thread
	Log         *slog.Logger
}

// load loads a collection with its pinned maps into objs, for the host that the
// options name. It returns them complete: what was not given is filled in.
func (o CgroupOptions) load(spec *ebpf.CollectionSpec, netns *ebpf.VariableSpec, objs any) (CgroupOptions, error) {
	var err error
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
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
	if err := preparePinDir(o.PinDir); err != nil {
		return o, err
	}
	if err := dropIncompatible(spec, o.PinDir, o.Log); err != nil {
		return o, err
	}
	return o, spec.LoadAndAssign(objs, &ebpf.CollectionOptions{Maps: ebpf.MapOptions{PinPath: o.PinDir}})
}

// cgroupHook is a program for a cgroup; name is its pinned link's.
type cgroupHook struct {
	name   string
	prog   *ebpf.Program
	attach ebpf.AttachType
}

// attachCgroup puts the hook's program on the cgroup at path, beside those of others. An earlier
// load's is replaced atomically; on another cgroup, it ends after this one is there.
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

// pinnedCgroup returns the id of the cgroup that the link at pin is on, and which
// program it has; 0 if there is no link, or its cgroup is gone.
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

// attachedCgroup tells whether every hook's program, not one of an earlier load, is on the cgroup
// at path.
func attachedCgroup(pinDir, path string, hooks []cgroupHook) (bool, error) {
	id, err := cgroupID(path)
	if err != nil {
		return false, err
	}
	for _, h := range hooks {
		cgroup, prog, err := pinnedCgroup(filepath.Join(pinDir, h.name))
		if err != nil || cgroup != id {
			return false, err
		}
		info, err := h.prog.Info()
		if err != nil {
			return false, fmt.Errorf("inspect program %s: %w", h.name, err)
		}
		if own, ok := info.ID(); ok && own != prog {
			return false, nil
		}
	}
	return true, nil
}

// detachCgroup takes a program off. One that is not there is no error.
func detachCgroup(pinDir, name string) error {
	l, err := link.LoadPinnedLink(filepath.Join(pinDir, name), nil)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("detach %s: %w", name, err)
	}
	defer l.Close()
	if err := l.Unpin(); err != nil {
		return fmt.Errorf("detach %s: %w", name, err)
	}
	// Others may hold the link; without this it would stay until they let go.
	if err := l.Detach(); err != nil && !errors.Is(err, link.ErrNotSupported) {
		return fmt.Errorf("detach %s: %w", name, err)
	}
	return nil
}

// netnsCookie returns what the kernel calls the calling thread's network namespace by.
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
