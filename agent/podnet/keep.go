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
	"github.com/ovn-ebpf/ovn-ebpf/agent/loop"
	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
)

const (
	keepResync = time.Minute
	// keepPause is between two passes: each pod that comes wakes the Keeper.
	keepPause = time.Second
)

// Keeper gives pods their ports again where those are lost, and removes ports,
// devices and records that have no pod.
type Keeper struct {
	Wirer *Wirer
	// Gone says whether a pod is gone from the node for certain. Where it
	// cannot be told it returns an error.
	Gone func(ctx context.Context, namespace, name, uid string) (bool, error)
	// Try keeps requests of a container away; false if there is one.
	Try func(containerID string) (release func(), ok bool)
	Log *slog.Logger
	// Assigned returns what the controller says of a pod now, false if that is not known; nil
	// if nobody is to be asked.
	Assigned func(namespace, name, uid string) (Assigned, bool)
	// Readdressed is told of a pod whose interface has other addresses now; nil: nobody is.
	Readdressed func(ctx context.Context, now Pod, was Assigned)
	// Wake is kicked when what the controller says of a pod has changed.
	Wake loop.Signal

	doubts map[string]doubt // by the host's end; Run's
}

// Run keeps until ctx ends.
func (k *Keeper) Run(ctx context.Context) error {
	wake, stop := k.Wirer.OVS.Watch(func(table, _ string) bool { return table == "Port" || table == "Bridge" })
	defer stop()
	if k.Wake == nil {
		k.Wake = loop.NewSignal()
	}
	signal := k.Wake
	go func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-wake:
				signal.Trigger()
			}
		}
	}()
	var last time.Time
	return loop.Run(ctx, loop.Options{Name: "pods' ports", Wake: signal, Resync: keepResync, Log: k.Log, Apply: func(ctx context.Context) error {
		if wait := time.Until(last.Add(keepPause)); wait > 0 {
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(wait):
			}
		}
		defer func() { last = time.Now() }()
		return k.pass(ctx)
	}})
}

// found is what there is of pods, by the names of the host's ends.
type found struct {
	ports   map[string]map[string]string // external_ids
	devices []string
	records map[string]Pod
}

// find reads records last: they are written first, so what else there is
// without one is being removed or left over.
func (w *Wirer) find(ctx context.Context) (found, error) {
	if !w.OVS.Connected() {
		return found{}, errors.New("read pods' ports: OVSDB is not connected")
	}
	var f found
	var err1, err2, err3 error
	f.ports, err1 = w.OVS.PodPorts(ctx)
	f.devices, err2 = link.PodDevices()
	f.records, err3 = w.records()
	return f, errors.Join(err1, err2, err3)
}

func (k *Keeper) pass(ctx context.Context) error {
	f, err := k.Wirer.find(ctx)
	if err != nil {
		return err
	}
	var errs []error
	// Of two sandboxes of one pod the later has its port.
	newest := slices.SortedFunc(maps.Keys(f.records), func(a, b string) int { return f.records[b].Time.Compare(f.records[a].Time) })
	for _, host := range newest {
		if !owns(f.ports[host], f.records[host]) {
			errs = append(errs, k.restore(ctx, host, f.records[host]))
		}
	}
	for _, host := range newest {
		if !owns(f.ports[host], f.records[host]) {
			continue // it is restored, or a later sandbox has the port
		}
		errs = append(errs, k.readdress(ctx, host, f.records[host]))
	}
	for host, ids := range f.ports {
		if _, recorded := f.records[host]; !recorded { // of an agent before this one
			f.records[host] = Pod{ContainerID: ids[ovs.Sandbox], LogicalPort: ids[ovs.IfaceID], UID: ids[ovs.IfaceIDVer]}
		}
	}
	for _, host := range f.devices {
		if _, recorded := f.records[host]; !recorded {
			errs = append(errs, k.drop(ctx, host, "nothing else of it is left"))
		}
	}
	for _, host := range slices.Sorted(maps.Keys(f.records)) {
		if err := k.judge(ctx, host, f.records[host]); err != nil {
			errs = append(errs, err)
			break // the API server does not answer: nobody is judged
		}
	}
	return errors.Join(errs...)
}

// owns says whether a port's external_ids are the pod's.
func owns(ids map[string]string, p Pod) bool {
	for id, want := range externalIDs(p) {
		if ids[id] != want {
			return false
		}
	}
	return true
}

// restore brings one pod's port back. It asks nobody whether the pod is still
// there: who cannot be asked is no reason to leave it without.
func (k *Keeper) restore(ctx context.Context, host string, p Pod) error {
	release, free := k.Try(p.ContainerID)
	if !free {
		return nil
	}
	defer release()
	if _, known := k.Wirer.Record(p.ContainerID, p.Interface); !known {
		return nil // deleted since
	}
	if _, err := link.Get(host); errors.Is(err, link.ErrNotFound) {
		return nil // judge will remove the rest
	}
	ports, err := k.Wirer.OVS.PodPorts(ctx)
	if err != nil {
		return err
	}
	for name, ids := range ports {
		if name != host && ids[ovs.IfaceID] == p.LogicalPort {
			return nil // a later sandbox has it
		}
	}
	if owns(ports[host], p) {
		return nil
	}
	k.Log.Warn("a pod's port was lost and is made again", "port", host, "pod", p.LogicalPort)
	return k.Wirer.connect(ctx, p)
}

// judge removes all of a pod that is gone, and sets a device up that is down.
func (k *Keeper) judge(ctx context.Context, host string, p Pod) error {
	release, free := k.Try(p.ContainerID)
	if !free {
		return nil
	}
	defer release()
	device, err := link.Get(host)
	if errors.Is(err, link.ErrNotFound) {
		return k.drop(ctx, host, "its device is gone, and so its network namespace")
	}
	if err == nil && !device.Up {
		k.Log.Warn("a pod's device was down and is set up", "device", host, "pod", p.LogicalPort)
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

func (k *Keeper) drop(ctx context.Context, host, why string) error {
	k.Log.Info("removing a port without a pod", "port", host, "reason", why)
	if err := k.Wirer.remove(ctx, host); err != nil {
		return fmt.Errorf("remove port %s without a pod: %w", host, err)
	}
	return nil
}

// Attachment is an interface of a container.
type Attachment struct{ ContainerID, Interface string }

// Collect removes what none of the attachments owns. A container for which a
// request is under way is left out.
func (k *Keeper) Collect(ctx context.Context, valid []Attachment) error {
	f, err := k.Wirer.find(ctx)
	if err != nil {
		return err
	}
	keep, containers := map[string]bool{}, map[string]bool{}
	for _, a := range valid {
		keep[HostName(a.ContainerID, a.Interface)], containers[a.ContainerID] = true, true
	}
	owners := map[string]string{}
	for _, host := range f.devices {
		owners[host] = ""
	}
	for host, ids := range f.ports {
		owners[host] = ids[ovs.Sandbox]
		if _, recorded := f.records[host]; !recorded && containers[ids[ovs.Sandbox]] { // of another plugin, by another name
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

// Cleanup removes all ports and devices of pods.
func Cleanup(ctx context.Context, o *ovs.Client) error {
	ports, err1 := o.PodPorts(ctx)
	devices, err2 := link.PodDevices()
	errs := []error{err1, err2}
	for host := range ports {
		errs = append(errs, o.RemovePort(ctx, host), link.Delete(host))
	}
	for _, host := range devices {
		errs = append(errs, link.Delete(host))
	}
	return errors.Join(append(errs, o.RemoveQoS(ctx))...)
}
