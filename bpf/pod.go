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
)

// podHook is the name of the hook at the host's end of a pod's device, and the prefix of its pins.
const podHook = "pod_ingress"

var podPrograms = [...]string{Direct: "pod_direct", Bridged: "pod_bridged", Dedicated: ""}

// podProgram returns the name of the layout's program for pods; "" if shortcuts are off.
func (o Options) podProgram() string {
	if !o.Shortcuts.On {
		return ""
	}
	return podPrograms[o.Config.Layout]
}

// IsPodHook reports whether name is that of the hook at a pod's device. Its clsact filter and its pins
// begin with it.
func IsPodHook(name string) bool {
	ifindex, found := strings.CutPrefix(name, podHook+"_")
	_, err := strconv.Atoi(ifindex)
	return found && err == nil
}

// PodPins matches the pins of programs on pods' devices.
const PodPins = podHook + "_*"

// podHookOf is the hook of one pod's device.
func podHookOf(ifindex int, program string) hook {
	return hook{name: podHook + "_" + strconv.Itoa(ifindex), program: program}
}

// AttachPod attaches the program for pods to the host's end of a pod's device. short is whether its
// packets may become shortcuts; otherwise the program only clears what the pod has set for it. mtu
// is the pod's. AttachPod may be repeated, and replaces the program of an earlier load. It does
// nothing while shortcuts are off.
func (g *Gateway) AttachPod(ifindex, mtu int, short bool) error {
	program := g.opts.podProgram()
	if program == "" {
		return nil
	}
	if err := g.attachPod(podHookOf(ifindex, program), ifindex, mtu, short); err != nil {
		return fmt.Errorf("attach %s to interface %d: %w", program, ifindex, err)
	}
	return nil
}

func (g *Gateway) attachPod(h hook, ifindex, mtu int, short bool) error {
	key := uint32(ifindex)
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return err
	}
	err = g.objs.PodReceived.Update(key, make([]gatewayCell, cpus), ebpf.UpdateNoExist)
	if err != nil && !errors.Is(err, ebpf.ErrKeyExist) {
		return err
	}
	if err := g.attach(h, ifindex); err != nil {
		return err
	}
	if short {
		var have gatewayPodPort
		if err := g.objs.ShortPods.Lookup(key, &have); err == nil && have.Mtu == uint32(mtu) {
			return nil // it also has what the programs have learned
		}
		return g.objs.ShortPods.Put(key, gatewayPodPort{Mtu: uint32(mtu)})
	}
	if err := g.objs.ShortPods.Delete(key); err != nil {
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			return nil
		}
		return err
	}
	return g.ForgetShortcuts()
}

// AdoptPods attaches this load's program to the devices that an earlier load has left, and forgets
// those that are gone.
func (g *Gateway) AdoptPods() error {
	pods, err := g.Pods()
	errs := []error{err}
	for _, ifindex := range pods {
		if _, err := net.InterfaceByIndex(ifindex); err != nil {
			errs = append(errs, g.DetachPod(ifindex))
			continue
		}
		errs = append(errs, g.attach(podHookOf(ifindex, g.opts.podProgram()), ifindex))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("adopt pods' devices: %w", err)
	}
	return nil
}

// DetachPod removes the program from a pod's device, which may be gone. Shortcuts to the pod end
// with it.
func (g *Gateway) DetachPod(ifindex int) error {
	if g.opts.podProgram() == "" {
		return nil
	}
	var errs []error
	for _, m := range []*ebpf.Map{g.objs.ShortPods, g.objs.PodReceived} {
		if err := m.Delete(uint32(ifindex)); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			errs = append(errs, err)
		}
	}
	errs = append(errs, g.detach(podHookOf(ifindex, "")))
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("detach program of pods from interface %d: %w", ifindex, err)
	}
	return nil
}

// Pods returns the interfaces that AttachPod was called for, gone ones too.
func (g *Gateway) Pods() ([]int, error) {
	if g.opts.podProgram() == "" {
		return nil, nil
	}
	var out []int
	err := eachKey(g.objs.PodReceived, func(k uint32) { out = append(out, int(k)) })
	if err != nil {
		return nil, fmt.Errorf("list pods' interfaces: %w", err)
	}
	return out, nil
}

// PodReceived returns packets and bytes that went to a pod past its device's counters. It returns
// ErrNoShortcuts while shortcuts are off.
func PodReceived(pinDir string, ifindex int) (packets, bytes uint64, err error) {
	m, err := openShortcutMap(pinDir, "pod_received")
	if err != nil {
		return 0, 0, err
	}
	defer m.Close()
	var cpus []gatewayCell
	err = m.Lookup(uint32(ifindex), &cpus)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return 0, 0, nil
	}
	if err != nil {
		return 0, 0, fmt.Errorf("read counts of interface %d: %w", ifindex, err)
	}
	for _, c := range cpus {
		packets += c.Packets
		bytes += c.Bytes
	}
	return packets, bytes, nil
}

func eachKey(m *ebpf.Map, f func(uint32)) error {
	var key uint32
	var value []gatewayCell
	it := m.Iterate()
	for it.Next(&key, &value) {
		f(key)
	}
	return it.Err()
}

// dropPodLinks detaches the programs of all pods. Clsact filters go by the given function; without
// one they stay, and so do their pins, by which they are found again.
func dropPodLinks(pinDir string, clsact func(ifindex int, name string, egress bool) error) error {
	entries, err := os.ReadDir(pinDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), podHook+"_") {
			continue
		}
		path := filepath.Join(pinDir, e.Name())
		name, ifindex, isClsact := strings.Cut(e.Name(), clsactInfix)
		if !isClsact {
			errs = append(errs, dropLink(path))
			continue
		}
		if clsact == nil {
			continue
		}
		if i, err := strconv.Atoi(ifindex); err == nil {
			if _, gone := net.InterfaceByIndex(i); gone == nil {
				errs = append(errs, clsact(i, name, false))
			}
		}
		errs = append(errs, removeIfThere(path))
	}
	return errors.Join(errs...)
}

// podAttached reports whether the pod's device has this load's program.
func (g *Gateway) podAttached(ifindex int) (bool, error) {
	return g.isUp(podHookOf(ifindex, g.opts.podProgram()), ifindex)
}
