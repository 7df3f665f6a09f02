package e2e

import (
	"strings"
	"testing"
)

// failsToInit runs a gateway-init with a missing NIC on the minion. Settings and agent must be
// restored.
func (k *operatorShell) failsToInit(t *testing.T) {
	t.Helper()

	const settings = "ovs-vsctl get Open_vSwitch . external_ids"

	before := k.types(t, 2, settings)

	out, err := k.try(t.Context(), 2, strings.ReplaceAll(strings.ReplaceAll(k.block(t, 6, 1)[0], "eth1", "eth9"), "kube-minion2", "kube-minion1"))
	if err == nil {
		t.Fatalf("succeeded: %s", out)
	}

	for _, want := range []string{"find uplink eth9", "gateway-interface is from external_ids:ovn-ebpf-gateway-interface", "settings restored", "previous agent restarted"} {
		if !strings.Contains(out, want) {
			t.Errorf("does not say %q: %s", want, out)
		}
	}

	if after := k.types(t, 2, settings); after != before {
		t.Errorf("external_ids were\n%snow they are\n%s", before, after)
	}

	within(t, "the minion's previous agent restarted", func() error {
		_, err := k.try(t.Context(), 2, "ovnkube status")
		return err
	})

	if out, err := k.try(t.Context(), 2, k.block(t, 4, 2)[1]); err != nil {
		t.Errorf("minion-init afterwards: %v: %s", err, out)
	}
}
