package reconcile

import (
	"slices"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/controller/nb"
	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
	nbmodel "github.com/ovn-ebpf/ovn-ebpf/ovsdb/nb"
)

// TestWaitlist_referring checks that an owner that waits for a row is found when that row is written,
// and not with other rows, and that it is found once a port may join a port group.
func TestWaitlist_referring(t *testing.T) {
	pod := plan.PodKey("ns", "p")
	group := []plan.Row{plan.PortGroup{Name: "g"}}

	for name, err := range map[string]error{
		"the row is missing":       &nb.MissingRowError{Table: nbmodel.PortGroupTable, ID: "g"},
		"the port may join it now": &nb.GroupPendingError{Group: "g"},
	} {
		w := newWaitlist()
		w.record(pod, err)

		for _, rows := range [][]plan.Row{nil, {plan.PortGroup{Name: "other"}}, {plan.LogicalSwitch{Name: "g"}}} {
			if got := w.referring(rows); len(got) > 0 {
				t.Errorf("%s: rows %v wake %v", name, rows, got)
			}
		}

		if got := w.referring(group); !slices.Equal(got, []plan.Key{pod}) {
			t.Errorf("%s: the group's row wakes %v, want %v", name, got, pod)
		}

		w.forget(pod)

		if got := w.referring(group); len(got) > 0 {
			t.Errorf("%s: after forget, the row wakes %v", name, got)
		}
	}
}
