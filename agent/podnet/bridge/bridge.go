// Package bridge connects pods' interfaces to OVN: each is a port of the integration bridge, and
// ovn-controller binds it to the pod's logical port.
package bridge

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
	"github.com/ovn-ebpf/ovn-ebpf/agent/podnet"
	"github.com/ovn-ebpf/ovn-ebpf/loop"
)

// Stealer attaches a program to a device that takes packets which OVS has read from the device away
// from the host's stack. Otherwise the stack would handle them, too. Only the userspace datapath
// needs it.
type Stealer interface{ Attach(ifindex int) error }

// Bridge is the podnet.Connector and podnet.Attached of the integration bridge.
type Bridge struct {
	OVS   *ovs.Client
	Name  string
	Steal Stealer // nil on the kernel datapath
}

var (
	_ podnet.Connector = (*Bridge)(nil)
	_ podnet.Attached  = (*Bridge)(nil)
)

// Connect adds the device as a port.
func (b *Bridge) Connect(ctx context.Context, host string, p podnet.Pod) error {
	if b.Steal != nil {
		l, err := link.Get(host)
		if err != nil {
			return err
		}

		if err := b.Steal.Attach(l.Index); err != nil {
			return err
		}
	}

	return b.OVS.SyncPort(ctx, ovs.Port{
		Bridge:      b.Name,
		Name:        host,
		Transient:   true,
		ExternalIDs: externalIDs(p),
		OwnQueue:    p.IngressRate != 0,
	})
}

// Await waits until ovn-controller has installed the port's flows.
func (b *Bridge) Await(ctx context.Context, host string) error {
	if err := b.OVS.WaitInstalled(ctx, host); err != nil {
		return err
	}

	// The name may have belonged to another device a moment ago. When ovs-vswitchd releases that
	// one, it sets the new device's flags to down.
	return link.SetUp(host)
}

// Check returns an error if the port is not that of the pod, or not installed.
func (b *Bridge) Check(ctx context.Context, host string, p podnet.Pod) error {
	ids, complaint, err := b.OVS.Port(ctx, host)
	if err != nil {
		return err
	}

	if complaint != "" {
		return fmt.Errorf("port %s: OVS says %q", host, complaint)
	}

	want := externalIDs(p)
	want[ovs.Installed] = "true"

	for key, value := range want {
		if ids[key] != value {
			return fmt.Errorf("port %s: external_ids:%s is %q, want %q", host, key, ids[key], value)
		}
	}

	return nil
}

// Reset detaches a device from ovs-vswitchd before it is recreated. The new device needs a new
// port: on the old one, OVS would keep using the socket and the queueing discipline of the old
// device. ovs-vswitchd does not notice a port that is removed and added between two of its passes,
// so Reset waits for a pass.
func (b *Bridge) Reset(ctx context.Context, host string) error {
	_, _, portErr := b.OVS.Port(ctx, host)
	_, deviceErr := link.Get(host)

	if errors.Is(portErr, ovs.ErrNotFound) && errors.Is(deviceErr, link.ErrNotFound) {
		return nil
	}

	if err := b.OVS.RemovePort(ctx, host); err != nil {
		return err
	}

	return b.OVS.WaitApplied(ctx)
}

// Release removes the port.
func (b *Bridge) Release(ctx context.Context, host string) error { return b.OVS.RemovePort(ctx, host) }

// List returns the ports that have a pod's external_ids.
func (b *Bridge) List(ctx context.Context) (map[string]podnet.Connection, error) {
	if !b.OVS.Connected() {
		return nil, errors.New("read pods' ports: OVSDB is not connected")
	}

	ports, err := b.OVS.PodPorts(ctx)
	if err != nil {
		return nil, err
	}

	out := make(map[string]podnet.Connection, len(ports))
	for host, ids := range ports {
		out[host] = podnet.Connection{
			ContainerID: ids[ovs.Sandbox], LogicalPort: ids[ovs.IfaceID], UID: ids[ovs.IfaceIDVer],
			IsOf: func(p podnet.Pod) bool { return hasIDs(ids, externalIDs(p)) },
		}
	}

	return out, nil
}

// Watch triggers wake whenever a port or bridge changes.
func (b *Bridge) Watch(wake loop.Signal) (stop func()) {
	return b.OVS.Watch(func(table, _ string) bool { return table == "Port" || table == "Bridge" }, wake)
}

// hasIDs reports whether the external_ids have all that are wanted.
func hasIDs(ids, want map[string]string) bool {
	for id, value := range want {
		if ids[id] != value {
			return false
		}
	}

	return true
}

// externalIDs returns the external_ids of a pod's port.
func externalIDs(p podnet.Pod) map[string]string {
	var ips []string
	for _, a := range p.IPs() {
		ips = append(ips, a.String())
	}

	ids := map[string]string{
		ovs.IfaceID: p.LogicalPort, ovs.IfaceIDVer: p.UID, ovs.AttachedMAC: p.MAC.String(),
		ovs.IPAddresses: strings.Join(ips, ","), ovs.Sandbox: p.ContainerID,
	}
	if len(ips) == 1 {
		ids["ip_address"] = ips[0]
	}

	return ids
}

// Cleanup removes all ports and devices of pods.
func Cleanup(ctx context.Context, o *ovs.Client) error {
	ports, err := o.PodPorts(ctx)
	errs := []error{err}

	for host := range ports {
		errs = append(errs, o.RemovePort(ctx, host), link.Delete(host))
	}

	devices, err := link.PodDevices()
	errs = append(errs, err)

	for _, host := range devices {
		errs = append(errs, link.Delete(host))
	}

	return errors.Join(append(errs, o.RemoveQoS(ctx))...)
}
