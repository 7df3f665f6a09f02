package bpf

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
)

// nestedPodPrefix and an interface index are the name of the hook at a pod's device.
const nestedPodPrefix = "nested_pod_"

// nestedWire is the hook at the NIC.
var nestedWire = hook{name: "nested_wire"}

func nestedPodHook(ifindex int) hook { return hook{name: nestedPodPrefix + strconv.Itoa(ifindex)} }

// NestedPod is a pod on a nested port of the NIC.
type NestedPod struct {
	Tag       int // VLAN tag of the port, 1 to 4094
	Ifindex   int // of the host's end of the pod's veth
	MAC       net.HardwareAddr
	Addresses []netip.Addr // at most one of each family
	Limited   bool         // the bandwidth is limited by a queue at the host's end: packets must pass it
}

// NestedOptions configures the programs for nested pods.
type NestedOptions struct {
	NIC         int    // interface index
	PinDir      string // on bpffs, which is mounted on its parent if necessary
	Clsact      ClsactFuncs
	ForceClsact bool         // use Clsact even if the kernel has tcx
	Log         *slog.Logger // nil: discard
}

func (o NestedOptions) attacher() attacher {
	return attacher{pinDir: o.PinDir, clsact: o.Clsact, forceClsact: o.ForceClsact}
}

// Nested connects pods to the VLANs of a virtual machine's NIC. A packet of a connected pod leaves
// the NIC with the pod's tag, unless it is for the VM itself. A packet that arrives with the tag
// goes to the pod. The methods are not safe for concurrent use.
//
// The state is two tables: nested_tags leads from a tag to the pod's device, for packets from the
// wire, and nested_devices leads from the device to the tag, for packets of the pod. A pod is
// connected while both agree. Each method changes them in an order in which no pod ever gets
// another's packets.
type Nested struct {
	nic      int
	attacher attacher
	objs     nestedObjects
}

// LoadNested loads the programs and attaches them to the NIC and to the devices of connected pods.
// It adopts the pinned state of an earlier load and replaces its programs, each atomically. Pods
// without a device are disconnected. If the NIC was recreated, LoadNested must be called again.
func LoadNested(o NestedOptions) (*Nested, error) {
	spec, err := loadNested()
	if err != nil {
		return nil, fmt.Errorf("read programs for nested pods: %w", err)
	}

	if err := preparePins(spec, o.PinDir, o.Log); err != nil {
		return nil, err
	}

	if err := spec.Variables[nestedVarNic].Set(uint32(o.NIC)); err != nil {
		return nil, fmt.Errorf("set NIC of nested pods: %w", err)
	}

	n := &Nested{nic: o.NIC, attacher: o.attacher()}

	maps := ebpf.MapOptions{PinPath: o.PinDir}
	if err := spec.LoadAndAssign(&n.objs, &ebpf.CollectionOptions{Maps: maps}); err != nil {
		return nil, fmt.Errorf("load programs for nested pods: %w", err)
	}

	if err := errors.Join(n.adopt(), n.Attach()); err != nil {
		return nil, errors.Join(err, n.Close())
	}

	return n, nil
}

// adopt attaches this load's program to the devices that an earlier load has left. It disconnects
// devices that are gone.
func (n *Nested) adopt() error {
	devices, err := n.devices()
	if err != nil {
		return fmt.Errorf("list devices of nested pods: %w", err)
	}

	var errs []error

	for _, ifindex := range devices {
		if _, err := net.InterfaceByIndex(ifindex); err != nil {
			errs = append(errs, n.Disconnect(ifindex))
			continue
		}

		errs = append(errs, n.attachPod(ifindex))
	}

	return errors.Join(errs...)
}

// devices returns the interfaces with an entry or a program, sorted.
func (n *Nested) devices() ([]int, error) {
	pins, err := os.ReadDir(n.attacher.pinDir)
	if err != nil {
		return nil, err
	}

	var list []int

	for _, e := range pins {
		suffix, found := strings.CutPrefix(e.Name(), nestedPodPrefix)

		number, _, _ := strings.Cut(suffix, clsactInfix)
		if ifindex, err := strconv.Atoi(number); found && err == nil {
			list = append(list, ifindex)
		}
	}

	add := func(ifindex uint32, _ nestedDevice) { list = append(list, int(ifindex)) }
	if err := eachEntry(n.objs.NestedDevices, add); err != nil {
		return nil, err
	}

	slices.Sort(list)

	return slices.Compact(list), nil
}

// Attach attaches the program at the NIC. It is idempotent and repairs what Attached reports.
func (n *Nested) Attach() error {
	if err := n.attacher.attach(nestedWire, n.objs.NestedFromWire, n.nic); err != nil {
		return fmt.Errorf("attach %s to interface %d: %w", nestedWire.name, n.nic, err)
	}

	return nil
}

// Attached reports whether this load's program is attached at the NIC.
func (n *Nested) Attached() (bool, error) {
	return n.attacher.isUp(nestedWire, n.objs.NestedFromWire, n.nic)
}

// attachPod attaches the program at the pod's device. It is idempotent.
func (n *Nested) attachPod(ifindex int) error {
	h := nestedPodHook(ifindex)
	if err := n.attacher.attach(h, n.objs.NestedFromPod, ifindex); err != nil {
		return fmt.Errorf("attach %s to interface %d: %w", h.name, ifindex, err)
	}

	return nil
}

// PodAttached reports whether this load's program is attached at the pod's device. Connect repairs
// it.
func (n *Nested) PodAttached(ifindex int) (bool, error) {
	return n.attacher.isUp(nestedPodHook(ifindex), n.objs.NestedFromPod, ifindex)
}

// SetHost sets the VM's own addresses. New addresses are written before stale ones are deleted. It
// may be repeated after an error.
func (n *Nested) SetHost(addresses []netip.Addr) error {
	want := make(map[nestedAddr]uint8, len(addresses))
	for _, a := range addresses {
		want[nestedAddr{W: words(a)}] = 1
	}

	if err := syncSet(n.objs.NestedHost, want); err != nil {
		return fmt.Errorf("set addresses of the VM: %w", err)
	}

	return nil
}

// SetTags sets the tags of the node's pool. The programs drop a packet with such a tag while no pod
// has it, and pass packets with other tags to the VM. Pods stay connected, even if the pool lost
// their tag.
func (n *Nested) SetTags(tags []int) error {
	pool := make(map[uint32]bool, len(tags))
	for _, tag := range tags {
		if err := checkTag(tag); err != nil {
			return fmt.Errorf("set tags of the pool: %w", err)
		}

		pool[uint32(tag)] = true
	}

	stale := make(map[uint32]nestedVlan)   // tags in the table's pool, but not in tags
	missing := make(map[uint32]nestedVlan) // the opposite

	err := eachEntry(n.objs.NestedTags, func(tag uint32, v nestedVlan) {
		switch has := v.has(nestedVlanFlagVLAN_POOL); {
		case has && !pool[tag]:
			stale[tag] = nestedVlan{Ifindex: v.Ifindex, Flags: v.Flags &^ uint32(nestedVlanFlagVLAN_POOL)}
		case !has && pool[tag]:
			missing[tag] = nestedVlan{Ifindex: v.Ifindex, Flags: v.Flags | uint32(nestedVlanFlagVLAN_POOL)}
		}
	})
	if err != nil {
		return fmt.Errorf("read tags of the pool: %w", err)
	}

	for _, change := range []map[uint32]nestedVlan{missing, stale} {
		if _, err := putEntries(n.objs.NestedTags, change); err != nil {
			return fmt.Errorf("set tags of the pool: %w", err)
		}
	}

	return nil
}

func (v nestedVlan) has(f nestedVlanFlag) bool { return v.Flags&uint32(f) != 0 }

func checkTag(tag int) error {
	if tag < 1 || tag > 4094 {
		return fmt.Errorf("VLAN tag %d is not in 1 to 4094", tag)
	}

	return nil
}

// Connect gives a pod's device its tag, from a device that has it so far. It is idempotent, and
// attaches the program again if it is missing. A device whose tag was taken drops what its pod
// sends. No packet reaches a pod by a tag before the tag's former pod has lost it.
func (n *Nested) Connect(p NestedPod) error {
	if err := n.connect(p); err != nil {
		return fmt.Errorf("connect interface %d with tag %d: %w", p.Ifindex, p.Tag, err)
	}

	return nil
}

func (n *Nested) connect(p NestedPod) error {
	device, err := p.cell()
	if err != nil {
		return err
	}

	// Without an entry the program drops every packet, so it comes first.
	if err := n.attachPod(p.Ifindex); err != nil {
		return err
	}

	// The tag must not lead to another pod any more, nor another tag to this one.
	if err := n.release(uint32(p.Tag), uint32(p.Ifindex)); err != nil {
		return err
	}

	var have nestedDevice

	err = n.objs.NestedDevices.Lookup(uint32(p.Ifindex), &have)
	if err == nil && have.Tag != device.Tag {
		err = n.clearTag(uint32(have.Tag), uint32(p.Ifindex))
	}

	if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return err
	}

	if err := n.objs.NestedDevices.Put(uint32(p.Ifindex), device); err != nil {
		return err
	}

	return n.putTag(uint32(p.Tag), uint32(p.Ifindex), p.Limited)
}

// cell converts p to struct device, and checks it.
func (p NestedPod) cell() (nestedDevice, error) {
	device := nestedDevice{Tag: uint16(p.Tag)}
	if err := checkTag(p.Tag); err != nil {
		return device, err
	}

	if p.Ifindex <= 0 {
		return device, errors.New("interface index is not positive")
	}

	if copy(device.Mac[:], p.MAC) != len(device.Mac) || len(p.MAC) != len(device.Mac) {
		return device, fmt.Errorf("MAC address %q has not 6 bytes", p.MAC)
	}

	for _, a := range p.Addresses {
		family, w := nestedDeviceFlagDEVICE_IP6, words(a)
		if a.Is4() {
			family, device.Ip4 = nestedDeviceFlagDEVICE_IP4, w[3]
		} else {
			device.Ip6.W = w
		}

		if !a.IsValid() || a.Is4In6() || device.Flags&uint32(family) != 0 {
			return device, fmt.Errorf("addresses %v are not one of each family", p.Addresses)
		}

		device.Flags |= uint32(family)
	}

	return device, nil
}

// release ends another device's use of a tag.
func (n *Nested) release(tag, ifindex uint32) error {
	var vlan nestedVlan
	if err := n.objs.NestedTags.Lookup(tag, &vlan); err != nil {
		return err
	}

	if vlan.Ifindex != 0 && vlan.Ifindex != ifindex {
		if err := n.clearTag(tag, vlan.Ifindex); err != nil {
			return err
		}
	}

	// A crash may have left a device whose tag's entry has been cleared.
	_, err := deleteEntries(n.objs.NestedDevices, func(other uint32, d nestedDevice) bool {
		return other != ifindex && uint32(d.Tag) == tag
	})

	return err
}

// clearTag makes the tag lead to no pod, unless it leads to another device by now.
func (n *Nested) clearTag(tag, ifindex uint32) error {
	var vlan nestedVlan
	if err := n.objs.NestedTags.Lookup(tag, &vlan); err != nil || vlan.Ifindex != ifindex {
		return err
	}

	return n.objs.NestedTags.Put(tag, nestedVlan{Flags: vlan.Flags & uint32(nestedVlanFlagVLAN_POOL)})
}

// putTag makes the tag lead to a device. It keeps whether the tag is in the node's pool.
func (n *Nested) putTag(tag, ifindex uint32, limited bool) error {
	var have nestedVlan
	if err := n.objs.NestedTags.Lookup(tag, &have); err != nil {
		return err
	}

	want := nestedVlan{Ifindex: ifindex, Flags: have.Flags & uint32(nestedVlanFlagVLAN_POOL)}
	if limited {
		want.Flags |= uint32(nestedVlanFlagVLAN_LIMITED)
	}

	return n.objs.NestedTags.Put(tag, want)
}

// Disconnect removes a device's entries and then its program. The device must be down or gone:
// without the program, its packets reach the VM. If another device has the tag by now, that one
// keeps it. A device that is not connected is not an error.
func (n *Nested) Disconnect(ifindex int) error {
	if err := n.disconnect(ifindex); err != nil {
		return fmt.Errorf("disconnect interface %d: %w", ifindex, err)
	}

	return nil
}

func (n *Nested) disconnect(ifindex int) error {
	var device nestedDevice

	err := n.objs.NestedDevices.Lookup(uint32(ifindex), &device)
	if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return err
	}

	if err == nil {
		if err := n.clearTag(uint32(device.Tag), uint32(ifindex)); err != nil {
			return err
		}

		if err := n.objs.NestedDevices.Delete(uint32(ifindex)); err != nil {
			return err
		}
	}

	return n.attacher.detach(nestedPodHook(ifindex))
}

// Pods returns the connected pods, sorted by tag. Their devices may be gone.
func (n *Nested) Pods() ([]NestedPod, error) {
	devices, err := readTable[uint32, nestedDevice](n.objs.NestedDevices)
	if err != nil {
		return nil, fmt.Errorf("list nested pods: %w", err)
	}

	var pods []NestedPod

	for ifindex, d := range devices {
		var vlan nestedVlan
		if err := n.objs.NestedTags.Lookup(uint32(d.Tag), &vlan); err != nil {
			return nil, fmt.Errorf("list nested pods: %w", err)
		}

		if vlan.Ifindex == ifindex {
			pods = append(pods, d.pod(vlan))
		}
	}

	slices.SortFunc(pods, func(a, b NestedPod) int { return cmp.Compare(a.Tag, b.Tag) })

	return pods, nil
}

// pod is the inverse of cell.
func (d nestedDevice) pod(vlan nestedVlan) NestedPod {
	p := NestedPod{
		Tag: int(d.Tag), Ifindex: int(vlan.Ifindex), MAC: slices.Clone(d.Mac[:]),
		Limited: vlan.has(nestedVlanFlagVLAN_LIMITED),
	}
	if d.Flags&uint32(nestedDeviceFlagDEVICE_IP4) != 0 {
		p.Addresses = append(p.Addresses, addr4Of(d.Ip4))
	}

	if d.Flags&uint32(nestedDeviceFlagDEVICE_IP6) != 0 {
		p.Addresses = append(p.Addresses, addrOf(d.Ip6.W))
	}

	return p
}

// Close releases this load. Attached programs stay attached and pinned.
func (n *Nested) Close() error { return n.objs.Close() }

// RemoveNested detaches the programs of every load and removes their pins. It removes the pin
// directory if nothing else is in it. Devices may be gone. It is idempotent.
func RemoveNested(pinDir string, clsact ClsactFuncs) error {
	if _, err := os.Stat(pinDir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}

	a := attacher{pinDir: pinDir, clsact: clsact}
	if err := errors.Join(a.detach(nestedWire), a.dropDevices(nestedPodPrefix)); err != nil {
		return fmt.Errorf("detach programs of nested pods: %w", err)
	}

	err := unpinMaps(pinDir, nestedMapNestedTags, nestedMapNestedDevices, nestedMapNestedHost,
		nestedMapNestedFrags, nestedMapNestedCounts)
	if err != nil {
		return err
	}

	if rest, err := os.ReadDir(pinDir); err != nil || len(rest) > 0 {
		return err
	}

	if err := os.Remove(pinDir); err != nil {
		return fmt.Errorf("remove pin directory: %w", err)
	}

	return nil
}
