package nb_test

import (
	"fmt"
	"os"
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
	members := newRaft(t)
	var endpoints []string
	for _, m := range members {
		endpoints = append(endpoints, "unix:"+m.base+".sock")
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
		if m == leader(t, members) {
			leaders++
		}
		m.kill(t)
		write(10)
		m.start(t)
		write(5)
	}
	if now := leader(t, members); leaders == 0 { // it has moved ahead of us all the time
		now.kill(t)
		write(10)
		now.start(t)
	}
	for _, m := range members {
		nbtest.Eventually(t, "every member has every write", func() bool {
			out, err := exec.Command("ovn-nbctl", "--no-leader-only", "--db=unix:"+m.base+".sock", "--bare", "--columns=name", "list", "Logical_Switch").Output()
			return err == nil && len(strings.Fields(string(out))) == writes
		})
	}
	t.Logf("%d writes over the death of each member; the longest took %s", writes, longest.Round(time.Millisecond))
}

// member is one server of a raft cluster.
type member struct {
	base string // of its files and sockets
	cmd  *exec.Cmd
}

// newRaft makes a Northbound database of three servers.
func newRaft(t *testing.T) []*member {
	t.Helper()
	dir, err := os.MkdirTemp("", "raft") // short, for sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	var members []*member
	first := ""
	for i := range 3 {
		m, address := &member{base: fmt.Sprintf("%s/%d", dir, i)}, fmt.Sprintf("tcp:127.0.0.1:%d", freePort(t))
		if i == 0 {
			first = address
			tool(t, "ovsdb-tool", "create-cluster", m.base+".db", nbSchema, address)
		} else {
			tool(t, "ovsdb-tool", "join-cluster", m.base+".db", "OVN_Northbound", address, first)
		}
		m.start(t)
		members = append(members, m)
	}
	return members
}

// start returns when the server is a member.
func (m *member) start(t *testing.T) {
	t.Helper()
	m.cmd = daemon(t, "ovsdb-server", m.base+".db", "--no-chdir", "--unixctl="+m.base+".ctl", "--remote=punix:"+m.base+".sock", "-vsyslog:off")
	nbtest.Eventually(t, "member of the cluster", func() bool { return strings.Contains(m.status(), "Status: cluster member") })
}

func (m *member) kill(t *testing.T) {
	t.Helper()
	if err := m.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = m.cmd.Wait() // it was killed
}

func (m *member) status() string {
	out, _ := exec.Command("ovs-appctl", "-t", m.base+".ctl", "cluster/status", "OVN_Northbound").Output() // it may not be there
	return string(out)
}

func leader(t *testing.T, members []*member) *member {
	t.Helper()
	var found *member
	nbtest.Eventually(t, "a leader", func() bool {
		for _, m := range members {
			if strings.Contains(m.status(), "Role: leader") {
				found = m
			}
		}
		return found != nil
	})
	return found
}
