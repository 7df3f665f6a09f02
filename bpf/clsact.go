package bpf

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
)

// clsactInfix joins a hook's name and the interface index in the name of a pinned clsact program. A
// clsact filter itself has no pin.
const clsactInfix = "_clsact_"

// attachClsact is attach with a clsact filter.
func (a attacher) attachClsact(h hook, prog *ebpf.Program, ifindex int) error {
	if err := a.clsact.attach(ifindex, prog.FD(), h.name, h.egress); err != nil {
		return err
	}

	if err := pinProgram(prog, a.clsactPin(h, ifindex)); err != nil {
		return err
	}

	if err := a.dropClsact(h, ifindex); err != nil {
		return err
	}

	return removeIfThere(a.pin(h))
}

// clsactPin returns the path of the program of the hook's filter on an interface.
func (a attacher) clsactPin(h hook, ifindex int) string {
	return filepath.Join(a.pinDir, h.name+clsactInfix+strconv.Itoa(ifindex))
}

// pinProgram pins prog at path and replaces an existing pin.
func pinProgram(prog *ebpf.Program, path string) error {
	// A program remembers its pin, and would not be pinned again.
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

// dropClsact removes the filters of a hook from every interface except keep.
func (a attacher) dropClsact(h hook, keep int) error {
	pins, err := clsactPins(a.pinDir, h.name)
	if err != nil {
		return err
	}

	for ifindex, path := range pins {
		if ifindex == keep {
			continue
		}

		if err := a.clsact.detach(ifindex, h.name, h.egress); err != nil {
			return err
		}

		if err := os.Remove(path); err != nil {
			return err
		}
	}

	return nil
}

// clsactPins returns the paths of the programs pinned for a hook's filters, by interface index.
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

// isUpByClsact is isUp for a filter with the program of that ID.
func (a attacher) isUpByClsact(h hook, id ebpf.ProgramID, ifindex int) (bool, error) {
	pins, err := clsactPins(a.pinDir, h.name)
	if err != nil {
		return false, err
	}

	for at, path := range pins {
		if ifindex != anyInterface && at != ifindex {
			continue
		}

		pinned, err := pinnedProgramID(path)
		if err != nil {
			return false, err
		}

		if _, err := net.InterfaceByIndex(at); err != nil || pinned != id {
			continue
		}

		if isAttached := a.clsact.Attached; isAttached == nil || isAttached(at, h.name, h.egress) {
			return true, nil
		}
	}

	return false, nil
}

// pinnedProgramID returns the ID of the program pinned at path, or 0 if the pin is gone.
func pinnedProgramID(path string) (ebpf.ProgramID, error) {
	p, err := ebpf.LoadPinnedProgram(path, nil)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}

	if err != nil {
		return 0, err
	}

	defer p.Close()

	return programID(p)
}
