package nb

import "github.com/ovn-ebpf/ovn-ebpf/controller/plan"

// usage is which tables owners of each kind have rows in, so that a pod's rows
// are not looked for among routers. Owners finds out what is there; what is
// planned after that is added. Nil: not found out yet, any table may have some.
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

// countUsage is what the database says, given the tables of each owner.
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
