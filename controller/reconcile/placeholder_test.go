package reconcile

import (
	"strings"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/controller/nb/nbtest"
	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
)

// placeholdersInGroups returns the number of memberships of placeholders in port groups.
func placeholdersInGroups(s *nbtest.Server) int {
	isPlaceholder := map[string]bool{}

	for line := range strings.Lines(s.Nbctl("--format=csv", "--data=bare", "--no-headings", "--columns=_uuid,name", "list", "Logical_Switch_Port")) {
		uuid, name, _ := strings.Cut(strings.TrimSpace(line), ",")
		isPlaceholder[uuid] = plan.IsPlaceholder(name)
	}

	n := 0

	for uuid := range strings.FieldsSeq(s.Nbctl("--bare", "--columns=ports", "list", "Port_Group")) {
		if isPlaceholder[uuid] {
			n++
		}
	}

	return n
}

// TestWorker_removePlaceholders checks that the first full sync of a leader leaves placeholders in port
// groups, and that the next one removes them.
func TestWorker_removePlaceholders(t *testing.T) {
	p := newProperty(t, 1, 400)
	before := 0

	for range 20 {
		for range 100 {
			p.churn.Step()
		}

		p.settle()

		if before = placeholdersInGroups(p.server); before > 0 {
			break
		}
	}

	if before == 0 {
		t.Fatal("random changes have left no placeholder in a port group: the test tests nothing")
	}

	p.now.stop()
	p.now = p.lead(p.now, p.path.endpoint)
	p.await(p.now)
	p.now.loop.enqueue(plan.ClusterKey()) // one more round of the worker
	p.await(p.now)

	if n := placeholdersInGroups(p.server); n != before {
		t.Errorf("%d placeholders in port groups after the first full sync, want %d as before", n, before)
	}

	p.now.loop.enqueue(fullSyncKey())
	nbtest.Eventually(t, "no placeholder is in a port group", func() bool { return placeholdersInGroups(p.server) == 0 })
}
