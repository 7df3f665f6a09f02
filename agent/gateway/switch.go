package gateway

import (
	"context"
	"errors"

	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/agent/link/nicbridge"
	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
	"github.com/ovn-ebpf/ovn-ebpf/bpf"
)

// HostSwitch returns Open vSwitch as nicbridge and its watchdog need it. Before a device leaves the
// bridge, it detaches every program of the agent. The programs of layout bridged would continue to
// send the host's packets to the bridge, which is about to lose the host's addresses.
func HostSwitch(o *ovs.Client, datapath, pinDir string) nicbridge.Switch {
	return releasingSwitch{
		Switch:       ovs.HostSwitch{Client: o, DatapathType: datapath},
		beforeRemove: func() error { return detachPrograms(pinDir) },
	}
}

// LostSwitch stands for HostSwitch while OVSDB is unreachable. Every method returns err. Remove
// first detaches the programs: they would send the host's packets to a bridge that no longer has
// the host's addresses.
func LostSwitch(err error, pinDir string) nicbridge.Switch {
	return releasingSwitch{Switch: unreachableSwitch{err}, beforeRemove: func() error { return detachPrograms(pinDir) }}
}

type unreachableSwitch struct{ err error }

func (u unreachableSwitch) AddBridge(context.Context, string, string, int) error { return u.err }
func (u unreachableSwitch) AddPort(context.Context, string, string) error        { return u.err }
func (u unreachableSwitch) Remove(context.Context, string, string) error         { return u.err }

// releasingSwitch wraps a Switch: it runs a function just before a device leaves the bridge, and
// returns the device to the host afterwards.
type releasingSwitch struct {
	nicbridge.Switch
	beforeRemove func() error
}

// Remove implements nicbridge.Switch. On the userspace datapath it also removes the filter that hid
// the device's packets from the host's stack.
func (r releasingSwitch) Remove(ctx context.Context, bridge, device string) error {
	errs := []error{r.beforeRemove(), r.Switch.Remove(ctx, bridge, device)}
	if l, err := link.Get(device); err == nil {
		errs = append(errs, link.DetachClsact(l.Index, stealFilter, false))
	}

	return errors.Join(errs...)
}

// detachPrograms detaches the programs and keeps their maps. It loads nothing, because the host's
// traffic is interrupted meanwhile.
func detachPrograms(pinDir string) error {
	return errors.Join(bpf.Unhook(pinDir), removeFilters())
}
