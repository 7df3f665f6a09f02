package bpf

import (
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"

	"github.com/cilium/ebpf"

	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// LookupOptions locates the gateway's state.
type LookupOptions struct {
	PinDir string
	Sizes  Sizes
	Log    *slog.Logger
}

// Lookup is the table of frontends that a host socket serves itself: externalTrafficPolicy=Local
// with an endpoint on the host's network. The gateway's program at the uplink assigns packets with
// the reason service_host to the socket that listens on the target. The client's address is
// preserved. Only TCP is supported. Before Linux 6.6, a connection to a socket with SO_REUSEPORT is
// refused.
type Lookup struct {
	targets   *ebpf.Map
	pin       string
	unwritten int
}

// OpenLookup opens the pinned table or creates it.
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

// Sync sets the table to exactly want, the listener of each frontend. A target's address is that of
// the endpoint; a listener on the unspecified address matches too. Sync writes new and changed
// entries before it deletes stale ones. writes counts both. Sync is not atomic; it may be repeated
// after an error. Entries without room are left out, see Unwritten.
func (l *Lookup) Sync(want map[verdict.ServiceKey]netip.AddrPort) (writes int, err error) {
	table := make(map[lookupServiceKey]lookupLookupTarget, len(want))
	for k, to := range want {
		if k.Proto != protoTCP {
			return 0, fmt.Errorf("sync lookup targets: frontend %v: protocol %d is not TCP",
				netip.AddrPortFrom(k.Addr, k.Port), k.Proto)
		}

		if k.Addr.Unmap().Is4() != to.Addr().Unmap().Is4() {
			return 0, fmt.Errorf("sync lookup targets: frontend %v and target %v are of two families",
				k.Addr, to)
		}

		key := lookupServiceKey{Addr: lookupAddr{W: words(k.Addr)}, Port: bePort(k.Port), Proto: k.Proto}
		table[key] = lookupLookupTarget{Addr: lookupAddr{W: words(to.Addr())}, Port: bePort(to.Port())}
	}

	writes, l.unwritten, err = syncEntries(l.targets, table)
	if err != nil {
		return writes, fmt.Errorf("sync lookup targets: %w", err)
	}

	return writes, nil
}

// Remove removes the pin. Afterwards only Close may be called.
func (l *Lookup) Remove() error {
	if err := removeIfThere(l.pin); err != nil {
		return fmt.Errorf("unpin table of lookup targets: %w", err)
	}

	return nil
}

// Close releases the table. It stays in use while it is pinned.
func (l *Lookup) Close() error { return l.targets.Close() }
