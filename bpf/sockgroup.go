package bpf

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"
)

// sockNotLoopback is FRONT_NOT_LOOPBACK of sock.h.
const sockNotLoopback = 1 << 31

// sockGroup is one IP family of one service port: its frontends, and the backends that they share.
type sockGroup struct {
	service  string // key of the service
	index    int    // among the service's groups: by port, then IPv4 before IPv6
	proto    uint8
	fronts   []sockFrontKey // sorted
	backs    []sockBack     // sorted
	affinity uint32         // seconds, and the bit sockNotLoopback
	set      uint32         // number of its set of backends; 0: it has no backend, or owns no frontend
}

// groupsOf returns the groups of the valid services, by service key, and an error that names the
// invalid ones.

// sockGroups returns the groups of a service: for each port, one of each family that has frontends.
// Addresses may be IPv4-mapped; zones are ignored.
func sockGroups(s SockService) ([]*sockGroup, error) {
	var groups []*sockGroup

	for i, p := range s.Ports {
		families, err := portGroups(p)
		if err != nil {
			return nil, err
		}

		for f := range families {
			g := &families[f]
			if len(g.fronts) == 0 {
				continue
			}

			g.service, g.index, g.proto = s.Key, 2*i+f, p.Proto
			g.affinity = uint32(min((p.Affinity+time.Second-1)/time.Second, sockNotLoopback-1))

			if p.NotLoopback {
				g.affinity |= sockNotLoopback
			}

			slices.SortFunc(g.fronts, compareFronts)
			g.fronts = slices.Compact(g.fronts)
			slices.SortFunc(g.backs, compareBacks)
			g.backs = slices.Compact(g.backs)
			groups = append(groups, g)
		}
	}

	return groups, nil
}

// portGroups returns a port's frontends and backends by family: IPv4, then IPv6.
func portGroups(p SockPort) (*[2]sockGroup, error) {
	if p.Proto != protoTCP && p.Proto != protoUDP {
		return nil, fmt.Errorf("protocol %d is neither TCP nor UDP", p.Proto)
	}

	if p.Affinity < 0 {
		return nil, fmt.Errorf("affinity %v is negative", p.Affinity)
	}

	families := new([2]sockGroup)
	for _, f := range p.Frontends {
		g, b, err := familyOf(families, f)
		if err != nil {
			return nil, fmt.Errorf("frontend %v: %w", f, err)
		}

		g.fronts = append(g.fronts, sockFrontKey{Addr: b.Addr, Port: b.Port, Proto: p.Proto})
	}

	for _, a := range p.Backends {
		g, b, err := familyOf(families, a)
		if err == nil && a.Addr().IsUnspecified() {
			err = errors.New("address is unspecified")
		}

		if err != nil {
			return nil, fmt.Errorf("backend %v: %w", a, err)
		}

		g.backs = append(g.backs, b)
	}

	return families, nil
}

// familyOf returns the group of the address's family, and the address in the format of the tables.
func familyOf(families *[2]sockGroup, a netip.AddrPort) (*sockGroup, sockBack, error) {
	addr := a.Addr().Unmap().WithZone("")
	if !addr.IsValid() || a.Port() == 0 {
		return nil, sockBack{}, errors.New("no address, or no port")
	}

	g := &families[0]
	if addr.Is6() {
		g = &families[1]
	}

	return g, sockBack{Addr: sockAddr{W: words(addr)}, Port: bePort(a.Port())}, nil
}

func groupsOf(services []SockService) (map[string][]*sockGroup, error) {
	groups := make(map[string][]*sockGroup, len(services))

	var invalid []error

	for _, svc := range services {
		g, err := sockGroups(svc)
		if err != nil {
			invalid = append(invalid, fmt.Errorf("read service %q: %w", svc.Key, err))
			continue
		}

		groups[svc.Key] = g
	}

	return groups, errors.Join(invalid...)
}

func compareFronts(a, b sockFrontKey) int {
	return cmp.Or(slices.Compare(a.Addr.W[:], b.Addr.W[:]), cmp.Compare(a.Port, b.Port),
		cmp.Compare(a.Proto, b.Proto))
}

func compareBacks(a, b sockBack) int {
	return cmp.Or(slices.Compare(a.Addr.W[:], b.Addr.W[:]), cmp.Compare(a.Port, b.Port))
}

// compareGroups orders groups by service key. The first of several groups owns a frontend that all
// of them claim.
func compareGroups(a, b *sockGroup) int {
	return cmp.Or(cmp.Compare(a.service, b.service), cmp.Compare(a.index, b.index))
}
