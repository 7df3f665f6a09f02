package nb

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ovn-ebpf/ovn-ebpf/controller/nb/nbtest"
	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
	"github.com/ovn-ebpf/ovn-ebpf/test/randomtest"
)

// TestMembersFollowTouchedRows checks that the index of references, which reads only touched rows
// again, agrees with the whole cache: at once after commits, and soon after changes of other
// clients.
func TestMembersFollowTouchedRows(t *testing.T) {
	seed := randomtest.Seed(t)
	r := rand.New(rand.NewPCG(seed, 0))
	s := nbtest.Start(t)
	db := New([]string{s.Endpoint}, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(context.Background())

	done := make(chan error)
	go func() { done <- db.Run(ctx) }()

	defer func() {
		cancel()

		if err := <-done; err != nil {
			t.Error(err)
		}
	}()

	<-db.Connected()

	const nodes, groups = 12, 12

	fixed := map[plan.Key][]plan.Row{}
	for i := range nodes {
		fixed[plan.NodeKey(fmt.Sprint(i))] = []plan.Row{plan.LogicalSwitch{Name: fmt.Sprint("ls", i)}}
	}

	for i := range groups {
		fixed[plan.ClusterKey()] = append(fixed[plan.ClusterKey()], plan.PortGroup{Name: fmt.Sprint("pg", i)})
	}

	if errs := db.Commit(ctx, fixed); len(errs) > 0 {
		t.Fatal(errs)
	}
	// difference compares the index with one that is read from scratch.
	difference := func() string {
		conn, err := db.client()
		if err != nil {
			t.Fatal(err)
		}

		db.committing.Lock()
		defer db.committing.Unlock()

		db.members.begin(conn.Cache())

		var fresh members
		fresh.begin(conn.Cache())

		for _, kind := range []string{"Logical_Switch.ports", "Port_Group.ports"} {
			known, read := db.members.indexOf(kind), fresh.indexOf(kind)
			for _, m := range []map[string][]string{known, read} {
				for _, parents := range m {
					slices.Sort(parents)
				}
			}

			if diff := cmp.Diff(read, known); diff != "" {
				return kind + ":\n" + diff
			}
		}

		return ""
	}

	for i := range 300 {
		want := map[plan.Key][]plan.Row{}

		for range 1 + r.IntN(3) {
			name := fmt.Sprint("p", r.IntN(40))

			var rows []plan.Row

			if r.IntN(3) > 0 {
				port := plan.LogicalSwitchPort{Switch: fmt.Sprint("ls", r.IntN(nodes)), Name: name, Incarnation: fmt.Sprint(r.IntN(2))}
				for g := range groups {
					if r.IntN(4) == 0 {
						port.Groups = append(port.Groups, fmt.Sprint("pg", g))
					}
				}

				rows = append(rows, port)
			}

			want[plan.PodKey("ns", name)] = rows
		}

		if errs := db.Commit(ctx, want); len(errs) > 0 {
			t.Fatal(errs)
		}

		if diff := difference(); diff != "" {
			t.Fatalf("after commit %d, %s", i, diff)
		}

		if i%20 == 0 {
			group := fmt.Sprint("pg", r.IntN(groups))
			s.Nbctl("clear", "port_group", group, "ports")
			nbtest.Eventually(t, "index to have the change of another client", func() bool {
				conn, err := db.client()
				if err != nil {
					t.Fatal(err)
				}

				rows, err := rowsNamed(conn.Cache(), "Port_Group", group)
				if err != nil || len(rows) != 1 {
					t.Fatal(rows, err)
				}

				return len(references(inOrder(rows)[0], "ports")) == 0 && difference() == ""
			})
		}
	}
}
