package nb

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
)

// oldNeighbourAge is the value of plan.NeighbourAge for an OVN before 23.09, which also forgets
// neighbours in use: the router resolves them again, and loses packets meanwhile.
const oldNeighbourAge = "300"

// schemaForgetsUsed reports whether an OVN with this schema of the Northbound database forgets
// neighbours that are in use. The schema of OVN 23.09 is 7.1.0.
func schemaForgetsUsed(schema string) bool {
	parts := strings.Split(schema, ".")
	if len(parts) < 2 {
		return false
	}

	major, majorErr := strconv.Atoi(parts[0])
	minor, minorErr := strconv.Atoi(parts[1])

	return majorErr == nil && minorErr == nil && (major < 7 || major == 7 && minor < 1)
}

// supportedRows returns the rows with options that suit the database's OVN. It does not modify
// rows.
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
