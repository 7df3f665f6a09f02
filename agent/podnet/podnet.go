// Package podnet creates a pod's interface: a veth pair between the host and the pod's network
// namespace, and the connection of the host's end to the pods' network, which a Connector makes.
// The container's ID alone is enough to find and remove all parts again.
//
// Before InterfaceManager creates the parts it writes a record: one file per container, in a
// directory that is emptied at boot, as network namespaces are. From these records, Keeper restores
// the parts after a restart of the agent or the loss of the connections, and removes parts without
// a pod.
package podnet

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
)

// undoTimeout bounds the cleanup after a failed Add.
const undoTimeout = 20 * time.Second

// Pod is the interface of a pod, as requested by an Add. A record is a Pod.
type Pod struct {
	ContainerID string // the sandbox
	Netns       string // path
	Interface   string // name in the pod
	LogicalPort string // <namespace>_<name>
	UID         string
	MAC         net.HardwareAddr
	Addresses   []netip.Prefix
	Gateways    []netip.Addr // next hops of default routes
	MTU         int
	// Limits in bits per second, in the pod's direction; 0 means no limit.
	IngressRate, EgressRate uint64
	Time                    time.Time // of Add, which sets it

	// The following fields are set in underlay mode only.
	Port        string             `json:",omitempty"` // UUID of the Neutron port
	Tag         int                `json:",omitempty"` // VLAN tag of the port in the node's trunk
	GatewayMACs []net.HardwareAddr `json:",omitempty"` // of Gateways, in their order
}

// Name returns namespace/name of the pod.
func (p Pod) Name() string { return strings.Replace(p.LogicalPort, "_", "/", 1) }

// IPs returns the pod's addresses without the lengths of their prefixes.
func (p Pod) IPs() []netip.Addr {
	out := make([]netip.Addr, len(p.Addresses))
	for i, a := range p.Addresses {
		out[i] = a.Addr()
	}

	return out
}

// Phases of Add, as passed to Observe.
const (
	PhaseWiring    = "wiring"        // the creation of all parts
	PhaseInstalled = "ovn_installed" // the wait until the interface passes packets
)

// InterfaceManager adds and deletes pods' interfaces. Calls for different containers may run at the
// same time. Callers must serialise calls for one container.
type InterfaceManager struct {
	Connector     Connector
	NoChecksum    bool                                   // pods' devices must not leave checksums to be computed later
	Dir           string                                 // of the records
	Observe       func(phase string, took time.Duration) // may be nil
	OnDeviceAdded func(link.PodDevice)                   // called with each new pod's device; may be nil
	OnRemoved     func(host string)                      // called when nothing of an interface is left; may be nil
}

// HostName returns the name of the host's end of the veth pair. It is at most 15 characters long
// and depends only on the container and the interface name.
func HostName(containerID, iface string) string {
	sum := sha256.Sum256([]byte(containerID + "/" + iface))
	return "veth" + hex.EncodeToString(sum[:])[:11]
}

// Add creates the interface and waits until it passes packets. It returns the name of the host's
// end. Add is idempotent; a failed Add leaves no parts.
func (w *InterfaceManager) Add(ctx context.Context, p Pod) (hostName string, err error) {
	host := HostName(p.ContainerID, p.Interface)

	defer func() {
		if err != nil {
			err = errors.Join(err, w.Undo(ctx, p))
		}
	}()

	start := time.Now()

	if err := w.createParts(ctx, p); err != nil {
		return "", err
	}

	wired := time.Now()
	w.observe(PhaseWiring, wired.Sub(start))

	if err := w.Connector.Await(ctx, host); err != nil {
		return "", err
	}

	w.observe(PhaseInstalled, time.Since(wired))

	return host, nil
}

// createParts creates those of record, veth pair and connection that are missing.
func (w *InterfaceManager) createParts(ctx context.Context, p Pod) error {
	if err := w.record(p); err != nil {
		return err
	}

	if link.CheckPodInterface(w.spec(p)) != nil {
		if err := w.Connector.Reset(ctx, HostName(p.ContainerID, p.Interface)); err != nil {
			return err
		}
	}

	if err := link.SyncPodInterface(w.spec(p)); err != nil {
		return err
	}

	return w.connect(ctx, p)
}

// connect connects the host's end. OnDeviceAdded is called before that, because packets may flow at
// once.
func (w *InterfaceManager) connect(ctx context.Context, p Pod) error {
	host := HostName(p.ContainerID, p.Interface)
	if w.OnDeviceAdded != nil {
		l, err := link.Get(host)
		if err != nil {
			return err
		}

		w.OnDeviceAdded(deviceOf(l.Index, p))
	}

	return w.Connector.Connect(ctx, host, p)
}

// deviceOf returns the host's end of a pod's interface.
func deviceOf(ifindex int, p Pod) link.PodDevice {
	return link.PodDevice{Ifindex: ifindex, MTU: p.MTU, Limited: p.IngressRate != 0 || p.EgressRate != 0}
}

// observe calls Observe, if it is set.
func (w *InterfaceManager) observe(phase string, took time.Duration) {
	if w.Observe != nil {
		w.Observe(phase, took)
	}
}

// Undo removes the interface of an Add that fails, also after the end of ctx, which may be the
// cause of the failure.
func (w *InterfaceManager) Undo(ctx context.Context, p Pod) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()

	return w.Del(ctx, p.ContainerID, p.Interface)
}

// Del removes the container's interface and its connection. It is idempotent, and works without the
// pod's namespace.
func (w *InterfaceManager) Del(ctx context.Context, containerID, iface string) error {
	return w.remove(ctx, HostName(containerID, iface))
}

// Check returns an error if any part of the interface differs from what Add created.
func (w *InterfaceManager) Check(ctx context.Context, p Pod) error {
	host := HostName(p.ContainerID, p.Interface)
	if err := link.CheckPodInterface(w.spec(p)); err != nil {
		return err
	}

	return w.Connector.Check(ctx, host, p)
}

// remove releases the device before it deletes it, so that OVS does not complain about a missing
// device. The record is removed last, when all else is gone.
func (w *InterfaceManager) remove(ctx context.Context, host string) error {
	if err := errors.Join(w.Connector.Release(ctx, host), link.Delete(host)); err != nil {
		return err
	}

	if err := w.forget(host); err != nil {
		return err
	}

	if w.OnRemoved != nil {
		w.OnRemoved(host)
	}

	return nil
}

// spec returns the veth pair of a pod.
func (w *InterfaceManager) spec(p Pod) link.PodInterface {
	return link.PodInterface{
		HostName:   HostName(p.ContainerID, p.Interface),
		Netns:      p.Netns,
		Name:       p.Interface,
		MAC:        p.MAC,
		MTU:        p.MTU,
		Addresses:  p.Addresses,
		Gateways:   p.Gateways,
		NoChecksum: w.NoChecksum,
		Egress:     p.EgressRate,
		Ingress:    p.IngressRate,
	}
}
