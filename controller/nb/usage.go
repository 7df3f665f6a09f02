package nb

import "github.com/ovn-ebpf/ovn-ebpf/controller/plan"

// usage has the tables in which owners of each kind have rows. So a commit does not search the
// rows of a pod among the routers. DB.Owners fills usage from the database, and Commit adds the
// tables of each plan. Nil means unknown: any table may have rows of any kind.
type usage map[plan.Kind]map[string]bool

// add records that an owner of the kind has rows in the table.
func (u usage) add(kind plan.Kind, table string) {
	if u == nil {
		return
	}

	if u[kind] == nil {
		u[kind] = map[string]bool{}
	}

	u[kind][table] = true
}

// has reports whether owners of the kind may have rows in the table.
func (u usage) has(kind plan.Kind, table string) bool { return u == nil || u[kind][table] }

// countUsage returns the usage of the database. owners maps the key of each owner, as text, to the
// tables in which it has rows.
func countUsage(owners map[string]map[string]bool) usage {
	u := usage{}

	for owner, tables := range owners {
		k, err := plan.ParseKey(owner)
		if err != nil {
			continue
		}

		for table := range tables {
			u.add(k.Kind, table)
		}
	}

	return u
}
