package nb

import "github.com/ovn-ebpf/ovn-ebpf/controller/plan"

// usage has the tables in which owners of each kind have rows, so that a pod's rows are not
// searched among routers. Owners reads it from the database, and plans add to it. Nil means
// unknown: any table may have rows.
type usage map[plan.Kind]map[string]bool

func (u usage) add(kind plan.Kind, table string) {
	if u == nil {
		return
	}
	if u[kind] == nil {
		u[kind] = map[string]bool{}
	}
	u[kind][table] = true
}

func (u usage) has(kind plan.Kind, table string) bool { return u == nil || u[kind][table] }

// countUsage returns the usage of the database, given the tables of each owner.
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
