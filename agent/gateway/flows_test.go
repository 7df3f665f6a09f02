package gateway

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/agent/testnode"
	"github.com/ovn-ebpf/ovn-ebpf/loop"
)

// TestFlowsOfADeletedBridgeAreWrittenAgain checks that the flows count as lost as soon as the
// bridge is gone. A move of the uplink writes to the new bridge before that is connected: if it
// wrote only changes, most flows were missing and the move failed.
func TestFlowsOfADeletedBridgeAreWrittenAgain(t *testing.T) {
	sw := testnode.StartSwitch(t, true)
	sw.Vsctl(t, "add-br", "breth0", "--", "set", "bridge", "breth0", "datapath_type=netdev")
	table := newFlowTable(parts{
		s:   Settings{Wiring: Wiring{Bridge: "breth0"}, OVSRunDir: sw.Dir, RunDir: t.TempDir()},
		log: slog.New(slog.DiscardHandler), wake: loop.NewSignal(),
	}, nil)
	ctx, stop := context.WithCancel(t.Context())

	ended := make(chan error, 1)
	go func() { ended <- table.run(ctx) }()

	t.Cleanup(func() {
		stop()

		if err := <-ended; err != nil {
			t.Error(err)
		}
	})

	connected := func(want bool) func() error {
		return func() error {
			if table.connected.Load() != want {
				return errors.New("not yet")
			}

			return nil
		}
	}
	testnode.Eventually(t, "connected", connected(true))
	table.maybeLost.Store(false) // all flows have been written
	sw.Vsctl(t, "del-br", "breth0")
	testnode.Eventually(t, "not connected", connected(false))
	testnode.Eventually(t, "flows are lost", func() error {
		if !table.maybeLost.Load() {
			return errors.New("the flows count as written")
		}

		return nil
	})
}
