package bpf

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"

	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// podHook and the device's interface index are the name of the hook at the host's end of a pod's
// device: podHookOf. The program there sends the pod's packets past OVS by shortcuts.
const podHook = "pod_ingress"

// podPrograms are the programs for pods, by layout. Layout dedicated has no shortcuts.
var podPrograms = [...]string{verdict.Direct: "pod_direct", verdict.Bridged: "pod_bridged", verdict.Dedicated: ""}

// podProgram returns the name of the layout's program for pods; "" if shortcuts are off.
func (o Options) podProgram() string {
	if !o.Shortcuts.On {
		return ""
	}

	return podPrograms[o.Config.Layout]
}

// IsPodHook reports whether name is that of the hook at a pod's device. Its clsact filter and its
// pins begin with it.
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
	key, want := uint32(ifindex), uint32(0) // MTU 0: its packets must not become shortcuts
	if short {
		want = uint32(mtu)
	}

	var have gatewayPodPort

	err := g.objs.ShortPods.Lookup(key, &have)

	known := err == nil
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		have.Number, err = g.assignNumber(key)
	}

	if err != nil {
		return err
	}

	if err := g.attacher.attach(h, g.programOf(h), ifindex); err != nil {
		return err
	}

	if known && have.Mtu == want {
		return nil // unchanged: the entry keeps the length that the programs have learned
	}

	if err := g.objs.ShortPods.Put(key, gatewayPodPort{Mtu: want, Number: have.Number}); err != nil {
		return err
	}

	if have.Mtu == 0 { // the device had no shortcuts
		return nil
	}

	return g.ForgetShortcuts() // also packets inside OVS, whose slots have the former lengths
}

// assignNumber returns an unused number for a device: its index in pod_received, the packets that
// its pod receives past the device's own counters. The counts begin at zero.
func (g *Gateway) assignNumber(ifindex uint32) (uint32, error) {
	taken := make(map[uint32]bool)

	err := eachEntry(g.objs.ShortPods, func(_ uint32, p gatewayPodPort) { taken[p.Number] = true })
	if err != nil {
		return 0, fmt.Errorf("list pods' interfaces: %w", err)
	}

	room := g.objs.PodReceived.MaxEntries()
	for n := range room {
		if !taken[n] {
			return n, g.resetCounts(n, ifindex)
		}
	}

	return 0, fmt.Errorf("%d pods have shortcuts, which is all that there is room for", room)
}

// resetCounts sets the counts of a number to zero, and their device to ifindex; 0: none.
func (g *Gateway) resetCounts(number, ifindex uint32) error {
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return err
	}

	cells := make([]gatewayPodCell, cpus)
	for i := range cells {
		cells[i].Device = ifindex
	}

	return g.objs.PodReceived.Put(number, cells)
}

// AdoptPods attaches this load's program to the devices that an earlier load has left, and forgets
// those that are gone, with their shortcuts.
func (g *Gateway) AdoptPods() error {
	pods, err := g.Pods()
	errs := []error{err}

	var gone []int

	for _, ifindex := range pods {
		if _, err := net.InterfaceByIndex(ifindex); err != nil {
			errs = append(errs, g.DetachPod(ifindex))
			gone = append(gone, ifindex)

			continue
		}

		h := podHookOf(ifindex, g.opts.podProgram())
		errs = append(errs, g.attacher.attach(h, g.programOf(h), ifindex))
	}

	errs = append(errs, g.DeleteShortcuts(gone))
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

	var (
		errs []error
		have gatewayPodPort
	)
	switch err := g.objs.ShortPods.Lookup(uint32(ifindex), &have); {
	case err == nil: // the counts first: the number is free afterwards
		errs = append(errs, g.resetCounts(have.Number, 0), g.objs.ShortPods.Delete(uint32(ifindex)))
	case !errors.Is(err, ebpf.ErrKeyNotExist):
		errs = append(errs, err)
	}

	errs = append(errs, g.attacher.detach(podHookOf(ifindex, "")))
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("detach program of pods from interface %d: %w", ifindex, err)
	}

	return nil
}

// Pods returns the interfaces for which AttachPod was called, in no order. They may be gone.
func (g *Gateway) Pods() ([]int, error) {
	if g.opts.podProgram() == "" {
		return nil, nil
	}

	var out []int

	err := eachEntry(g.objs.ShortPods, func(k uint32, _ gatewayPodPort) { out = append(out, int(k)) })
	if err != nil {
		return nil, fmt.Errorf("list pods' interfaces: %w", err)
	}

	return out, nil
}

// PodReceived returns packets and bytes that went to a pod past its device's counters. It returns
// ErrNoShortcuts while shortcuts are off.
func PodReceived(pinDir string, ifindex int) (packets, bytes uint64, err error) {
	pods, err := openShortcutMap(pinDir, "short_pods")
	if err != nil {
		return 0, 0, err
	}
	defer pods.Close()

	m, err := openShortcutMap(pinDir, "pod_received")
	if err != nil {
		return 0, 0, err
	}
	defer m.Close()

	var (
		pod  gatewayPodPort
		cpus []gatewayPodCell
	)

	err = pods.Lookup(uint32(ifindex), &pod)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return 0, 0, nil
	}

	if err == nil {
		err = m.Lookup(pod.Number, &cpus)
	}

	if err != nil {
		return 0, 0, fmt.Errorf("read counts of interface %d: %w", ifindex, err)
	}

	for _, c := range cpus {
		packets += c.Cell.Packets
		bytes += c.Cell.Bytes
	}

	return packets, bytes, nil
}
