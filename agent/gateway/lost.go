package gateway

import (
	"context"

	"github.com/ovn-ebpf/ovn-ebpf/agent/link/nicbridge"
)

// LostSwitch is HostSwitch while Open vSwitch's database cannot be reached:
// every method returns err, but Remove takes the programs off the hooks first.
// They would send the host's packets to a bridge that has its addresses no more.
func LostSwitch(err error, pinDir string) nicbridge.Switch {
	return handover{Switch: lost{err}, before: func() error { return freeHooks(pinDir) }}
}

type lost struct{ err error }

func (l lost) AddBridge(context.Context, string, string, int) error { return l.err }
func (l lost) AddPort(context.Context, string, string) error        { return l.err }
func (l lost) Remove(context.Context, string, string) error         { return l.err }
