package nbtest

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// Member is one server of a clustered database (Raft, ovsdb(7)).
type Member struct {
	Endpoint string // unix:<path>, for clients
	Remote   string // tcp:<address>:<port>, for clients, too

	t    testing.TB
	base string // prefix of its files and sockets
	cmd  *exec.Cmd
}

// StartRaft starts a Northbound database of three servers, which run until the end of the test.
func StartRaft(t testing.TB) []*Member {
	t.Helper()

	dir, err := os.MkdirTemp("", "raft") // short, because of the limit for socket paths
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { os.RemoveAll(dir) })

	var members []*Member

	first := "" // address by which the first member is reached by the others

	for i := range 3 {
		base, address := fmt.Sprintf("%s/%d", dir, i), freeAddress(t)
		m := &Member{Endpoint: "unix:" + base + ".sock", Remote: freeAddress(t), t: t, base: base}

		argv := []string{"join-cluster", base + ".db", "OVN_Northbound", address, first}
		if i == 0 {
			first = address
			argv = []string{"create-cluster", base + ".db", Schema(t, "ovn-nb.ovsschema"), address}
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

// freeAddress returns a TCP address at which no process listens now, as tcp:<address>:<port>.
func freeAddress(t testing.TB) string {
	t.Helper()

	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()

	return "tcp:" + l.Addr().String()
}

// Start starts the server and returns when it is a member of the cluster.
func (m *Member) Start() {
	m.t.Helper()
	_, address, _ := strings.Cut(m.Remote, ":")

	host, port, err := net.SplitHostPort(address)
	if err != nil {
		m.t.Fatal(err)
	}

	m.cmd = exec.Command("ovsdb-server", m.base+".db", "--no-chdir", "--unixctl="+m.base+".ctl",
		"--remote=p"+m.Endpoint, fmt.Sprintf("--remote=ptcp:%s:%s", port, host), "-vsyslog:off")
	if err := m.cmd.Start(); err != nil {
		m.t.Fatal(err)
	}

	Eventually(m.t, "member of the cluster",
		func() bool { return strings.Contains(m.Status(), "Status: cluster member") })
}

// Kill ends the server like a crash, if it runs. Start may start it again.
func (m *Member) Kill() {
	_ = m.cmd.Process.Kill() // fails if it has exited already
	_ = m.cmd.Wait()         // fails because it was killed
}

// Status returns the output of "cluster/status", or "" while the server does not run.
func (m *Member) Status() string {
	cmd := exec.Command("ovs-appctl", "-t", m.base+".ctl", "cluster/status", "OVN_Northbound")
	out, _ := cmd.Output() // fails if the server does not run

	return string(out)
}

// Leader waits for a leader and returns it.
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
