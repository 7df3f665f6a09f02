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

// forgetsUsed reports whether an OVN with this schema of the Northbound database forgets neighbours
// that are in use. The schema of OVN 23.09 is 7.1.0.
func forgetsUsed(schema string) bool {
	parts := strings.Split(schema, ".")
	if len(parts) < 2 {
		return false
	}

	major, err1 := strconv.Atoi(parts[0])
	minor, err2 := strconv.Atoi(parts[1])

	return err1 == nil && err2 == nil && (major < 7 || major == 7 && minor < 1)
}

// supportedRows returns the rows with options that suit the database's OVN.
func (d *DB) supportedRows(rows []plan.Row) []plan.Row {
	d.mu.Lock()
	old := d.forgetsUsed
	d.mu.Unlock()

	if !old {
		return rows
	}

	for i, row := range rows {
		router, is := row.(plan.LogicalRouter)
		if !is || router.Options[plan.NeighbourAge] == "" {
			continue
		}

		rows = slices.Clone(rows)
		router.Options = maps.Clone(router.Options)
		router.Options[plan.NeighbourAge] = oldNeighbourAge
		rows[i] = router
	}

	return rows
}
