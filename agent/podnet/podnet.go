// Package podnet gives a pod its interface: a veth pair between the host and
// the pod's network namespace, and the port on the integration bridge that
// makes it OVN's. What it makes it can find and remove again from the
// container's ID alone.
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
}

// Stealer keeps the host's stack from handling a port's packets a second
// time. It is needed on the userspace datapath alone.
type Stealer interface{ Attach(ifindex int) error }

// Wirer adds and deletes pods' interfaces. It holds no state; calls for
// different containers may run at the same time.
type Wirer struct {
	OVS    *ovs.Client
	Bridge string
	Steal  Stealer // nil on the kernel datapath
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
	if err := link.SyncPodInterface(w.spec(p)); err != nil {
		return "", err
	}
	if w.Steal != nil {
		l, err := link.Get(host)
		if err != nil {
			return "", err
		}
		if err := w.Steal.Attach(l.Index); err != nil {
			return "", err
		}
	}
	if err := w.OVS.SyncPort(ctx, ovs.Port{Bridge: w.Bridge, Name: host, Transient: true, ExternalIDs: externalIDs(p)}); err != nil {
		return "", err
	}
	if err := w.OVS.WaitInstalled(ctx, host); err != nil {
		return "", err
	}
	return host, nil
}

// Del removes the container's interface and all its ports. What is not there
// is no error; the pod's namespace may be gone.
func (w *Wirer) Del(ctx context.Context, containerID, iface string) error {
	err := w.remove(ctx, HostName(containerID, iface))
	if containerID == "" {
		return err
	}
	return errors.Join(err, w.OVS.RemovePorts(ctx, ovs.Sandbox, containerID))
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
	for k, want := range externalIDs(p) {
		if ids[k] != want {
			return fmt.Errorf("port %s: external_ids:%s is %q, want %q", host, k, ids[k], want)
		}
	}
	return nil
}

// remove takes the port off the bridge before its device goes, so that OVS
// does not complain of a missing device.
func (w *Wirer) remove(ctx context.Context, host string) error {
	return errors.Join(w.OVS.RemovePort(ctx, host), link.Delete(host))
}

func (w *Wirer) spec(p Pod) link.PodInterface {
	return link.PodInterface{
		HostName: HostName(p.ContainerID, p.Interface), Netns: p.Netns, Name: p.Interface, MAC: p.MAC, MTU: p.MTU,
		Addresses: p.Addresses, Gateways: p.Gateways, NoChecksum: w.Steal != nil,
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
