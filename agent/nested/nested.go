// Package nested connects pods' interfaces to the network of a virtual machine's NIC. Each pod has
// a VLAN tag there. BPF programs (bpf/nested.bpf.c) push the tag on a packet that leaves the pod,
// and deliver a packet with the tag to the pod. The host reaches its pods directly, without the
// NIC.
//
// A connection of a pod has three parts: routes and neighbours between host and pod (link.PodPath),
// the program on the host's end of the veth pair, and entries in the programs' maps. Programs and
// maps are pinned, so pods stay connected without an agent.
package nested

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/agent/podnet"
	"github.com/ovn-ebpf/ovn-ebpf/bpf"
	"github.com/ovn-ebpf/ovn-ebpf/loop"
)

// checkEvery is the interval at which Watch wakes. The kernel announces neither a removed tcx link
// nor all removed neighbours, and repairs must take less than a minute.
const checkEvery = 10 * time.Second

// errNoNIC is returned while the NIC is not known.
var errNoNIC = errors.New("the programs for nested pods are not loaded: the NIC is not known yet")

// Network is the podnet.Connector and podnet.Attached of nested pods. Its methods may be called
// concurrently.
type Network struct {
	pinDir string
	log    *slog.Logger

	mu       sync.Mutex  // guards the following fields
	programs *bpf.Nested // nil while no NIC is known
	nic      int         // interface index
}

var (
	_ podnet.Connector = (*Network)(nil)
	_ podnet.Attached  = (*Network)(nil)
)

// New returns a Network without a NIC. pinDir holds the programs and maps, which outlive the agent.
func New(pinDir string, log *slog.Logger) *Network { return &Network{pinDir: pinDir, log: log} }

// clsact attaches programs on kernels without tcx.
func clsact() bpf.ClsactFuncs {
	return bpf.ClsactFuncs{
		Attach:   link.AttachClsact,
		Detach:   link.DetachClsact,
		Attached: link.ClsactAttached,
	}
}

// NIC is the virtual machine's NIC, and the tables that depend on the machine.
type NIC struct {
	Ifindex int
	Host    []netip.Addr // all addresses of the machine
	Tags    []int        // of the node's pool; the programs ignore packets with other tags
}

// Sync attaches the programs to the NIC and writes the tables. It is idempotent, repairs what
// others have removed, and follows a NIC that was recreated. Pods stay connected. Until the first
// Sync, methods that need the programs return errNoNIC.
func (n *Network) Sync(nic NIC) error {
	n.mu.Lock()
	defer n.mu.Unlock()

	if n.programs == nil || n.nic != nic.Ifindex {
		if err := n.load(nic.Ifindex); err != nil {
			return err
		}
	}

	attached, err := n.programs.Attached()
	if err != nil {
		return err
	}

	if !attached {
		n.log.Warn("attaching the program to the NIC again", "interface", nic.Ifindex)

		if err := n.programs.Attach(); err != nil {
			return err
		}
	}

	return errors.Join(n.programs.SetHost(nic.Host), n.programs.SetTags(nic.Tags))
}

// load replaces the programs by those of the NIC with this interface index. It must be called with
// mu held.
func (n *Network) load(nic int) error {
	loaded, err := bpf.LoadNested(bpf.NestedOptions{NIC: nic, PinDir: n.pinDir, Clsact: clsact(), Log: n.log})
	if err != nil {
		return err
	}

	if n.programs != nil {
		n.programs.Close()
	}

	n.programs, n.nic = loaded, nic

	return nil
}

// Close releases the programs, which stay attached.
func (n *Network) Close() {
	n.mu.Lock()
	defer n.mu.Unlock()

	if n.programs != nil {
		n.programs.Close()
	}

	n.programs = nil
}

// withPrograms calls f with the programs, or returns errNoNIC while none are loaded. It holds mu
// during f.
func (n *Network) withPrograms(f func(*bpf.Nested) error) error {
	n.mu.Lock()
	defer n.mu.Unlock()

	if n.programs == nil {
		return errNoNIC
	}

	return f(n.programs)
}

// Connect makes the direct path between host and pod, and then the entries of the maps. From then
// on, packets with the pod's tag reach the pod.
func (n *Network) Connect(_ context.Context, host string, p podnet.Pod) error {
	l, err := link.Get(host)
	if err != nil {
		return err
	}

	if err := link.SetUp(host); err != nil { // a device that is down has no routes
		return err
	}

	if err := link.SyncPodPath(path(host, p)); err != nil {
		return err
	}

	return n.withPrograms(func(programs *bpf.Nested) error { return programs.Connect(nestedPod(l.Index, p)) })
}

// Await does nothing: a connected device passes packets at once.
func (n *Network) Await(context.Context, string) error { return nil }

// Check returns an error unless everything that Connect has made is there.
func (n *Network) Check(_ context.Context, host string, p podnet.Pod) error {
	l, err := link.Get(host)
	if err != nil {
		return err
	}

	if err := link.CheckPodPath(path(host, p)); err != nil {
		return err
	}

	return n.withPrograms(func(programs *bpf.Nested) error {
		pods, err := programs.Pods()
		if err != nil {
			return err
		}

		want := nestedPod(l.Index, p)
		if !slices.ContainsFunc(pods, func(have bpf.NestedPod) bool { return equalPods(have, want) }) {
			return fmt.Errorf("device %s: the programs do not have tag %d with %s and %v",
				host, p.Tag, p.MAC, p.Addresses)
		}

		return checkAttached(programs, host, l.Index)
	})
}

// checkAttached returns an error unless the pod's device has its program.
func checkAttached(programs *bpf.Nested, host string, ifindex int) error {
	attached, err := programs.PodAttached(ifindex)
	if err == nil && !attached {
		err = fmt.Errorf("device %s: the program is not attached", host)
	}

	return err
}

// Reset closes the connection of a device that is about to be recreated.
func (n *Network) Reset(ctx context.Context, host string) error { return n.Release(ctx, host) }

// Release closes the connection of a device: no packet reaches the pod any more, and none leaves
// it. It also closes the connections of all devices that are gone: the maps have only interface
// indexes, so they do not show which of these was the given one.
//
// Release sets the device down first. Without a program, its packets would reach the host's stack.
func (n *Network) Release(_ context.Context, host string) error {
	if err := link.SetDown(host); err != nil {
		return err
	}

	devices, err := devices()
	if err != nil {
		return err
	}

	err = n.withPrograms(func(programs *bpf.Nested) error {
		pods, err := programs.Pods()
		errs := []error{err}

		for _, p := range pods {
			if name, exists := devices[p.Ifindex]; !exists || name == host {
				errs = append(errs, programs.Disconnect(p.Ifindex))
			}
		}

		return errors.Join(errs...)
	})
	if errors.Is(err, errNoNIC) {
		// The maps of an earlier agent may still have the device. The first Sync disconnects it,
		// once it is gone.
		return nil
	}

	return err
}

// List returns the connections by the devices' names. It leaves out devices without the program.
// IsOf of a Connection also checks the path between host and pod.
func (n *Network) List(context.Context) (map[string]podnet.Connection, error) {
	devices, err := devices()
	if err != nil {
		return nil, err
	}

	out := map[string]podnet.Connection{}
	err = n.withPrograms(func(programs *bpf.Nested) error {
		pods, err := programs.Pods()
		if err != nil {
			return err
		}

		for _, have := range pods {
			host, exists := devices[have.Ifindex]
			if !exists || checkAttached(programs, host, have.Ifindex) != nil {
				continue
			}

			out[host] = podnet.Connection{IsOf: func(p podnet.Pod) bool {
				return equalPods(have, nestedPod(have.Ifindex, p)) && link.CheckPodPath(path(host, p)) == nil
			}}
		}

		return nil
	})

	return out, err
}

// Watch triggers wake at an interval until stop is called.
func (n *Network) Watch(wake loop.Signal) (stop func()) {
	ticker, done := time.NewTicker(checkEvery), make(chan struct{})

	go func() {
		for {
			select {
			case <-ticker.C:
				wake.Trigger()
			case <-done:
				return
			}
		}
	}()

	return func() {
		ticker.Stop()
		close(done)
	}
}

// Remove removes the programs and maps, and all devices of pods.
func Remove(pinDir string) error {
	hosts, err := link.PodDevices()
	errs := []error{err}

	for _, host := range hosts {
		errs = append(errs, link.Delete(host))
	}

	return errors.Join(append(errs, bpf.RemoveNested(pinDir, clsact()))...)
}

// devices returns the names of the host's devices by index.
func devices() (map[int]string, error) {
	all, err := link.List()
	if err != nil {
		return nil, err
	}

	out := make(map[int]string, len(all))
	for _, l := range all {
		out[l.Index] = l.Name
	}

	return out, nil
}

// nestedPod returns the entries of a pod in the programs' maps.
func nestedPod(ifindex int, p podnet.Pod) bpf.NestedPod {
	return bpf.NestedPod{
		Tag:       p.Tag,
		Ifindex:   ifindex,
		MAC:       p.MAC,
		Addresses: p.IPs(),
		Limited:   p.IngressRate != 0,
	}
}

// equalPods reports whether two pods are equal. The order of addresses does not matter.
func equalPods(a, b bpf.NestedPod) bool {
	addresses := func(p bpf.NestedPod) []netip.Addr {
		return slices.SortedFunc(slices.Values(p.Addresses), netip.Addr.Compare)
	}

	return a.Tag == b.Tag && a.Ifindex == b.Ifindex && a.Limited == b.Limited && slices.Equal(a.MAC, b.MAC) &&
		slices.Equal(addresses(a), addresses(b))
}

// path returns the direct path between the host and a pod. GatewayMACs may be shorter than
// Gateways.
func path(host string, p podnet.Pod) link.PodPath {
	out := link.PodPath{
		HostName: host, Netns: p.Netns, Name: p.Interface, MAC: p.MAC, Addresses: p.IPs(),
		Gateways: map[netip.Addr]net.HardwareAddr{},
	}
	for i, mac := range p.GatewayMACs {
		if i < len(p.Gateways) {
			out.Gateways[p.Gateways[i]] = mac
		}
	}

	return out
}
