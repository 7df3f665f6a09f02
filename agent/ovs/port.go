package ovs

import (
	"context"
	"fmt"
	"maps"

	"github.com/ovn-ebpf/ovn-ebpf/loop"
	"github.com/ovn-ebpf/ovn-ebpf/ovsdb/vswitch"
)

// Keys of an interface's external_ids. ovn-controller writes Installed, and the agent the others.
const (
	IfaceID     = "iface-id"     // the logical port
	IfaceIDVer  = "iface-id-ver" // the pod's UID
	AttachedMAC = "attached_mac"
	IPAddresses = "ip_addresses"  // comma separated
	Sandbox     = "sandbox"       // the CNI container ID
	Installed   = "ovn-installed" // "true": ovn-controller has installed the flows
)

// Port is a port with one interface of the same name.
type Port struct {
	Bridge      string
	Name        string
	Type        string // "": an existing device of the host; "internal": OVS creates the device
	MAC         string // of an internal interface; "" leaves it to OVS
	MTU         int    // mtu_request; 0 keeps it
	Transient   bool   // a boot removes it, if OVS is started with --delete-transient-ports
	OwnQueue    bool   // OVS must not change the device's queueing discipline
	ExternalIDs map[string]string
}

// SyncPort creates the port, or corrects MAC, MTU and ExternalIDs of an existing one. The other
// fields, such as Transient and OwnQueue, apply only when it creates the port. If an interface of
// another name has the same iface-id (the pod's former sandbox), its port is deleted in the same
// transaction, so ovn-controller never sees two interfaces with one iface-id. SyncPort returns
// ErrNotFound if the bridge is missing.
func (c *Client) SyncPort(ctx context.Context, want Port) error {
	e := c.edit()

	err := e.syncPort(ctx, want)
	if err == nil {
		err = e.commit(ctx)
	}

	if err != nil {
		return fmt.Errorf("write port %s: %w", want.Name, err)
	}

	return nil
}

// syncPort adds the operations of SyncPort.
func (e *edit) syncPort(ctx context.Context, want Port) error {
	bridge, err := e.c.existingBridge(ctx, want.Bridge)
	if err != nil {
		return err
	}

	logicalPort := want.ExternalIDs[IfaceID]

	conflicting, err := e.c.ports(ctx, func(i *vswitch.Interface) bool {
		return logicalPort != "" && i.ExternalIDs[IfaceID] == logicalPort && i.Name != want.Name
	})
	if err != nil {
		return err
	}

	if err := e.detach(ctx, conflicting); err != nil {
		return err
	}

	iface, err := e.c.iface(ctx, want.Name)
	if err != nil {
		return err
	}

	if iface == nil {
		return e.createPort(ctx, bridge, want)
	}

	e.updateIface(iface, want)

	return nil
}

// createPort adds the operations that create the port.
func (e *edit) createPort(ctx context.Context, bridge *vswitch.Bridge, want Port) error {
	iface := &vswitch.Interface{
		UUID: "iface", Name: want.Name, Type: want.Type,
		MTURequest: optional(want.MTU), ExternalIDs: maps.Clone(want.ExternalIDs),
	}
	if want.MAC != "" {
		iface.MAC = &want.MAC
	}

	port := &vswitch.Port{UUID: "port", Name: want.Name, Interfaces: []string{iface.UUID}}
	if want.Transient {
		port.OtherConfig = map[string]string{"transient": "true"}
	}

	if want.OwnQueue {
		qos, err := e.noopQoS(ctx)
		if err != nil {
			return err
		}

		port.QOS = qos
	}

	e.create(iface, port)
	e.insert(bridge, &bridge.Ports, port.UUID)

	return nil
}

// updateIface adds the operations that make an existing interface as wanted.
func (e *edit) updateIface(have *vswitch.Interface, want Port) {
	row := &vswitch.Interface{UUID: have.UUID}

	var fields []any

	if want.MAC != "" && (have.MAC == nil || *have.MAC != want.MAC) {
		row.MAC = &want.MAC
		fields = append(fields, &row.MAC)
	}

	if want.MTU != 0 && (have.MTURequest == nil || *have.MTURequest != want.MTU) {
		row.MTURequest = &want.MTU
		fields = append(fields, &row.MTURequest)
	}

	e.update(have, row, fields...)
	e.setKeys(have, &have.ExternalIDs, want.ExternalIDs)
}

// RemovePort deletes the port. A missing port is not an error.
func (c *Client) RemovePort(ctx context.Context, name string) error {
	return c.removePorts(ctx, func(i *vswitch.Interface) bool { return i.Name == name })
}

// RemovePorts deletes every port with an interface that has value under key in external_ids. No
// such port is not an error.
func (c *Client) RemovePorts(ctx context.Context, key, value string) error {
	return c.removePorts(ctx, func(i *vswitch.Interface) bool { return i.ExternalIDs[key] == value })
}

// removePorts deletes the ports with a matching interface.
func (c *Client) removePorts(ctx context.Context, match func(*vswitch.Interface) bool) error {
	names, err := c.ports(ctx, match)
	if err != nil {
		return err
	}

	e := c.edit()
	if err = e.detach(ctx, names); err == nil {
		err = e.commit(ctx)
	}

	if err != nil {
		return fmt.Errorf("delete ports %v: %w", names, err)
	}

	return nil
}

// PodPorts returns the external_ids of the pods' interfaces, by interface name.
func (c *Client) PodPorts(ctx context.Context) (map[string]map[string]string, error) {
	pods, err := rows(ctx, c, "interfaces",
		func(i *vswitch.Interface) bool { return i.ExternalIDs[Sandbox] != "" })
	if err != nil {
		return nil, err
	}

	out := map[string]map[string]string{}
	for _, i := range pods {
		out[i.Name] = i.ExternalIDs
	}

	return out, nil
}

// Port returns the external_ids of the port's interface, and as complaint the error that OVS
// reports for it, or "". It returns ErrNotFound if the port does not exist.
func (c *Client) Port(
	ctx context.Context,
	name string,
) (externalIDs map[string]string, complaint string, err error) {
	iface, err := c.iface(ctx, name)
	if err != nil {
		return nil, "", err
	}

	if iface == nil {
		return nil, "", fmt.Errorf("port %s: %w", name, ErrNotFound)
	}

	if iface.Error != nil {
		complaint = *iface.Error
	}

	return iface.ExternalIDs, complaint, nil
}

// Installed reports whether ovn-controller has installed the flows of the port. For that,
// ovn-controller must have been running, and must have found the port in the Southbound database.
func (c *Client) Installed(ctx context.Context, name string) (bool, error) {
	ids, _, err := c.Port(ctx, name)
	return ids[Installed] == "true", err
}

// WaitInstalled returns when ovn-controller has installed the flows of the port. It returns
// ErrNotFound if the port vanishes, or the context's error.
func (c *Client) WaitInstalled(ctx context.Context, name string) error {
	wake := loop.NewSignal()

	isPort := func(table, row string) bool { return table == vswitch.InterfaceTable && row == name }

	stop := c.Watch(isPort, wake)
	defer stop()

	for {
		ids, complaint, err := c.Port(ctx, name)
		if err != nil {
			return err
		}

		if ids[Installed] == "true" {
			return nil
		}

		select {
		case <-wake:
		case <-ctx.Done():
			if complaint != "" {
				return fmt.Errorf("port %s: OVS says %q: %w", name, complaint, ctx.Err())
			}

			return fmt.Errorf("port %s: ovn-controller has not installed its flows: %w", name, ctx.Err())
		}
	}
}

// ports returns the names of the matching interfaces.
func (c *Client) ports(ctx context.Context, match func(*vswitch.Interface) bool) ([]string, error) {
	list, err := rows(ctx, c, "interfaces", match)
	if err != nil {
		return nil, err
	}

	names := make([]string, 0, len(list))
	for _, i := range list {
		names = append(names, i.Name)
	}

	return names, nil
}

// detach adds the operations that remove the named ports from their bridges. The server then
// garbage-collects their rows.
func (e *edit) detach(ctx context.Context, names []string) error {
	for _, name := range names {
		ports, err := rows(ctx, e.c, "port "+name, func(p *vswitch.Port) bool { return p.Name == name })
		if err != nil {
			return err
		}

		bridges, err := e.c.bridges(ctx)
		if err != nil {
			return err
		}

		for _, p := range ports {
			for _, b := range bridges {
				e.remove(b, &b.Ports, p.UUID)
			}
		}
	}

	return nil
}
