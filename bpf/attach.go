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

// Names of the hooks: of their pinned links, and of clsact filters.
const (
	uplinkIngress = "uplink_ingress"
	bridgeIngress = "bridge_ingress"
)

// clsactInfix joins a hook's name and the interface index in the name of the
// program pinned for a clsact filter, which itself keeps no pin.
const clsactInfix = "_clsact_"

type hook struct {
	name string
	prog *ebpf.Program
}

// AttachUplink puts the program that tells arriving packets apart on ifindex.
// A program attached there before is replaced atomically; one on another or a
// deleted interface is taken down after the new one is up.
func (g *Gateway) AttachUplink(ifindex int) error { return g.attach(g.hooks[0], ifindex) }

// AttachBridge puts the program that lets OVN's packets out on ifindex, as AttachUplink does.
func (g *Gateway) AttachBridge(ifindex int) error { return g.attach(g.hooks[1], ifindex) }

func (g *Gateway) attach(h hook, ifindex int) error {
	err := link.ErrNotSupported
	if !g.opts.ForceClsact {
		err = g.attachTCX(h, ifindex)
	}
	if errors.Is(err, link.ErrNotSupported) {
		err = g.attachClsact(h, ifindex)
	}
	if err != nil {
		return fmt.Errorf("attach %s to interface %d: %w", h.name, ifindex, err)
	}
	return nil
}

func (g *Gateway) attachTCX(h hook, ifindex int) error {
	path := filepath.Join(g.opts.PinDir, h.name)
	current, err := pinnedIfindex(path)
	if err != nil {
		return err
	}
	if current == ifindex {
		return updateLink(path, h.prog)
	}
	l, err := link.AttachTCX(link.TCXOptions{
		Interface: ifindex,
		Program:   h.prog,
		Attach:    ebpf.AttachTCXIngress,
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
	return g.dropClsact(h.name, 0)
}

func updateLink(path string, prog *ebpf.Program) error {
	l, err := link.LoadPinnedLink(path, nil)
	if err != nil {
		return err
	}
	defer l.Close()
	return l.Update(prog)
}

// pinnedIfindex returns the interface that the link pinned at path is on; 0 if
// there is no link, or its interface is gone.
func pinnedIfindex(path string) (int, error) {
	l, err := link.LoadPinnedLink(path, nil)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer l.Close()
	info, err := l.Info()
	if err != nil {
		return 0, err
	}
	tcx := info.TCX()
	if tcx == nil {
		return 0, nil
	}
	return int(tcx.Ifindex), nil
}

func (g *Gateway) attachClsact(h hook, ifindex int) error {
	if g.opts.Clsact.Attach == nil {
		return errors.New("kernel has no tcx, and no clsact functions are given")
	}
	if err := g.opts.Clsact.Attach(ifindex, h.prog.FD(), h.name); err != nil {
		return err
	}
	path := filepath.Join(g.opts.PinDir, h.name+clsactInfix+strconv.Itoa(ifindex))
	if err := pinProgram(h.prog, path); err != nil {
		return err
	}
	if err := g.dropClsact(h.name, ifindex); err != nil {
		return err
	}
	return removeIfThere(filepath.Join(g.opts.PinDir, h.name))
}

// pinProgram puts prog at path in place of what is there.
func pinProgram(prog *ebpf.Program, path string) error {
	// A program remembers its pin, and would not be pinned there again.
	clone, err := prog.Clone()
	if err != nil {
		return err
	}
	defer clone.Close()
	if err := removeIfThere(path); err != nil {
		return err
	}
	return clone.Pin(path)
}

// dropClsact takes the filters of a hook off every interface but keep.
func (g *Gateway) dropClsact(name string, keep int) error {
	pins, err := clsactPins(g.opts.PinDir, name)
	if err != nil {
		return err
	}
	for ifindex, path := range pins {
		if ifindex == keep {
			continue
		}
		if g.opts.Clsact.Detach == nil {
			return errors.New("clsact filter is attached, and no clsact functions are given")
		}
		if err := g.opts.Clsact.Detach(ifindex, name); err != nil {
			return err
		}
		if err := os.Remove(path); err != nil {
			return err
		}
	}
	return nil
}

// clsactPins returns the programs pinned for a hook by interface index.
func clsactPins(dir, name string) (map[int]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	pins := make(map[int]string)
	for _, e := range entries {
		suffix, ok := strings.CutPrefix(e.Name(), name+clsactInfix)
		if !ok {
			continue
		}
		if ifindex, err := strconv.Atoi(suffix); err == nil {
			pins[ifindex] = filepath.Join(dir, e.Name())
		}
	}
	return pins, nil
}

// Attached tells which hooks have a program on an interface that exists.
func (g *Gateway) Attached() (uplink, bridge bool, err error) {
	uplink, err1 := g.attached(uplinkIngress)
	bridge, err2 := g.attached(bridgeIngress)
	if err := errors.Join(err1, err2); err != nil {
		return false, false, fmt.Errorf("inspect gateway attachments: %w", err)
	}
	return uplink, bridge, nil
}

func (g *Gateway) attached(name string) (bool, error) {
	ifindex, err := pinnedIfindex(filepath.Join(g.opts.PinDir, name))
	if err != nil || ifindex != 0 {
		return ifindex != 0, err
	}
	pins, err := clsactPins(g.opts.PinDir, name)
	for ifindex := range pins {
		if _, err := net.InterfaceByIndex(ifindex); err == nil {
			return true, nil
		}
	}
	return false, err
}

// Detach takes the programs off, the uplink's first, and removes every pin and
// the pin directory. The gateway can still be closed, and nothing else.
func (g *Gateway) Detach() error {
	for _, h := range g.hooks {
		if err := g.detach(h.name); err != nil {
			return fmt.Errorf("detach %s: %w", h.name, err)
		}
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

func (g *Gateway) detach(name string) error {
	if err := g.dropClsact(name, 0); err != nil {
		return err
	}
	l, err := link.LoadPinnedLink(filepath.Join(g.opts.PinDir, name), nil)
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
	// Others may hold the link; without this it would stay until they let go.
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
