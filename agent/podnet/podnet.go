// Package podnet gives a pod its interface: a veth pair between the host and
// the pod's network namespace, and the port on the integration bridge that
// makes it OVN's. What it makes it can find and remove again from the
// container's ID alone.
//
// Before it makes anything it writes down what (a file a container, in a
// directory that the next boot empties, as it does with network namespaces).
// From these records Keeper repairs after a restart of the agent or the loss of
// the OVS database, and removes what has no pod.
package podnet

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
)

// undoTimeout bounds the removal of what a failed Add has made.
const undoTimeout = 20 * time.Second

// Pod is one pod's interface.
type Pod struct {
	ContainerID string // the sandbox
	Netns       string // path
	Interface   string // name in the pod
	LogicalPort string // <namespace>_<name>
	UID         string
	MAC         net.HardwareAddr
	Addresses   []netip.Prefix
	Gateways    []netip.Addr
	MTU         int
	// Limits in bits a second, as the pod sees the direction; 0 is none.
	IngressRate, EgressRate uint64
	Time                    time.Time // of Add, which sets it
}

// Stealer keeps the host's stack from handling a port's packets a second
// time. It is needed on the userspace datapath alone.
type Stealer interface{ Attach(ifindex int) error }

// Phases of Add, as Observe is told them.
const (
	PhaseWiring    = "wiring"
	PhaseInstalled = "ovn_installed"
)

// Wirer adds and deletes pods' interfaces. Calls for different containers may
// run at the same time.
type Wirer struct {
	OVS     *ovs.Client
	Bridge  string
	Steal   Stealer                                // nil on the kernel datapath
	Dir     string                                 // of the records
	Observe func(phase string, took time.Duration) // nil for nobody
}

// HostName returns the name of the host's end: the same for the same
// interface of the same container, at most 15 characters.
func HostName(containerID, iface string) string {
	sum := sha256.Sum256([]byte(containerID + "/" + iface))
	return "veth" + hex.EncodeToString(sum[:])[:11]
}

// Add makes the interface and returns, with the name of the host's end, when
// ovn-controller has installed its flows. A second Add of the same pod changes
// nothing; an Add that fails leaves nothing.
func (w *Wirer) Add(ctx context.Context, p Pod) (hostName string, err error) {
	host := HostName(p.ContainerID, p.Interface)
	defer func() {
		if err != nil {
			// The request's context may be what failed.
			undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
			defer cancel()
			err = errors.Join(err, w.remove(undo, host))
		}
	}()
	start := time.Now()
	if err := w.wire(ctx, p); err != nil {
		return "", err
	}
	wired := time.Now()
	w.observe(PhaseWiring, wired.Sub(start))
	if err := w.OVS.WaitInstalled(ctx, host); err != nil {
		return "", err
	}
	w.observe(PhaseInstalled, time.Since(wired))
	// Where the name was another device's a moment ago ovs-vswitchd, when it lets
	// go of that one, gives this one its flags: down.
	if err := link.SetUp(host); err != nil {
		return "", err
	}
	return host, nil
}

// wire makes what is not there of record, interface and port.
func (w *Wirer) wire(ctx context.Context, p Pod) error {
	if err := w.record(p); err != nil {
		return err
	}
	if link.CheckPodInterface(w.spec(p)) != nil {
		if err := w.release(ctx, HostName(p.ContainerID, p.Interface)); err != nil {
			return err
		}
	}
	if err := link.SyncPodInterface(w.spec(p)); err != nil {
		return err
	}
	return w.connect(ctx, p)
}

// release takes a device that is to be made again out of the hands of
// ovs-vswitchd. One in another's place must be a new port: OVS would go on with
// the socket and the queueing discipline of the old one. A port that goes and
// comes before ovs-vswitchd looks is no new one, hence the wait.
func (w *Wirer) release(ctx context.Context, host string) error {
	_, _, noPort := w.OVS.Port(ctx, host)
	_, noDevice := link.Get(host)
	if errors.Is(noPort, ovs.ErrNotFound) && errors.Is(noDevice, link.ErrNotFound) {
		return nil
	}
	if err := w.OVS.RemovePort(ctx, host); err != nil {
		return err
	}
	return w.OVS.Settle(ctx)
}

// connect makes the interface a port of the bridge.
func (w *Wirer) connect(ctx context.Context, p Pod) error {
	host := HostName(p.ContainerID, p.Interface)
	if w.Steal != nil {
		l, err := link.Get(host)
		if err != nil {
			return err
		}
		if err := w.Steal.Attach(l.Index); err != nil {
			return err
		}
	}
	return w.OVS.SyncPort(ctx, ovs.Port{
		Bridge: w.Bridge, Name: host, Transient: true, ExternalIDs: externalIDs(p), OwnQueue: p.IngressRate != 0,
	})
}

func (w *Wirer) observe(phase string, took time.Duration) {
	if w.Observe != nil {
		w.Observe(phase, took)
	}
}

// Del removes the container's interface and its port. What is not there is no
// error; the pod's namespace may be gone.
func (w *Wirer) Del(ctx context.Context, containerID, iface string) error {
	return w.remove(ctx, HostName(containerID, iface))
}

// Check returns what of the interface is not as Add made it.
func (w *Wirer) Check(ctx context.Context, p Pod) error {
	host := HostName(p.ContainerID, p.Interface)
	if err := link.CheckPodInterface(w.spec(p)); err != nil {
		return err
	}
	ids, complaint, err := w.OVS.Port(ctx, host)
	if err != nil {
		return err
	}
	if complaint != "" {
		return fmt.Errorf("port %s: OVS says %q", host, complaint)
	}
	want := externalIDs(p)
	want[ovs.Installed] = "true"
	for k, want := range want {
		if ids[k] != want {
			return fmt.Errorf("port %s: external_ids:%s is %q, want %q", host, k, ids[k], want)
		}
	}
	return nil
}

// remove takes the port off the bridge before its device goes, so that OVS
// does not complain of a missing device. The record goes when nothing is left.
func (w *Wirer) remove(ctx context.Context, host string) error {
	if err := errors.Join(w.OVS.RemovePort(ctx, host), link.Delete(host)); err != nil {
		return err
	}
	return w.forget(host)
}

func (w *Wirer) spec(p Pod) link.PodInterface {
	return link.PodInterface{
		HostName: HostName(p.ContainerID, p.Interface), Netns: p.Netns, Name: p.Interface, MAC: p.MAC, MTU: p.MTU,
		Addresses: p.Addresses, Gateways: p.Gateways, NoChecksum: w.Steal != nil,
		Egress: p.EgressRate, Ingress: p.IngressRate,
	}
}

func externalIDs(p Pod) map[string]string {
	var ips []string
	for _, a := range p.Addresses {
		ips = append(ips, a.Addr().String())
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
