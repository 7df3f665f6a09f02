package lab_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ovn-ebpf/ovn-ebpf/test/lab"
)

// options returns options for a separate lab, as other labs may be up.
func options(t *testing.T) lab.Options {
	t.Helper()

	if os.Geteuid() != 0 {
		t.Skip("network namespaces need root")
	}
	// Not t.TempDir, as names of unix sockets must be short.
	name := fmt.Sprintf("lt%d", os.Getpid())
	o := lab.Options{Dir: "/run/" + name, Name: name, Nodes: 2, Progress: t.Output()}
	t.Cleanup(func() {
		if l, err := lab.Open(o.Dir); err == nil {
			if err := l.Down(context.Background()); err != nil {
				t.Error(err)
			}
		}

		noResidue(t, o)
	})

	return o
}

// noResidue fails the test if something of the lab is left. A short command that a killed lab was
// running, such as ovsdb-tool, ends by itself.
func noResidue(t *testing.T, o lab.Options) {
	t.Helper()

	var left []string

	for end := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		var err error
		if left, err = lab.Residue(o.Dir, o.Name); err != nil {
			t.Fatal(err)
		}

		if len(left) == 0 || time.Now().After(end) {
			break
		}
	}

	for _, what := range left {
		t.Errorf("left behind: %s", what)
	}
}

func TestBareLab(t *testing.T) {
	o := options(t)
	o.BinDir = binDir(t)

	l, err := lab.Up(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}

	chassis := mustExec(t, l, "central", "ovn-sbctl", "--bare", "--columns=name", "find", "Chassis")
	for _, n := range l.Nodes() {
		if !strings.Contains(chassis, n.Name) {
			t.Errorf("chassis %q, want %s among them", chassis, n.Name)
		}
	}

	t.Run("fabric", func(t *testing.T) {
		for _, to := range []string{
			l.Node(2).IP4.String(), l.Node(2).IP6.String(), lab.ExtIP4, lab.ExtIP6, lab.BehindIP4, lab.BehindIP6,
			lab.CentralIP4, lab.CentralIP6,
		} {
			mustExec(t, l, "node1", "ping", "-n", "-c", "1", "-W", "5", to)
		}
		// name, state, address, flags
		central := strings.Fields(mustExec(t, l, "central", "ip", "-br", "link", "show", "fab0"))[2]

		ports := mustExec(t, l, "central", "ip", "-br", "link", "show", "master", "fab0")
		if strings.Contains(ports, central) || !strings.Contains(ports, "node2") {
			t.Errorf("central has the address %s of one of its ports, and loses it to the next:\n%s", central, ports)
		}
	})
	t.Run("traffic", func(t *testing.T) { testTraffic(t, l) })
	t.Run("ports", func(t *testing.T) { testPorts(t, l) })
	t.Run("kills", func(t *testing.T) { testKills(t, l) })
	t.Run("second", func(t *testing.T) {
		other := o

		other.Dir += "b"
		if _, err := lab.Up(t.Context(), other); err == nil || !strings.Contains(err.Error(), "is up") {
			t.Errorf("a second lab of the same name: %v", err)
		}

		other = o

		other.Name += "b"
		if _, err := lab.Up(t.Context(), other); err == nil || !strings.Contains(err.Error(), "is up") {
			t.Errorf("a second lab in the same directory: %v", err)
		}

		if err := l.Status(t.Context(), t.Output()); err != nil {
			t.Errorf("the first lab afterwards: %v", err)
		}
	})
	// In place of another process.
	again, err := lab.Open(o.Dir)
	if err != nil {
		t.Fatal(err)
	}

	if diff := cmp.Diff(*l.Node(2), *again.Node(2), cmp.Comparer(func(a, b interface{ String() string }) bool { return a.String() == b.String() })); diff != "" {
		t.Errorf("node2 of the opened lab: %s", diff)
	}

	if err := again.Down(t.Context()); err != nil {
		t.Fatal(err)
	}

	noResidue(t, o)
}

// testTraffic sends real TCP and UDP over the fabric to check checksums and routes.
func testTraffic(t *testing.T, l *lab.Lab) {
	if _, err := l.Serve(t.Context(), "ext", "ext-server", "-tcp", ":80", "-udp", ":80", "-name", "ext"); err != nil {
		t.Fatal(err)
	}

	n := l.Node(1)
	for _, c := range []struct{ to, from string }{
		{lab.BehindIP4 + ":80", n.IP4.String() + ":5555"}, {"[" + lab.BehindIP6 + "]:80", "[" + n.IP6.String() + "]:5555"},
	} {
		for _, proto := range []string{"tcp", "udp"} {
			got, err := l.Traffic(t.Context(), "node1", proto, c.to, "-sport", "5555")
			if want := "ext " + c.from; err != nil || got != want {
				t.Errorf("%s %s: %q, %v, want %q", proto, c.to, got, err, want)
			}
		}

		if got, err := l.Traffic(t.Context(), "node1", "stream", c.to, "-duration", "100ms"); err != nil {
			t.Errorf("stream %s: %q, %v", c.to, got, err)
		}
	}
}

// testKills kills processes, starts them again, and needs all of them for a new port.
func testKills(t *testing.T, l *lab.Lab) {
	for _, name := range []string{"central-ovn-northd", "node1-db", "node1-ovs-vswitchd", "node1-ovn-controller"} {
		again, err := l.Kill(name)
		if err != nil {
			t.Fatal(err)
		}

		if err := again(); err != nil {
			t.Fatalf("start %s again: %v", name, err)
		}
	}

	mustExec(t, l, "central", "ovn-nbctl", "--timeout=30", "lsp-add", "s", "c", "--", "lsp-set-addresses", "c", "0a:00:00:00:00:03 10.9.0.3")
	mustExec(t, l, "node1", "ovs-vsctl", "--retry", "--timeout=30", "add-port", "br-int", "c",
		"--", "set", "Interface", "c", "type=internal", "external_ids:iface-id=c")
	mustExec(t, l, "central", "ovn-nbctl", "--timeout=30", "wait-until", "Logical_Switch_Port", "c", "up=true")
}

// testPorts connects two internal ports of node1 by a logical switch.
func testPorts(t *testing.T, l *lab.Lab) {
	mustExec(t, l, "central", "ovn-nbctl", "--wait=sb", "ls-add", "s",
		"--", "lsp-add", "s", "a", "--", "lsp-set-addresses", "a", "0a:00:00:00:00:01 10.9.0.1",
		"--", "lsp-add", "s", "b", "--", "lsp-set-addresses", "b", "0a:00:00:00:00:02 10.9.0.2")

	for _, p := range []string{"a", "b"} {
		mustExec(t, l, "node1", "ovs-vsctl", "--timeout=30", "add-port", "br-int", p,
			"--", "set", "Interface", p, "type=internal", "external_ids:iface-id="+p)
	}

	for _, p := range []string{"a", "b"} {
		mustExec(t, l, "central", "ovn-nbctl", "--timeout=30", "wait-until", "Logical_Switch_Port", p, "up=true")
	}
}

func TestCancelledUp(t *testing.T) {
	for _, step := range []string{"fabric", "central", "node1"} {
		t.Run(step, func(t *testing.T) {
			o := options(t)

			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()

			o.Progress = writerFunc(func(b []byte) {
				if strings.Contains(string(b), "] "+step) {
					cancel()
				}
			})
			if _, err := lab.Up(ctx, o); !errors.Is(err, context.Canceled) {
				t.Errorf("Up: %v, want %v", err, context.Canceled)
			}

			noResidue(t, o)
		})
	}
}

func TestOptions(t *testing.T) {
	for _, c := range []struct {
		name string
		lab.Options
		want string
	}{
		{"nodes", lab.Options{Nodes: 51}, "51 nodes"},
		{"datapath", lab.Options{Datapath: "dpdk"}, `datapath "dpdk"`},
		{"relative", lab.Options{Dir: "x"}, `directory "x" is not absolute`},
		{"long", lab.Options{Dir: "/" + strings.Repeat("x", 90)}, "too long for unix sockets"},
		{"name", lab.Options{Name: "a-b"}, `name "a-b"`},
		{"VMs", lab.Options{VMs: 9}, "9 VMs are not 0 to 8"},
		{"cloud", lab.Options{Cloud: true}, "a cloud needs VMs"},
		{"hypervisors", lab.Options{VMs: 1, Blank: true}, "VMs need hypervisors with OVN"},
		{"programs", lab.Options{Cluster: true, BinDir: "/nowhere"}, "find ovnkube"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := lab.Up(t.Context(), c.Options); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("Up: %v, want %q in it", err, c.want)
			}
		})
	}

	if _, err := lab.Open("/run/no-such-lab"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Open where there is none: %v, want os.ErrNotExist", err)
	}
}

// Files of others in a lab's directory are kept.
func TestForeignDirectoryIsKept(t *testing.T) {
	o := options(t)
	o.Dir = t.TempDir()

	precious := filepath.Join(o.Dir, "precious")
	if err := os.WriteFile(precious, nil, 0o644); err != nil {
		t.Fatal(err)
	}

	if _, err := lab.Up(t.Context(), o); err == nil || !strings.Contains(err.Error(), "is not empty, and no lab's: it has precious") {
		t.Errorf("Up: %v", err)
	}

	if _, err := os.Stat(precious); err != nil {
		t.Error(err)
	}
}

type writerFunc func([]byte)

func (f writerFunc) Write(b []byte) (int, error) { f(b); return len(b), nil }

func mustExec(t *testing.T, l *lab.Lab, host string, argv ...string) string {
	t.Helper()

	out, err := l.Exec(t.Context(), host, argv...)
	if err != nil {
		t.Fatal(err)
	}

	return string(out)
}
