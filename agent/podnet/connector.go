package podnet

import (
	"context"

	"github.com/ovn-ebpf/ovn-ebpf/loop"
)

// Connector connects the host's ends of pods' interfaces to the pods' network. host is the name of
// such a device. All methods are idempotent, and may be called concurrently for different devices.
type Connector interface {
	// Connect connects a device, which exists.
	Connect(ctx context.Context, host string, p Pod) error
	// Await waits until a connected device passes packets.
	Await(ctx context.Context, host string) error
	// Check returns an error if the connection is not complete, or not that of p.
	Check(ctx context.Context, host string, p Pod) error
	// Reset releases a device that is about to be recreated under its name.
	Reset(ctx context.Context, host string) error
	// Release removes the connection of a device, which may be gone already.
	Release(ctx context.Context, host string) error
}

// Attached lists the devices that are connected. The implementations of Connector implement it,
// too.
type Attached interface {
	// List returns the connections by the devices' names.
	List(ctx context.Context) (map[string]Connection, error)
	// Watch triggers wake whenever a connection may have changed, until stop is called.
	Watch(wake loop.Signal) (stop func())
}

// Connection is the connection of a device.
type Connection struct {
	ContainerID, LogicalPort, UID string // of its pod; each may be ""

	IsOf func(p Pod) bool // reports whether this is the connection of p, with all its addresses
}
