package nb

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
)

// A router forgets a learned neighbour after the time in the option plan.NeighbourAge. An OVN
// before 23.09 also forgets neighbours in use: the router resolves them again, and loses packets
// meanwhile. So with such an OVN, the time is longer than planned.

// oldNeighbourAge is the value of plan.NeighbourAge for an OVN before 23.09, in seconds.
const oldNeighbourAge = "300"

// schemaForgetsUsed reports whether an OVN forgets neighbours that are in use, by the version of
// its Northbound schema. The schema of OVN 23.09 is 7.1.0. A malformed version counts as a newer
// one.
func schemaForgetsUsed(schema string) bool {
	parts := strings.Split(schema, ".")
	if len(parts) < 2 {
		return false
	}

	major, majorErr := strconv.Atoi(parts[0])
	minor, minorErr := strconv.Atoi(parts[1])

	return majorErr == nil && minorErr == nil && (major < 7 || major == 7 && minor < 1)
}

// supportedRows returns the rows with values of plan.NeighbourAge that suit the database's OVN. It
// does not modify rows.
func (d *DB) supportedRows(rows []plan.Row) []plan.Row {
	d.mu.Lock()
	forgetsUsed := d.forgetsUsed
	d.mu.Unlock()

	if !forgetsUsed {
		return rows
	}

	for i, row := range rows {
		router, ok := row.(plan.LogicalRouter)
		if !ok || router.Options[plan.NeighbourAge] == "" {
			continue
		}

		rows = slices.Clone(rows)
		router.Options = maps.Clone(router.Options)
		router.Options[plan.NeighbourAge] = oldNeighbourAge
		rows[i] = router
	}

	return rows
}
