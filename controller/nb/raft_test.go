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

// TestRaft: writes go on while each member of a cluster of three is killed and started again
// in turn, the leader among them; none is lost and none is there twice.
func TestRaft(t *testing.T) {
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
	if now := nbtest.Leader(t, members); leaders == 0 { // it has moved ahead of us all the time
		now.Kill()
		write(10)
		now.Start()
	}
	for _, m := range members {
		nbtest.Eventually(t, "every member has every write", func() bool {
			out, err := exec.Command("ovn-nbctl", "--no-leader-only", "--db="+m.Endpoint, "--bare", "--columns=name", "list", "Logical_Switch").Output()
			return err == nil && len(strings.Fields(string(out))) == writes
		})
	}
	t.Logf("%d writes over the death of each member; the longest took %s", writes, longest.Round(time.Millisecond))
}
