package podnet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/loop"
)

const (
	keepResync = time.Minute // the longest time between two passes
	keepPause  = time.Second // the shortest one, because each new pod wakes the Keeper
)

// Keeper restores lost connections of pods, and removes connections, devices and records without a
// pod. It works in passes. A pass lists the three parts of interfaces, the records, the devices and
// the connections, and compares them. It starts at a change of the connections, of addresses that
// the controller assigns, and at an interval.
//
// The CNI server runs requests at the same time. So before the Keeper changes an interface that has
// a record, it blocks requests for its container (Try), and checks the state again.
type Keeper struct {
	Interfaces *InterfaceManager
	Attached   Attached
	// Gone reports whether a pod has certainly left the node. It returns an error when this is
	// unknown.
	Gone func(ctx context.Context, namespace, name, uid string) (bool, error)
	// Try blocks requests for a container until release is called. It returns false when a request
	// is under way. The Keeper then leaves the container to the request, and to a later pass.
	Try func(containerID string) (release func(), ok bool)
	Log *slog.Logger
	// Assigned returns the addresses that the controller currently assigns to a pod, or false when
	// they are unknown. With a nil Assigned, addresses are not checked.
	Assigned func(namespace, name, uid string) (AssignedAddresses, bool)
	// Readdressed, if not nil, is called after a pod's interface has got other addresses.
	Readdressed func(ctx context.Context, now Pod, before AssignedAddresses)
	// OnPass, if not nil, is called with the devices of all pods after each pass.
	OnPass func([]link.PodDevice)
	// Recreate makes the Keeper create a pod's device again if it is gone while the pod's network
	// namespace is still there.
	Recreate bool
	// Wake is triggered when the controller's annotation of a pod has changed.
	Wake loop.Signal

	mismatches map[string]addressMismatch // by host interface; owned by Run
}

// Run keeps the pods' connections until ctx ends.
func (k *Keeper) Run(ctx context.Context) error {
	if k.Wake == nil {
		k.Wake = loop.NewSignal()
	}

	stop := k.Attached.Watch(k.Wake)
	defer stop()

	var lastEnd time.Time // of the last pass

	return loop.Run(ctx, loop.Options{
		Name:   "pods' ports",
		Wake:   k.Wake,
		Resync: keepResync,
		Log:    k.Log,
		Apply: func(ctx context.Context) error {
			if wait := time.Until(lastEnd.Add(keepPause)); wait > 0 {
				select {
				case <-ctx.Done():
					return nil
				case <-time.After(wait):
				}
			}
			defer func() { lastEnd = time.Now() }()

			return k.pass(ctx)
		},
	})
}

// foundParts lists the connections, devices and records of pods, by host interface name.
type foundParts struct {
	connections map[string]Connection
	devices     []string
	records     map[string]Pod
}

// find lists the parts of all interfaces. It reads the records last. Add writes them first, so a
// connection or device without a record is being removed, or left over.
func (k *Keeper) find(ctx context.Context) (f foundParts, err error) {
	if f.connections, err = k.Attached.List(ctx); err != nil {
		return foundParts{}, err
	}

	if f.devices, err = link.PodDevices(); err != nil {
		return foundParts{}, err
	}

	f.records, err = k.Interfaces.records()

	return f, err
}

// pass restores the connections and addresses of recorded interfaces. Then it removes interfaces
// without a pod.
func (k *Keeper) pass(ctx context.Context) error {
	f, err := k.find(ctx)
	if err != nil {
		return err
	}

	err = errors.Join(k.restoreRecorded(ctx, f), k.removeGone(ctx, f))

	k.reportDevices(f.records)

	return err
}

// restoreRecorded restores the connections of recorded interfaces that have none, and corrects the
// addresses of the others.
func (k *Keeper) restoreRecorded(ctx context.Context, f foundParts) error {
	var errs []error

	// If a pod has two sandboxes, the later one owns the logical port.
	newestFirst := slices.SortedFunc(maps.Keys(f.records),
		func(a, b string) int { return f.records[b].Time.Compare(f.records[a].Time) })
	for _, host := range newestFirst {
		if !isOf(f.connections[host], f.records[host]) {
			errs = append(errs, k.restore(ctx, host, f.records[host]))
		}
	}

	if k.Assigned != nil {
		for _, host := range newestFirst {
			if !isOf(f.connections[host], f.records[host]) {
				continue // restored above, or a later sandbox owns the port
			}

			errs = append(errs, k.readdress(ctx, host, f.records[host]))
		}
	}

	return errors.Join(errs...)
}

// removeGone removes devices without connection and record, and the interfaces of pods that are
// gone. It adds records to f for connections without one.
func (k *Keeper) removeGone(ctx context.Context, f foundParts) error {
	var errs []error

	for host, c := range f.connections {
		if _, recorded := f.records[host]; !recorded { // created by an older agent
			f.records[host] = Pod{ContainerID: c.ContainerID, LogicalPort: c.LogicalPort, UID: c.UID}
		}
	}

	for _, host := range f.devices {
		if _, recorded := f.records[host]; !recorded {
			errs = append(errs, k.drop(ctx, host, "it has neither connection nor record"))
		}
	}

	for _, host := range slices.Sorted(maps.Keys(f.records)) {
		if err := k.removeIfGone(ctx, host, f.records[host]); err != nil {
			errs = append(errs, err)
			break // the API server does not answer: remove no pod
		}
	}

	return errors.Join(errs...)
}

// reportDevices calls OnPass with the devices that exist.
func (k *Keeper) reportDevices(records map[string]Pod) {
	if k.OnPass == nil {
		return
	}

	var out []link.PodDevice

	for host, p := range records {
		if l, err := link.Get(host); err == nil && p.MTU != 0 { // 0: created by an agent without records
			out = append(out, deviceOf(l.Index, p))
		}
	}

	k.OnPass(out)
}

// isOf reports whether c is the connection of the pod. The zero Connection is that of no pod.
func isOf(c Connection, p Pod) bool { return c.IsOf != nil && c.IsOf(p) }

// restore connects a pod again. It does not ask the API server whether the pod still exists: an
// unreachable API server must not keep a pod without a connection.
func (k *Keeper) restore(ctx context.Context, host string, p Pod) error {
	release, free := k.Try(p.ContainerID)
	if !free {
		return nil
	}
	defer release()

	if _, known := k.Interfaces.Record(p.ContainerID, p.Interface); !known {
		return nil // deleted since
	}

	if _, err := link.Get(host); errors.Is(err, link.ErrNotFound) {
		return k.recreate(ctx, host, p) // if it creates nothing, removeIfGone removes the rest
	}

	connections, err := k.Attached.List(ctx)
	if err != nil {
		return err
	}

	for name, c := range connections {
		if name != host && c.LogicalPort == p.LogicalPort {
			return nil // a later sandbox owns the logical port
		}
	}

	if isOf(connections[host], p) {
		return nil
	}

	k.Log.Warn("restoring a lost pod port", "port", host, "pod", p.LogicalPort)

	return k.Interfaces.connect(ctx, p)
}

// recreate creates the device of a pod whose network namespace is still there.
func (k *Keeper) recreate(ctx context.Context, host string, p Pod) error {
	if !k.Recreate || link.CheckNetns(p.Netns) != nil {
		return nil
	}

	k.Log.Warn("creating a pod's device again", "device", host, "pod", p.LogicalPort)

	return k.Interfaces.createParts(ctx, p)
}

// removeIfGone removes all parts of an interface if its device or its pod is gone. Otherwise it
// sets a device up that is down.
func (k *Keeper) removeIfGone(ctx context.Context, host string, p Pod) error {
	release, free := k.Try(p.ContainerID)
	if !free {
		return nil
	}
	defer release()

	device, err := link.Get(host)
	if errors.Is(err, link.ErrNotFound) {
		return k.drop(ctx, host, "its device and network namespace are gone")
	}

	if err == nil && !device.Up {
		k.Log.Warn("setting up a pod device that was down", "device", host, "pod", p.LogicalPort)
		err = link.SetUp(host)
	}

	if err != nil {
		return err
	}

	namespace, name, _ := strings.Cut(p.LogicalPort, "_")

	gone, err := k.Gone(ctx, namespace, name, p.UID)
	if gone {
		return k.drop(ctx, host, "its pod is gone")
	}

	return err
}

// drop removes all parts of an interface.
func (k *Keeper) drop(ctx context.Context, host, why string) error {
	k.Log.Info("removing a port without a pod", "port", host, "reason", why)

	if err := k.Interfaces.remove(ctx, host); err != nil {
		return fmt.Errorf("remove port %s without a pod: %w", host, err)
	}

	return nil
}

// Attachment identifies an interface of a container, as the CNI specification does. Interface is
// its name in the pod.
type Attachment struct{ ContainerID, Interface string }

// Collect removes the interfaces that are not in valid, for the CNI command GC. It skips containers
// with a request under way.
func (k *Keeper) Collect(ctx context.Context, valid []Attachment) error {
	f, err := k.find(ctx)
	if err != nil {
		return err
	}

	keep := map[string]bool{}       // by host interface
	containers := map[string]bool{} // of valid attachments

	for _, a := range valid {
		keep[HostName(a.ContainerID, a.Interface)] = true
		containers[a.ContainerID] = true
	}

	owners := map[string]string{} // container of each host interface; "": unknown
	for _, host := range f.devices {
		owners[host] = ""
	}

	for host, c := range f.connections {
		owners[host] = c.ContainerID

		_, recorded := f.records[host]
		if !recorded && containers[c.ContainerID] { // an earlier plugin made it, under another name
			keep[host] = true
		}
	}

	for host, p := range f.records {
		owners[host] = p.ContainerID
	}

	var errs []error

	for _, host := range slices.Sorted(maps.Keys(owners)) {
		if keep[host] {
			continue
		}

		if release, free := k.Try(owners[host]); free {
			errs = append(errs, k.drop(ctx, host, "the runtime has no such attachment"))

			release()
		}
	}

	return errors.Join(errs...)
}
