package bpf

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// Hooked is a hook of a layout, and where its program is attached.
type Hooked struct {
	Name    string
	Bridge  bool // on the gateway bridge, otherwise on the uplink
	Ifindex int  // of the program's device; 0: none
	Ahead   int  // foreign programs or filters before it
}

// FindFilter reports whether a device has a clsact filter of that name, and the number of foreign
// filters before it.
type FindFilter func(ifindex int, name string, egress bool) (ahead int, attached bool)

// Hooks returns every hook of a layout with the device of its program, by the pins. It loads
// nothing. The pin of a clsact filter's program does not show whether the filter is still there, so
// Hooks asks clsact.
func Hooks(pinDir string, layout verdict.Layout, clsact FindFilter) ([]Hooked, error) {
	var out []Hooked

	for _, h := range layoutHooks[layout] {
		at, err := hookedAt(pinDir, h, clsact)
		if err != nil {
			return nil, fmt.Errorf("inspect attachment of %s: %w", h.name, err)
		}

		out = append(out, at)
	}

	return out, nil
}

// hookedAt returns the state of one hook.
func hookedAt(pinDir string, h hook, clsact FindFilter) (Hooked, error) {
	out := Hooked{Name: h.name, Bridge: h.onBridge}

	at, err := pinnedTCX(filepath.Join(pinDir, h.name))
	if err != nil {
		return out, err
	}

	if at.ifindex != 0 {
		out.Ifindex = at.ifindex
		out.Ahead, err = aheadOf(at, h)

		return out, err
	}

	pins, err := clsactPins(pinDir, h.name)
	if errors.Is(err, fs.ErrNotExist) {
		return out, nil
	}

	for _, ifindex := range slices.Sorted(maps.Keys(pins)) {
		if ahead, attached := clsact(ifindex, h.name, h.egress); attached {
			out.Ifindex, out.Ahead = ifindex, ahead
		}
	}

	return out, err
}

// aheadOf returns the number of programs before the given one at a tcx hook, without those of
// Monitor. It is 0 if the given program is not there.
func aheadOf(at tcx, h hook) (int, error) {
	all, err := link.QueryPrograms(link.QueryOptions{Target: at.ifindex, Attach: h.attachType()})
	if err != nil {
		return 0, fmt.Errorf("list programs of interface %d: %w", at.ifindex, err)
	}

	n := 0

	for _, p := range all.Programs {
		if p.ID == at.prog {
			return n, nil
		}

		if !isMonitor(p.ID) {
			n++
		}
	}

	return 0, nil
}

// isMonitor reports whether a program belongs to Monitor, which passes every packet.
func isMonitor(id ebpf.ProgramID) bool {
	p, err := ebpf.NewProgramFromID(id)
	if err != nil {
		return false
	}
	defer p.Close()

	info, err := p.Info()

	return err == nil && strings.HasPrefix(info.Name, "monitor_")
}

// SocketHooks returns the names of the programs for the host's sockets that are not attached to a
// cgroup. services translate connections to Services; gate are those of Gate.
func SocketHooks(pinDir string) (services, gate []string, err error) {
	missing := func(names []string) (out []string) {
		for _, name := range names {
			cgroup, _, e := pinnedCgroup(filepath.Join(pinDir, name))
			err = errors.Join(err, e)

			if cgroup == 0 {
				out = append(out, name)
			}
		}

		return out
	}

	var translate []string
	for _, h := range sockHooks(&sockPrograms{}) {
		translate = append(translate, h.name)
	}

	services = missing(translate)
	gate = missing([]string{
		gateProgGatePostBind4, gateProgGatePostBind6, gateProgGateConnect4, gateProgGateConnect6,
	})

	return services, gate, err
}
