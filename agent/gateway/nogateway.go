package gateway

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/agent/link/nicbridge"
	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// A node without a gateway (Cluster.NoGateway) has nothing of the agent on its uplink and no
// reserved port. Its host's sockets still reach Services. The agent removes the gateway of an
// earlier agent. On the userspace datapath the wiring of layout direct stays, because the tunnels
// need it; OVN is not connected to it.

// hasNoGateway reports whether layout and backend are unused on the node.
func (s Settings) hasNoGateway() bool { return s.NoGateway && !s.Userspace() }

// finishMove completes or undoes an interrupted move. It returns the settings for the device that
// has the host's addresses: the uplink, or the bridge if an operator moved them there. taken
// reports that an agent in layout bridged moved them to the bridge; they must then move back.
// During a move finishMove returns nicbridge.ErrUnderWay (wrapped).
func (t *topology) finishMove(ctx context.Context) (at Settings, taken bool, err error) {
	if err := Recover(ctx, t.s, t.ovs); err != nil {
		return t.s, false, err
	}

	snapshot, err := nicbridge.Load(t.s.RunDir, t.s.Uplink)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return t.s, false, nil
	case err != nil || snapshot.Phase != nicbridge.Done:
		return t.s, false, err
	case snapshot.Asked && snapshot.Bridge == t.s.Bridge:
		return t.s.withAddressesOf(verdict.Bridged), false, nil
	}

	return t.s, true, nil
}

// dropBridge removes the gateway bridge if the agent owns it.
func (t *topology) dropBridge(ctx context.Context, h Host) error {
	if h.Bridge == nil {
		return nil
	}

	err := t.ovs.CheckGateway(ctx, t.s.Uplink, t.s.Bridge)
	if errors.Is(err, ovs.ErrForeign) {
		return nil
	}

	if err != nil {
		return err
	}

	was := t.s
	was.NoGateway = false
	// A move that starts after this check creates the bridge again.
	return nicbridge.Undisturbed(t.s.RunDir, t.s.Uplink, func() error {
		if s, err := nicbridge.Load(t.s.RunDir, t.s.Uplink); err == nil && s.Phase != nicbridge.Restored {
			return fmt.Errorf("remove bridge %s: %w", t.s.Bridge, nicbridge.ErrUnderWay)
		}

		if err := link.RemoveHairpin(t.s.Bridge, hostHairpin(bothFamilies, was)); err != nil {
			return err
		}

		return t.ovs.RemoveBridge(ctx, t.s.Bridge)
	})
}

// mappedBridge returns the bridge to which OVN's physical network is mapped, or "".
func (s Settings) mappedBridge() string {
	if s.NoGateway {
		return ""
	}

	return s.Bridge
}
