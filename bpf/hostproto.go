package bpf

import (
	"fmt"

	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// SyncHostProtos sets the protocols without ports that the host itself uses, by peer, to exactly
// the result of scan. IDs are 0, and the remote of a protocol that the host uses with any peer is
// verdict.AnyRemote. If scan fails, nothing changes in that round.
//
// A raw socket that is created meanwhile is not lost, although SyncHostProtos may delete the entry
// that the programs of Gate have added for it: a scan follows every change of the table, and finds
// the socket.
func (g *Gateway) SyncHostProtos(scan func() ([]verdict.NSKey, error)) error {
	const maxScans = 10 // limit while sockets keep changing
	for range maxScans {
		want, err := scan()
		if err != nil {
			return fmt.Errorf("sync host protocols: %w", err)
		}

		changed, err := g.putHostProtos(want)
		if err != nil {
			return fmt.Errorf("sync host protocols: %w", err)
		}

		if !changed {
			break
		}
	}

	return nil
}

// putHostProtos sets the table to exactly want, and reports whether that changed it.
func (g *Gateway) putHostProtos(want []verdict.NSKey) (changed bool, err error) {
	entries := make(map[gatewayNsKey]uint8, len(want))
	for _, k := range want {
		entries[exchangeCell(k)] = 1
	}

	done, err := putEntries(g.objs.HostProtos, entries)
	if err != nil {
		return false, err
	}

	gone, err := pruneEntries(g.objs.HostProtos, entries)

	return done.written > 0 || gone > 0, err
}
