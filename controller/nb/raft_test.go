package nb_test

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/controller/nb"
	"github.com/ovn-ebpf/ovn-ebpf/controller/nb/nbtest"
)

// TestRaftMemberDeathLosesNoWrite kills and restarts each member of a cluster of three in turn,
// including the leader, during writes. Every write succeeds exactly once.
func TestRaftMemberDeathLosesNoWrite(t *testing.T) {
	members := nbtest.StartRaft(t)

	var endpoints []string
	for _, m := range members {
		endpoints = append(endpoints, m.Endpoint)
	}

	db := dial(t, endpoints, nb.TLS{})
	writes := 0

	var longest time.Duration

	write := func(n int) {
		for range n {
			name := fmt.Sprintf("n%d", writes)
			began := time.Now()

			nbtest.Eventually(t, "written "+name, func() bool { return len(db.Commit(t.Context(), switches(name))) == 0 })

			longest = max(longest, time.Since(began))
			writes++
		}
	}
	leaders := 0

	write(5)

	for _, m := range members {
		if m == nbtest.Leader(t, members) {
			leaders++
		}

		m.Kill()
		write(10)
		m.Start()
		write(5)
	}

	if now := nbtest.Leader(t, members); leaders == 0 { // the leadership may have moved away from each member before its turn
		now.Kill()
		write(10)
		now.Start()
	}

	for _, m := range members {
		nbtest.Eventually(t, "every member to have every write", func() bool {
			out, err := exec.Command("ovn-nbctl", "--no-leader-only", "--db="+m.Endpoint, "--bare", "--columns=name", "list", "Logical_Switch").Output()
			return err == nil && len(strings.Fields(string(out))) == writes
		})
	}

	t.Logf("%d writes while each member was killed; the longest took %s", writes, longest.Round(time.Millisecond))
}
