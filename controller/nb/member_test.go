package nb

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/ovn-kubernetes/libovsdb/model"

	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
	nbmodel "github.com/ovn-ebpf/ovn-ebpf/ovsdb/nb"
	"github.com/ovn-ebpf/ovn-ebpf/test/randomtest"
)

func TestEveryRowHasAModel(t *testing.T) {
	for _, row := range plan.Types() {
		m := models()[row.Table()]
		if m == nil {
			t.Errorf("models lacks %s", row.Table())
			continue
		}

		for _, column := range tables[row.Table()].columns {
			if _, ok := fieldOf(m, column); !ok {
				t.Errorf("%s has no column %s", row.Table(), column)
			}
		}
	}
}

// TestMembersFollowTheCache checks that a column that is updated step by step equals one that is
// read at once.
func TestMembersFollowTheCache(t *testing.T) {
	seed := randomtest.Seed(t)
	r := rand.New(rand.NewPCG(seed, 0))
	column := func() *column {
		return &column{name: "ports", rows: map[string]model.Model{}, parents: map[string][]string{}}
	}
	followed, rows := column(), map[string]model.Model{}

	for range 500 {
		for range r.IntN(3) {
			parent := fmt.Sprint("switch", r.IntN(8))
			if r.IntN(4) == 0 {
				delete(rows, parent)
				continue
			}

			var ports []string
			for _, p := range r.Perm(12)[:r.IntN(12)] {
				ports = append(ports, fmt.Sprint("port", p))
			}

			rows[parent] = &nbmodel.LogicalSwitch{UUID: parent, Ports: ports}
		}

		followed.read(maps.Clone(rows))

		once := column()
		once.read(rows)

		for _, c := range followed.parents {
			slices.Sort(c)
		}

		for _, c := range once.parents {
			slices.Sort(c)
		}

		if diff := cmp.Diff(once.parents, followed.parents); diff != "" {
			t.Fatalf("members (-read once +followed):\n%s", diff)
		}
	}
}
