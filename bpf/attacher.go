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

// attacher attaches programs to hooks. With tcx (since Linux 6.6), a link keeps the program
// attached, and is pinned under the hook's name. Without tcx, a clsact filter has the program. A
// filter cannot be pinned, so the program is: its pin shows on which interface the filter is.
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

// attachTCX is attach with a tcx link. It returns link.ErrNotSupported before Linux 6.6.
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

	return a.dropClsact(h, noInterface)
}

// pin returns the path of the hook's tcx link. See clsactPin for clsact.
func (a attacher) pin(h hook) string { return filepath.Join(a.pinDir, h.name) }

// detach removes the hook's program from every interface. Interfaces may be gone.
func (a attacher) detach(h hook) error {
	if err := a.dropClsact(h, noInterface); err != nil {
		return err
	}

	return dropLink(a.pin(h))
}

// Values in place of an interface index. The kernel's indexes begin at 1.
const (
	anyInterface = 0
	noInterface  = 0
)

// isUp reports whether prog is attached to the hook on that interface. For anyInterface, it may be
// attached on any.
func (a attacher) isUp(h hook, prog *ebpf.Program, ifindex int) (bool, error) {
	up, err := a.isAttached(h, prog, ifindex)
	if err != nil {
		return false, fmt.Errorf("inspect attachment of %s: %w", h.name, err)
	}

	return up, nil
}

func (a attacher) isAttached(h hook, prog *ebpf.Program, ifindex int) (bool, error) {
	id, err := programID(prog)
	if err != nil {
		return false, err
	}

	at, err := pinnedTCX(a.pin(h))
	if err != nil || at.ifindex != 0 {
		return at.prog == id && (ifindex == anyInterface || at.ifindex == ifindex), err
	}

	return a.isUpByClsact(h, id, ifindex)
}

// dropDevices detaches the programs of all hooks that are named prefix and an interface index. All
// of them are at ingress.
func (a attacher) dropDevices(prefix string) error {
	pins, err := a.pinsOf(prefix)
	if err != nil {
		return err
	}

	errs := []error{a.dropDeviceLinks(prefix)}

	for _, pin := range pins {
		name, suffix, isClsact := strings.Cut(pin, clsactInfix)
		if !isClsact {
			continue
		}

		// The filter of a deleted device has gone with it.
		if ifindex, err := strconv.Atoi(suffix); err == nil {
			if _, err := net.InterfaceByIndex(ifindex); err == nil {
				errs = append(errs, a.clsact.detach(ifindex, name, hook{}.egress))
			}
		}

		errs = append(errs, removeIfThere(filepath.Join(a.pinDir, pin)))
	}

	return errors.Join(errs...)
}

// dropDeviceLinks is dropDevices for tcx links. Clsact filters stay, and so do their pins, by which
// they are found again.
func (a attacher) dropDeviceLinks(prefix string) error {
	pins, err := a.pinsOf(prefix)
	if err != nil {
		return err
	}

	var errs []error

	for _, pin := range pins {
		if !strings.Contains(pin, clsactInfix) {
			errs = append(errs, dropLink(filepath.Join(a.pinDir, pin)))
		}
	}

	return errors.Join(errs...)
}

// pinsOf returns the names of the pins that begin with prefix. The directory may be gone.
func (a attacher) pinsOf(prefix string) ([]string, error) {
	entries, err := os.ReadDir(a.pinDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}

	var names []string

	for _, e := range entries {
		if strings.HasPrefix(e.Name(), prefix) {
			names = append(names, e.Name())
		}
	}

	return names, err
}
