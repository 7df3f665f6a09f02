package bpf

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// attachedTo records the interfaces of the last AttachUplink and AttachBridge.
type attachedTo struct {
	mu             sync.Mutex // guards the fields below
	uplink, bridge int        // interface indexes; 0: not attached yet
}

func (a *attachedTo) set(onBridge bool, ifindex int) {
	a.mu.Lock()
	defer a.mu.Unlock()

	if onBridge {
		a.bridge = ifindex
	} else {
		a.uplink = ifindex
	}
}

func (a *attachedTo) get(onBridge bool) int {
	a.mu.Lock()
	defer a.mu.Unlock()

	if onBridge {
		return a.bridge
	}

	return a.uplink
}

// Values of hook.onBridge.
const (
	atUplink = false
	atBridge = true
)

// AttachUplink attaches the layout's programs for the uplink to ifindex:
//
//   - A program attached there before, of this or another layout, is replaced atomically.
//   - A program on another or a deleted interface is detached after the new one is attached.
//   - Hooks that only another layout uses are detached last, when all programs of this one are
//     attached.
func (g *Gateway) AttachUplink(ifindex int) error { return g.attachSide(atUplink, ifindex) }

// AttachBridge is AttachUplink for the gateway bridge's internal port. In layout bridged it must be
// called first: the uplink's egress program relies on it to separate the host's packets from OVN's.
func (g *Gateway) AttachBridge(ifindex int) error { return g.attachSide(atBridge, ifindex) }

// attachSide attaches the layout's programs for the bridge or for the uplink.
func (g *Gateway) attachSide(onBridge bool, ifindex int) error {
	g.at.set(onBridge, ifindex)

	for _, h := range g.hooks() {
		if h.onBridge != onBridge {
			continue
		}

		if err := g.attacher.attach(h, g.programOf(h), ifindex); err != nil {
			return fmt.Errorf("attach %s to interface %d: %w", h.name, ifindex, err)
		}
	}

	return g.detachOtherLayouts()
}

// detachOtherLayouts detaches the hooks that this layout does not use, if all of its own programs
// are attached.
func (g *Gateway) detachOtherLayouts() error {
	used := make(map[string]bool)
	for _, h := range g.hooks() {
		used[h.name] = true
		if up, err := g.attacher.isUp(h, g.programOf(h), anyInterface); !up || err != nil {
			return err
		}
	}

	for _, h := range allHooks {
		if used[h.name] {
			continue
		}

		if err := g.attacher.detach(h); err != nil {
			return fmt.Errorf("detach %s of another layout: %w", h.name, err)
		}
	}

	return nil
}

// Attached reports for each side whether every program of the layout there is still attached to the
// interface of the last AttachUplink or AttachBridge, and belongs to this load. AttachUplink and
// AttachBridge repair it. A side without hooks in the layout counts as attached.
func (g *Gateway) Attached() (uplink, bridge bool, err error) {
	uplink, bridge = true, true

	for _, h := range g.hooks() {
		ifindex := g.at.get(h.onBridge)

		up := false
		if ifindex != 0 {
			if up, err = g.attacher.isUp(h, g.programOf(h), ifindex); err != nil {
				return false, false, err
			}
		}

		if h.onBridge {
			bridge = bridge && up
		} else {
			uplink = uplink && up
		}
	}

	return uplink, bridge, nil
}

// Ahead returns the number of foreign programs that run before the agent's at a tcx hook of the
// interface; of several hooks, the largest number. The agent attaches its program first in the
// list, so such programs were attached later. Clsact filters are not counted.
func (g *Gateway) Ahead(ifindex int) (int, error) {
	most := 0

	for _, h := range g.hooks() {
		at, err := pinnedTCX(g.attacher.pin(h))
		if err != nil {
			return 0, fmt.Errorf("inspect attachment of %s: %w", h.name, err)
		}

		if at.ifindex != ifindex {
			continue
		}

		n, err := aheadOf(at, h)
		if err != nil {
			return 0, err
		}

		most = max(most, n)
	}

	return most, nil
}

// Detach detaches the programs of every layout, the uplink's first, and removes every pin and the
// pin directory. Devices may be gone. Afterwards only Close may be called.
func (g *Gateway) Detach() error {
	for _, h := range allHooks {
		if err := g.attacher.detach(h); err != nil {
			return fmt.Errorf("detach %s: %w", h.name, err)
		}
	}

	if err := g.attacher.dropDevices(podHook + "_"); err != nil {
		return fmt.Errorf("detach programs of pods: %w", err)
	}

	entries, err := os.ReadDir(g.opts.PinDir)
	if err != nil {
		return fmt.Errorf("remove gateway pins: %w", err)
	}

	for _, e := range entries {
		if err := os.Remove(filepath.Join(g.opts.PinDir, e.Name())); err != nil {
			return fmt.Errorf("remove gateway pin: %w", err)
		}
	}

	if err := os.Remove(g.opts.PinDir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove pin directory: %w", err)
	}

	return nil
}

// Unhook detaches the pinned links of every layout at once and keeps all other state. It loads
// nothing. Clsact filters are left to the caller.
func Unhook(pinDir string) error {
	var errs []error

	for _, h := range allHooks {
		if err := dropLink(filepath.Join(pinDir, h.name)); err != nil {
			errs = append(errs, fmt.Errorf("detach %s: %w", h.name, err))
		}
	}

	if err := (attacher{pinDir: pinDir}).dropDeviceLinks(podHook + "_"); err != nil {
		errs = append(errs, fmt.Errorf("detach programs of pods: %w", err))
	}

	return errors.Join(errs...)
}

// tcx is the state of a pinned link. All zero means no link, or that its interface is gone.
type tcx struct {
	ifindex int
	prog    ebpf.ProgramID
}

// pinnedTCX returns the state of the link at path.
func pinnedTCX(path string) (tcx, error) {
	l, err := link.LoadPinnedLink(path, nil)
	if errors.Is(err, fs.ErrNotExist) {
		return tcx{}, nil
	}

	if err != nil {
		return tcx{}, err
	}

	defer l.Close()

	info, err := l.Info()
	if err != nil {
		return tcx{}, err
	}

	if t := info.TCX(); t != nil && t.Ifindex != 0 {
		return tcx{ifindex: int(t.Ifindex), prog: info.Program}, nil
	}

	return tcx{}, nil
}

// updateLink replaces the program of a pinned link, atomically.
func updateLink(path string, prog *ebpf.Program) error {
	l, err := link.LoadPinnedLink(path, nil)
	if err != nil {
		return err
	}
	defer l.Close()

	return l.Update(prog)
}

// dropLink detaches and unpins the link at path, if there is one.
func dropLink(path string) error {
	l, err := link.LoadPinnedLink(path, nil)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}

	if err != nil {
		return err
	}

	defer l.Close()

	if err := l.Unpin(); err != nil {
		return err
	}

	// Another process may hold the link, which would keep it attached. Even otherwise the kernel
	// would detach it later, in a worker.
	if err := l.Detach(); err != nil && !errors.Is(err, link.ErrNotSupported) {
		return err
	}

	return nil
}

func removeIfThere(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}

	return nil
}

// unpinMaps removes the pins of the maps. A pin that cannot be removed does not stop it.
func unpinMaps(pinDir string, names ...string) error {
	var errs []error

	for _, name := range names {
		if err := removeIfThere(filepath.Join(pinDir, name)); err != nil {
			errs = append(errs, fmt.Errorf("unpin map: %w", err))
		}
	}

	return errors.Join(errs...)
}

func programID(p *ebpf.Program) (ebpf.ProgramID, error) {
	info, err := p.Info()
	if err != nil {
		return 0, err
	}

	id, _ := info.ID()

	return id, nil
}
