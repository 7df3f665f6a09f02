package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovn-ebpf/ovn-ebpf/test/lab"
	"github.com/ovn-ebpf/ovn-ebpf/test/platform"
)

// TestRaftTyped runs the commands of docs/controller.md for a raft cluster over ssl: three members
// on one node each, and the controller. Each member in turn is stopped and restarted while the
// controller writes.
func TestRaftTyped(t *testing.T) {
	if testing.Short() {
		t.Skip(inFull)
	}

	o := labOptions(t, lab.Options{Nodes: 3, Kube: true, Hosts: true})

	l, err := lab.Up(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}

	downAfter(t, l, o)
	r := newRaftReader(t, l, filepath.Join(o.BinDir, "ovnkube"))
	keys, files, first, others, use := r.section(t, "ovs-pki init", 2), r.section(t, "install -D", 3), r.section(t, "/usr/share/ovn", 2), r.section(t, "/usr/share/ovn", 2), r.section(t, "ovnkube controller", 2)
	r.typeOn(t, 1, keys...)

	for i := 1; i <= 3; i++ {
		r.typeOn(t, i, files...)
	}

	r.typeOn(t, 1, first...)

	for i := 2; i <= 3; i++ {
		r.typeOn(t, i, others...)
	}

	r.goesOn(t, use[0], "", "http://127.0.0.1:9409/readyz")

	show := func() string {
		out, err := r.try(t.Context(), 1, r.on(1, use[1]))
		if err != nil {
			return err.Error()
		}

		return out
	}

	client, err := l.Kubernetes()
	if err != nil {
		t.Fatal(err)
	}

	status := func(i int) string {
		out, _ := r.try(t.Context(), i, r.on(i, others[1])) // it may have been stopped
		return out
	}
	for i := 1; i <= 3; i++ {
		within(t, fmt.Sprintf("member %d is one of three", i), func() error {
			if s := status(i); strings.Count(s, " at ssl:") != 3 || !strings.Contains(s, "Status: cluster member") {
				return fmt.Errorf("%s", s)
			}

			return nil
		})
		r.typeOn(t, i, "/usr/share/ovn/scripts/ovn-ctl stop_nb_ovsdb")

		name := fmt.Sprintf("late%d", i)
		if _, err := client.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}

		within(t, "written without member "+fmt.Sprint(i), func() error {
			if out := show(); !strings.Contains(out, "("+name+")") {
				return fmt.Errorf("no switch %s in %s", name, out)
			}

			return nil
		})
		r.metricsSay(t, l, i)
		r.typeOn(t, i, map[bool]string{true: first[0], false: others[0]}[i == 1])
	}

	r.metricsSay(t, l, 0)

	out := show()
	for _, name := range []string{"node1", "node2", "node3", "late1", "late2", "late3"} {
		if strings.Count(out, "("+name+")") != 1 {
			t.Errorf("want switch %s exactly once: %s", name, out)
		}
	}
}

// metricsSay checks that the controller's metrics identify the stopped member, and one leader.
func (r *raftReader) metricsSay(t *testing.T, l *lab.Lab, stopped int) {
	t.Helper()

	client, err := l.Client("node1")
	if err != nil {
		t.Fatal(err)
	}

	within(t, fmt.Sprintf("metrics with member %d stopped", stopped), func() error {
		body := fetch(t, client, "http://127.0.0.1:9409/metrics")

		for i := 1; i <= 3; i++ {
			up := fmt.Sprintf("ovn_db_up{db_name=\"OVN_Northbound\",endpoint=\"ssl:%s:6641\"} %d\n", l.Node(i).IP4, map[bool]int{true: 0, false: 1}[i == stopped])
			if !strings.Contains(body, up) {
				return fmt.Errorf("no %q in %s", up, body)
			}
		}

		leaders := strings.Count(body, "server_role=\"leader\"} 1\n")

		connected := strings.Count(body, "ovn_db_cluster_server_connected{db_name=\"OVN_Northbound\"")
		if wanted := 3 - map[bool]int{true: 0, false: 1}[stopped == 0]; leaders != 1 || connected != wanted {
			return fmt.Errorf("%d lead, %d tell of their cluster, want %d", leaders, connected, wanted)
		}

		return nil
	})
}

// raftReader runs the section on raft: member 192.0.2.i is the i-th node.
type raftReader struct {
	*reader
	next int // the block after the one that section has returned
}

func newRaftReader(t *testing.T, l *lab.Lab, ovnkube string) *raftReader {
	t.Helper()
	r := &raftReader{reader: newReader(t, l, ovnkube)}
	r.blocks = codeBlocks(t, "../../docs/controller.md")
	pki := filepath.Join(r.dir, "pki")

	r.mounts = map[string]string{"/var/lib/openvswitch": pki, "/etc/ovn": filepath.Join(r.dir, "NODE")}
	for _, dir := range []string{"pki", "node1", "node2", "node3"} {
		if err := os.Mkdir(filepath.Join(r.dir, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}

	r.replace = []string{
		"/etc/kubernetes/admin.conf", l.Kubeconfig(),
		"192.0.2.1:", l.Node(1).IP4.String() + ":", "192.0.2.2:", l.Node(2).IP4.String() + ":", "192.0.2.3:", l.Node(3).IP4.String() + ":",
		"remote-addr=192.0.2.1", "remote-addr=" + l.Node(1).IP4.String(),
	}

	return r
}

// section returns the next block with this beginning, which must have n lines.
func (r *raftReader) section(t *testing.T, begins string, n int) []string {
	t.Helper()

	for ; r.next < len(r.blocks); r.next++ {
		if b := r.blocks[r.next]; len(b) == n && strings.HasPrefix(b[0], begins) {
			r.next++
			return b
		}
	}

	t.Fatalf("docs/controller.md: no further block of %d lines begins with %q", n, begins)

	return nil
}

// on returns a line as typed on the i-th member.
func (r *raftReader) on(i int, line string) string {
	own := r.Node(i).IP4.String()
	line = strings.NewReplacer("/usr/share/ovn/scripts/ovn-ctl", platform.OVNFile("scripts/ovn-ctl"), "ovn1-", fmt.Sprintf("ovn%d-", i), "local-addr=192.0.2.1", "local-addr="+own, "local-addr=192.0.2.2", "local-addr="+own).Replace(line)
	// The lab's own Northbound database is not used here.
	return fmt.Sprintf("unset OVN_NB_DB; cd %s; %s", r.dir, r.here(line))
}

func (r *raftReader) typeOn(t *testing.T, i int, lines ...string) {
	t.Helper()

	for _, line := range lines {
		r.types(t, i, "%s", r.on(i, line))
	}
}
