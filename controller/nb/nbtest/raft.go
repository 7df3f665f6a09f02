package nbtest

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// Member is one server of a cluster.
type Member struct {
	Endpoint string // unix:<path>; its control socket is beside it, as .ctl
	Remote   string // tcp:<address>:<port>, to the same

	t    testing.TB
	base string // of its files and sockets
	cmd  *exec.Cmd
}

// StartRaft makes a Northbound database of three servers, which run until the test ends.
func StartRaft(t testing.TB) []*Member {
	t.Helper()
	dir, err := os.MkdirTemp("", "raft") // short, for sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	var members []*Member
	first := ""
	for i := range 3 {
		base, address := fmt.Sprintf("%s/%d", dir, i), freeAddress(t)
		m := &Member{Endpoint: "unix:" + base + ".sock", Remote: freeAddress(t), t: t, base: base}
		argv := []string{"join-cluster", base + ".db", "OVN_Northbound", address, first}
		if i == 0 {
			first = address
			argv = []string{"create-cluster", base + ".db", schema(t, "ovn-nb.ovsschema"), address}
		}
		if out, err := exec.Command("ovsdb-tool", argv...).CombinedOutput(); err != nil {
			t.Fatalf("ovsdb-tool %v: %v: %s", argv, err, out)
		}
		m.Start()
		t.Cleanup(m.Kill)
		members = append(members, m)
	}
	return members
}

func freeAddress(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return "tcp:" + l.Addr().String()
}

// Start returns when the server is a member.
func (m *Member) Start() {
	m.t.Helper()
	_, address, _ := strings.Cut(m.Remote, ":")
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		m.t.Fatal(err)
	}
	m.cmd = exec.Command("ovsdb-server", m.base+".db", "--no-chdir", "--unixctl="+m.base+".ctl", "--remote=p"+m.Endpoint,
		fmt.Sprintf("--remote=ptcp:%s:%s", port, host), "-vsyslog:off")
	m.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := m.cmd.Start(); err != nil {
		m.t.Fatal(err)
	}
	Eventually(m.t, "member of the cluster", func() bool { return strings.Contains(m.Status(), "Status: cluster member") })
}

// Kill ends the server, if it runs.
func (m *Member) Kill() {
	_ = m.cmd.Process.Kill() // an error: it has ended already
	_ = m.cmd.Wait()         // it was killed
}

// Status is what its control socket says; "" while it does not run.
func (m *Member) Status() string {
	out, _ := exec.Command("ovs-appctl", "-t", m.base+".ctl", "cluster/status", "OVN_Northbound").Output() // it may not be there
	return string(out)
}

// Leader waits for one.
func Leader(t testing.TB, members []*Member) *Member {
	t.Helper()
	var found *Member
	Eventually(t, "a leader", func() bool {
		for _, m := range members {
			if strings.Contains(m.Status(), "Role: leader") {
				found = m
			}
		}
		return found != nil
	})
	return found
}
