package underlay

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/agent/nested"
	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
)

// nic is the VM's NIC.
type nic struct {
	link.Link
	address netip.Addr   // the node's, IPv4 if it has one
	host    []netip.Addr // all addresses of the VM
}

// ethernetLen is the length of an Ethernet address.
const ethernetLen = 6

// findNIC returns the configured NIC, or that of the default route.
func findNIC(name string) (nic, error) {
	if name == "" {
		var err error
		if name, err = link.DefaultDevice(); err != nil {
			return nic{}, fmt.Errorf("find NIC: %w", err)
		}

		if name == "" {
			return nic{}, errors.New("find NIC: the host has no default route, and --underlay-interface is not set")
		}
	}

	l, err := link.Get(name)
	if err != nil {
		return nic{}, fmt.Errorf("find NIC: %w", err)
	}

	if len(l.MAC) != ethernetLen {
		return nic{}, fmt.Errorf("find NIC: device %s has no Ethernet address", name)
	}

	addresses, err := link.Addresses()
	if err != nil {
		return nic{}, fmt.Errorf("find NIC: %w", err)
	}

	out := nic{Link: l}

	for _, a := range addresses {
		addr := a.Prefix.Addr()
		out.host = append(out.host, addr)

		preferred := !out.address.IsValid() || addr.Is4() && !out.address.Is4()
		if a.Device == name && !a.LinkLocal && !a.Secondary && preferred {
			out.address = addr
		}
	}

	if !out.address.IsValid() {
		return nic{}, fmt.Errorf("find NIC: device %s has no address", name)
	}

	return out, nil
}

// check returns an error if the NIC is unfit for pods: if its MTU is smaller than mtu, that of the
// pods' network, or if another NIC has its MAC address, so that the controller cannot tell them
// apart.
func (n nic) check(mtu int) error {
	if n.MTU < mtu {
		return fmt.Errorf("NIC %s: its MTU %d is smaller than the MTU %d of the pods' network",
			n.Name, n.MTU, mtu)
	}

	all, err := link.List()
	if err != nil {
		return err
	}

	var twins []string

	for _, l := range all {
		if l.Name == n.Name || slices.Equal(l.MAC, n.MAC) && isNIC(l) {
			twins = append(twins, l.Name)
		}
	}

	if len(twins) > 1 {
		return fmt.Errorf("NIC %s: %d devices have the MAC address %s: %s",
			n.Name, len(twins), n.MAC, strings.Join(twins, ", "))
	}

	return nil
}

// isNIC reports whether a device may be a NIC of the VM. Devices that are made of a NIC, and the
// ports of a bridge or bond, share the NIC's MAC address.
func isNIC(l link.Link) bool {
	switch l.Kind {
	case "bridge", "bond", "team", "vlan", "macvlan", "macvtap", "ipvlan":
		return false
	}

	return l.Master == 0
}

// syncNIC attaches the programs to the NIC, and announces the NIC to the controller. An unfit NIC
// still serves the running pods.
func (a *agent) syncNIC(ctx context.Context) error {
	n, err := a.useNIC()
	a.setNICFault(err)

	if !n.address.IsValid() {
		return err
	}

	a.cluster.FollowAddresses(n.host)

	return errors.Join(err, a.announceNIC(ctx, n))
}

// useNIC finds the NIC and attaches the programs to it. If it returns an error and a NIC with an
// address, the NIC may still be used.
func (a *agent) useNIC() (nic, error) {
	n, err := findNIC(a.cfg.Interface)
	if err != nil {
		return n, err
	}

	if !n.Promiscuous {
		// The pods' VLANs and MAC addresses are not registered with the NIC, whose filters would
		// drop their packets.
		if err := link.SetPromiscuous(n.Name, true); err != nil {
			return n, err
		}
	}

	tags, mtu := a.ports.network()
	if err := a.network.Sync(nested.NIC{Ifindex: n.Index, Host: n.host, Tags: tags}); err != nil {
		return n, err
	}

	return n, n.check(mtu)
}

// setNICFault stores the error of syncNIC for nicMissing.
func (a *agent) setNICFault(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}

	if before := a.nicFault.Swap(&text); before == nil || *before != text {
		a.ready.Changed.Trigger()
	}
}

// announceNIC annotates the Node, if it exists, with the NIC, so that the controller finds its
// Neutron port.
func (a *agent) announceNIC(ctx context.Context, n nic) error {
	node := a.cluster.Node()
	if node == nil {
		return nil // the informer wakes the agent when the Node is created
	}

	want := annotation.FormatUnderlay(annotation.VIF{ID: a.cfg.VIF, MAC: n.MAC, Address: n.address, MTU: n.MTU})
	if node.Annotations[annotation.Underlay] == want {
		return nil
	}

	return a.cluster.Annotate(ctx, map[string]string{annotation.Underlay: want})
}
