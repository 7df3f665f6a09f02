package service

import (
	"fmt"
	"strings"
)

// Units counts the entries that objects need in a node's tables. The numbers do not depend on the
// node, so that the controller and all agents compute the same. They are upper bounds, with one
// exception: on a node with several addresses of a family, a node port has an entry for each.
type Units struct {
	Frontends int // ports times addresses; a node port or host port is one per family
	Backends  int // endpoints of all ports, as if each port of a slice were one of the Service
	Addresses int // external addresses
	Local     int // frontends that a host's socket may serve: externalTrafficPolicy Local, TCP
	// Flows are OVN's flows on each node, as if the cluster had one node with one address of each
	// family. They are 0 for pods.
	Flows int
}

// TableUnits returns the room in a node's tables: sock_frontends, sock_backends, host_addrs and
// lookup_targets. Flows have no table.
func TableUnits() Units {
	return Units{Frontends: 131072, Backends: 262144, Addresses: 65536, Local: 65536}
}

// combine returns op of the numbers of u and o, for each unit.
func (u Units) combine(o Units, op func(a, b int) int) Units {
	return Units{
		op(u.Frontends, o.Frontends),
		op(u.Backends, o.Backends),
		op(u.Addresses, o.Addresses),
		op(u.Local, o.Local),
		op(u.Flows, o.Flows),
	}
}

// plus returns the sum of u and o.
func (u Units) plus(o Units) Units {
	return u.combine(o, func(a, b int) int { return a + b })
}

// minus returns the difference of u and o.
func (u Units) minus(o Units) Units {
	return u.combine(o, func(a, b int) int { return a - b })
}

// larger returns the larger number of u and o, for each unit.
func (u Units) larger(o Units) Units {
	return u.combine(o, func(a, b int) int { return max(a, b) })
}

// numbers returns pointers to the numbers of u, for code that handles one unit after another.
func (u *Units) numbers() [5]*int {
	return [...]*int{&u.Frontends, &u.Backends, &u.Addresses, &u.Local, &u.Flows}
}

// times returns u * n / d. Products do not overflow on machines with 32 bits.
func (u Units) times(n, d int) Units {
	scale := func(v int) int { return int(int64(v) * int64(n) / int64(d)) }
	return Units{scale(u.Frontends), scale(u.Backends), scale(u.Addresses), scale(u.Local), scale(u.Flows)}
}

// within reports whether no number of u is larger than that of limit.
func (u Units) within(limit Units) bool {
	return u.Frontends <= limit.Frontends && u.Backends <= limit.Backends &&
		u.Addresses <= limit.Addresses && u.Local <= limit.Local && u.Flows <= limit.Flows
}

// describe lists the numbers of u, for each unit of which needed has any.
func (u Units) describe(needed Units) string {
	var out []string

	for _, unit := range []struct {
		number, needed int
		name           string
	}{
		{u.Frontends, needed.Frontends, "frontends"},
		{u.Backends, needed.Backends, "backends"},
		{u.Addresses, needed.Addresses, "external addresses"},
		{u.Local, needed.Local, "frontends of policy Local"},
		{u.Flows, needed.Flows, "flows on each node"},
	} {
		if unit.needed != 0 {
			out = append(out, fmt.Sprintf("%d %s", unit.number, unit.name))
		}
	}

	return strings.Join(out, ", ")
}

// String returns the numbers that are not 0.
func (u Units) String() string { return u.describe(u) }
