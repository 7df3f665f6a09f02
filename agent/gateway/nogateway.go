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
// earlier agent.
//
// On the userspace datapath such a node keeps the bridge of layout direct and the programs, because
// the tunnels need them. OVN is not connected to the bridge.

// leavesUplinkAlone reports whether the agent needs neither bridge nor backend on the node.
func (s Settings) leavesUplinkAlone() bool { return s.NoGateway && !s.Userspace() }

// finishMove completes or undoes an interrupted move of the host's addresses. It returns the
// settings for the device that has them: the uplink, or the bridge if an operator moved them there.
// mustReturn means that an earlier agent moved them to the bridge for layout bridged, so they must
// move back. During a move, finishMove returns nicbridge.ErrUnderWay (wrapped).
func (t *topology) finishMove(ctx context.Context) (located Settings, mustReturn bool, err error) {
	if err := Recover(ctx, t.s, t.ovs); err != nil {
		return t.s, false, err
	}

	snapshot, err := nicbridge.Load(t.s.RunDir, t.s.Uplink)
	if errors.Is(err, fs.ErrNotExist) {
		return t.s, false, nil // never moved
	}

	if err != nil || snapshot.Phase != nicbridge.Done {
		return t.s, false, err
	}

	requestedByOperator := snapshot.Asked
	if requestedByOperator && snapshot.Bridge == t.s.Bridge {
		return t.s.withAddressesOf(verdict.Bridged), false, nil
	}

	return t.s, true, nil
}

// removeBridge removes the gateway bridge if it exists and belongs to the agent.
func (t *topology) removeBridge(ctx context.Context) error {
	err := t.ovs.CheckGateway(ctx, t.s.Uplink, t.s.Bridge)
	if errors.Is(err, ovs.ErrForeign) {
		return nil
	}

	if err != nil {
		return err
	}

	earlier := t.s
	earlier.NoGateway = false // the hairpin is that of an agent with a gateway

	// No move can begin while this function runs. A move that waits for its end creates the bridge
	// again.
	return nicbridge.Undisturbed(t.s.RunDir, t.s.Uplink, func() error {
		// A move may have ended since finishMove, so the bridge has the host's addresses.
		snapshot, err := nicbridge.Load(t.s.RunDir, t.s.Uplink)
		if err == nil && snapshot.Phase != nicbridge.Restored {
			return fmt.Errorf("remove bridge %s: %w", t.s.Bridge, nicbridge.ErrUnderWay)
		}

		if err := link.RemoveHairpin(t.s.Bridge, hostHairpin(bothFamilies, earlier)); err != nil {
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
