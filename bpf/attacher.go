package bpf

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// attacher attaches programs to hooks, and pins in its directory what keeps them attached: a tcx
// link under the hook's name, or the program of a clsact filter.
type attacher struct {
	pinDir      string
	clsact      ClsactFuncs
	forceClsact bool // use clsact even if the kernel has tcx
}

// attach attaches prog to the hook on an interface. It replaces a program there atomically. Then it
// detaches the hook's program from any other interface.
func (a attacher) attach(h hook, prog *ebpf.Program, ifindex int) error {
	err := link.ErrNotSupported
	if !a.forceClsact {
		err = a.attachTCX(h, prog, ifindex)
	}

	if errors.Is(err, link.ErrNotSupported) {
		err = a.attachClsact(h, prog, ifindex)
	}

	return err
}

func (a attacher) attachTCX(h hook, prog *ebpf.Program, ifindex int) error {
	path := a.pin(h)

	current, err := pinnedTCX(path)
	if err != nil {
		return err
	}

	if current.ifindex == ifindex {
		return updateLink(path, prog)
	}

	l, err := link.AttachTCX(link.TCXOptions{
		Interface: ifindex,
		Program:   prog,
		Attach:    h.attachType(),
		Anchor:    link.Head(),
	})
	if err != nil {
		return err
	}
	defer l.Close()

	if err := removeIfThere(path); err != nil {
		return err
	}

	if err := l.Pin(path); err != nil {
		return err
	}

	return a.dropClsact(h, 0)
}

func (a attacher) pin(h hook) string { return filepath.Join(a.pinDir, h.name) }

// detach removes the hook's program from every interface. Interfaces may be gone.
func (a attacher) detach(h hook) error {
	if err := a.dropClsact(h, 0); err != nil {
		return err
	}

	return dropLink(a.pin(h))
}

// isUp reports whether the hook has prog on that interface. With 0 any interface counts.
func (a attacher) isUp(h hook, prog *ebpf.Program, ifindex int) (bool, error) {
	up, err := a.holds(h, prog, ifindex)
	if err != nil {
		return false, fmt.Errorf("inspect attachment of %s: %w", h.name, err)
	}

	return up, nil
}

func (a attacher) holds(h hook, prog *ebpf.Program, ifindex int) (bool, error) {
	id, err := programID(prog)
	if err != nil {
		return false, err
	}

	at, err := pinnedTCX(a.pin(h))
	if err != nil || at.ifindex != 0 {
		return at.prog == id && (ifindex == 0 || at.ifindex == ifindex), err
	}

	return a.isUpByClsact(h, id, ifindex)
}

// dropDevices detaches the programs of all hooks that are named prefix and an interface index.
// If filters is false, clsact filters stay, and so do their pins, by which they are found again.
func (a attacher) dropDevices(prefix string, filters bool) error {
	entries, err := os.ReadDir(a.pinDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}

	if err != nil {
		return err
	}

	var errs []error

	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), prefix) {
			continue
		}

		path := filepath.Join(a.pinDir, e.Name())

		name, ifindex, isClsact := strings.Cut(e.Name(), clsactInfix)
		if !isClsact {
			errs = append(errs, dropLink(path))
			continue
		}

		if !filters {
			continue
		}

		if i, err := strconv.Atoi(ifindex); err == nil {
			if _, gone := net.InterfaceByIndex(i); gone == nil {
				errs = append(errs, a.clsact.detach(i, name, false))
			}
		}

		errs = append(errs, removeIfThere(path))
	}

	return errors.Join(errs...)
}
