package bpf

import (
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"

	"github.com/cilium/ebpf"

	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// LookupOptions configures OpenLookup.
type LookupOptions struct {
	PinDir string       // of the gateway's programs
	Sizes  Sizes        // nil: as in the programs
	Log    *slog.Logger // nil: discard
}

// Lookup is the table of frontends that a host socket serves itself. A Service needs it if it has
// externalTrafficPolicy=Local and an endpoint on the host's network. For example, an ingress
// controller with hostNetwork listens on port 80 of the node, and is the endpoint of a NodePort
// 30080. Packets from outside to port 30080 reach its socket, and it sees the client's address.
//
// The gateway's program at the uplink finds the socket that listens on the frontend's target, and
// assigns it to packets with the reason service_host. No address in the packets is changed. This
// works only for TCP: an unconnected UDP socket would reply from its own port instead of the
// frontend's. Before Linux 6.6, a connection to a socket with SO_REUSEPORT is refused.
//
// The methods are not safe for concurrent use.
type Lookup struct {
	targets   *ebpf.Map
	pin       string
	unwritten int // entries of the last Sync without room
}

// OpenLookup opens the pinned table. It creates and pins the table if there is none, or if it is of
// an incompatible version.
func OpenLookup(opts LookupOptions) (*Lookup, error) {
	spec, err := loadLookup()
	if err != nil {
		return nil, fmt.Errorf("read lookup programs: %w", err)
	}

	opts.Sizes.apply(spec)

	if err := preparePins(spec, opts.PinDir, opts.Log); err != nil {
		return nil, err
	}

	m, err := ebpf.NewMapWithOptions(spec.Maps[lookupMapLookupTargets], ebpf.MapOptions{PinPath: opts.PinDir})
	if err != nil {
		return nil, fmt.Errorf("open table of lookup targets: %w", err)
	}

	return &Lookup{targets: m, pin: filepath.Join(opts.PinDir, lookupMapLookupTargets)}, nil
}

// Sync sets the table to exactly want, the target of each frontend. The target is the address and
// port of the endpoint, on which a host socket listens. A socket that listens on this port of the
// unspecified address serves the frontend, too. Frontends must be TCP, and of the same IP family as
// their target.
//
// Sync writes new and changed entries before it deletes stale ones, so a frontend in both sets
// always has an entry. writes is the number of entries that it has written or deleted. Sync is not
// atomic; it may be repeated after an error. It leaves out entries without room, and this is not an
// error: Unwritten returns their number. After an error, it returns the number as of the Sync
// before.
func (l *Lookup) Sync(want map[verdict.ServiceKey]netip.AddrPort) (writes int, err error) {
	entries, err := lookupEntries(want)
	if err != nil {
		return 0, fmt.Errorf("sync lookup targets: %w", err)
	}

	writes, unwritten, err := syncEntries(l.targets, entries)
	if err != nil {
		return writes, fmt.Errorf("sync lookup targets: %w", err)
	}

	l.unwritten = unwritten

	return writes, nil
}

// lookupEntries returns want in the format of the table.
func lookupEntries(
	want map[verdict.ServiceKey]netip.AddrPort,
) (map[lookupServiceKey]lookupLookupTarget, error) {
	entries := make(map[lookupServiceKey]lookupLookupTarget, len(want))
	for k, target := range want {
		if k.Proto != protoTCP {
			return nil, fmt.Errorf("frontend %v: protocol %d is not TCP",
				netip.AddrPortFrom(k.Addr, k.Port), k.Proto)
		}

		if k.Addr.Unmap().Is4() != target.Addr().Unmap().Is4() {
			return nil, fmt.Errorf("frontend %v and target %v are of two families", k.Addr, target)
		}

		key := lookupServiceKey{Addr: lookupAddr{W: words(k.Addr)}, Port: bePort(k.Port), Proto: k.Proto}
		entries[key] = lookupLookupTarget{
			Addr: lookupAddr{W: words(target.Addr())},
			Port: bePort(target.Port()),
		}
	}

	return entries, nil
}

// Unwritten is like Gateway.Unwritten.
func (l *Lookup) Unwritten() map[string]int {
	return map[string]int{lookupMapLookupTargets: l.unwritten}
}

// Remove unpins the table, so it ends with its last user: a Lookup, or an attached program of the
// gateway. It may be repeated. Afterwards only Close may be called.
func (l *Lookup) Remove() error {
	if err := removeIfThere(l.pin); err != nil {
		return fmt.Errorf("unpin table of lookup targets: %w", err)
	}

	return nil
}

// Close releases the table. A pinned table keeps its entries, and the attached programs still use
// it.
func (l *Lookup) Close() error { return l.targets.Close() }
