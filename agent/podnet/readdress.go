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

// Assigned is what the controller says of a pod.
type Assigned struct {
	MAC       net.HardwareAddr
	Addresses []netip.Prefix
	Gateways  []netip.Addr
}

func (a Assigned) String() string { return fmt.Sprintf("%v, %s by %v", a.Addresses, a.MAC, a.Gateways) }

// readdressAfter is how long an annotation must differ from the interface, and be the same: one
// that somebody else has written is put back by the controller much sooner.
const readdressAfter = 2 * time.Second

// doubt is an annotation that differs from a pod's interface.
type doubt struct {
	says  string
	since time.Time
}

// readdress gives a pod's interface the addresses that the controller says, when these are others
// than ADD was told: two leaders wrote at once, or the controller had to take the address back.
// OVN drops what the pod sends from an address that is not its port's.
func (k *Keeper) readdress(ctx context.Context, host string, p Pod) error {
	if k.Assigned == nil {
		return nil
	}
	namespace, name, _ := strings.Cut(p.LogicalPort, "_")
	now, known := k.Assigned(namespace, name, p.UID)
	if !known || slices.Equal(now.Addresses, p.Addresses) && slices.Equal(now.MAC, p.MAC) && slices.Equal(now.Gateways, p.Gateways) {
		delete(k.doubts, host)
		return nil
	}
	if d := k.doubts[host]; d.says != now.String() {
		if k.doubts == nil {
			k.doubts = map[string]doubt{}
		}
		k.doubts[host] = doubt{now.String(), time.Now()}
		time.AfterFunc(readdressAfter, k.Wake.Trigger)
		return nil
	} else if time.Since(d.since) < readdressAfter {
		return nil
	}
	release, free := k.Try(p.ContainerID)
	if !free {
		time.AfterFunc(readdressAfter, k.Wake.Trigger)
		return nil
	}
	defer release()
	if _, recorded := k.Wirer.Record(p.ContainerID, p.Interface); !recorded {
		return nil // deleted since
	}
	was := Assigned{p.MAC, p.Addresses, p.Gateways}
	p.MAC, p.Addresses, p.Gateways = now.MAC, now.Addresses, now.Gateways
	k.Log.Warn("a pod's addresses have changed, its interface follows", "pod", p.LogicalPort, "port", host, "was", was.String(), "now", now.String())
	if err := k.Wirer.readdress(ctx, p); err != nil {
		return fmt.Errorf("give pod %s its addresses: %w", p.LogicalPort, err)
	}
	delete(k.doubts, host)
	if k.Readdressed != nil {
		k.Readdressed(ctx, p, was)
	}
	return nil
}

// readdress changes interface and port. The record is last: what fails before is done again.
func (w *Wirer) readdress(ctx context.Context, p Pod) error {
	if err := link.ReaddressPod(w.spec(p)); err != nil {
		return err
	}
	if err := w.connect(ctx, p); err != nil {
		return err
	}
	return w.record(p)
}
