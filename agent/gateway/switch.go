package gateway

import (
	"context"
	"errors"

	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/agent/link/nicbridge"
	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
	"github.com/ovn-ebpf/ovn-ebpf/bpf"
)

// HostSwitch returns Open vSwitch as nicbridge needs it, also for its watchdog.
// Before a device leaves the bridge everything of ours is taken off the hooks: programs
// of layout bridged would go on sending the host's packets to the bridge, which
// is about to lose the host's addresses.
func HostSwitch(o *ovs.Client, datapath, pinDir string) nicbridge.Switch {
	return handover{
		Switch: ovs.HostSwitch{Client: o, DatapathType: datapath},
		before: func() error { return freeHooks(pinDir) },
	}
}

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
