package podnet

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
)

// AssignedAddresses holds the addresses that the controller assigns to a pod.
type AssignedAddresses struct {
	MAC       net.HardwareAddr
	Addresses []netip.Prefix
	Gateways  []netip.Addr
}

// String returns the addresses for logs. Equal addresses have equal strings.
func (a AssignedAddresses) String() string {
	return fmt.Sprintf("%v, %s by %v", a.Addresses, a.MAC, a.Gateways)
}

// readdressAfter is the time for which an annotation must differ from the interface, without
// changing, before the interface changes. The controller reverts a foreign edit much sooner.
const readdressAfter = 2 * time.Second

// addressMismatch is an annotation that differs from a pod's interface.
type addressMismatch struct {
	assigned string // the addresses in the annotation
	since    time.Time
}

// readdress gives a pod's interface the addresses that the controller assigns, if they differ from
// those at ADD for readdressAfter. This happens when two leaders wrote at once, or when the
// controller had to take an address back. OVN drops packets from a source address that is not the
// port's.
func (k *Keeper) readdress(ctx context.Context, host string, p Pod) error {
	namespace, name, _ := strings.Cut(p.LogicalPort, "_")

	assigned, known := k.Assigned(namespace, name, p.UID)

	isSame := slices.Equal(assigned.Addresses, p.Addresses) && slices.Equal(assigned.MAC, p.MAC) &&
		slices.Equal(assigned.Gateways, p.Gateways)
	if !known || isSame {
		delete(k.mismatches, host)
		return nil
	}

	if !k.mismatchLasts(host, assigned) {
		return nil
	}

	release, free := k.Try(p.ContainerID)
	if !free {
		time.AfterFunc(readdressAfter, k.Wake.Trigger)
		return nil
	}
	defer release()

	if _, recorded := k.Interfaces.Record(p.ContainerID, p.Interface); !recorded {
		return nil // deleted since
	}

	before := AssignedAddresses{p.MAC, p.Addresses, p.Gateways}
	p.MAC, p.Addresses, p.Gateways = assigned.MAC, assigned.Addresses, assigned.Gateways

	k.Log.Warn("changing the addresses of a pod interface",
		"pod", p.LogicalPort, "port", host, "was", before.String(), "now", assigned.String())

	if err := k.Interfaces.readdress(ctx, p); err != nil {
		return fmt.Errorf("give pod %s its addresses: %w", p.LogicalPort, err)
	}

	delete(k.mismatches, host)

	if k.Readdressed != nil {
		k.Readdressed(ctx, p, before)
	}

	return nil
}

// mismatchLasts reports whether the addresses of an interface have differed from these, which are
// assigned, for readdressAfter. Otherwise a later pass checks again.
func (k *Keeper) mismatchLasts(host string, assigned AssignedAddresses) bool {
	mismatch := k.mismatches[host]
	if mismatch.assigned == assigned.String() {
		return time.Since(mismatch.since) >= readdressAfter
	}

	if k.mismatches == nil {
		k.mismatches = map[string]addressMismatch{}
	}

	k.mismatches[host] = addressMismatch{assigned.String(), time.Now()}

	time.AfterFunc(readdressAfter, k.Wake.Trigger)

	return false
}

// readdress changes interface and connection to p. It writes the record last, so that a failed
// attempt is repeated.
func (w *InterfaceManager) readdress(ctx context.Context, p Pod) error {
	if err := link.ReaddressPod(w.spec(p)); err != nil {
		return err
	}

	if err := w.connect(ctx, p); err != nil {
		return err
	}

	return w.record(p)
}
