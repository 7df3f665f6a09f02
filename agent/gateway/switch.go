package gateway

import (
	"context"
	"errors"

	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/agent/link/nicbridge"
	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
	"github.com/ovn-ebpf/ovn-ebpf/bpf"
)

// HostSwitch returns Open vSwitch as nicbridge needs it, also for its watchdog. Before a device
// leaves the bridge every program of ours is taken off the hooks: those of layout bridged would go
// on sending the host's packets to the bridge, which is about to lose the host's addresses.
func HostSwitch(o *ovs.Client, datapath, pinDir string) nicbridge.Switch {
	return handover{
		Switch: ovs.HostSwitch{Client: o, DatapathType: datapath},
		before: func() error { return freeHooks(pinDir) },
	}
}

// LostSwitch is HostSwitch while Open vSwitch's database cannot be reached: every method returns
// err, but Remove takes the programs off the hooks first. They would send the host's packets to a
// bridge that does not have the host's addresses any more.
func LostSwitch(err error, pinDir string) nicbridge.Switch {
	return handover{Switch: lost{err}, before: func() error { return freeHooks(pinDir) }}
}

type lost struct{ err error }

func (l lost) AddBridge(context.Context, string, string, int) error { return l.err }
func (l lost) AddPort(context.Context, string, string) error        { return l.err }
func (l lost) Remove(context.Context, string, string) error         { return l.err }

// handover does something just before a device leaves the bridge, and makes
// the device the host's again.
type handover struct {
	nicbridge.Switch
	before func() error
}

// Remove implements nicbridge.Switch. On the userspace datapath the host's stack
// was kept from seeing the device's packets.
func (h handover) Remove(ctx context.Context, bridge, device string) error {
	errs := []error{h.before(), h.Switch.Remove(ctx, bridge, device)}
	if l, err := link.Get(device); err == nil {
		errs = append(errs, link.DetachClsact(l.Index, stealFilter))
	}
	return errors.Join(errs...)
}

// freeHooks detaches the programs and keeps what they know. It loads nothing, as
// the host waits.
func freeHooks(pinDir string) error {
	return errors.Join(bpf.Unhook(pinDir), removeFilters())
}
