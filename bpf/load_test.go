package bpf

import (
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/ovn-ebpf/ovn-ebpf/cluster"
	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// Learned state, counters and services survive a restart.
func TestOpen_again(t *testing.T) {
	n := newNode(t)
	g := n.open(t)

	ping := v4.tx(v4.node, v4.remote, protoICMP, v4.ping(7))
	if _, _, err := n.send(g, step{hook: bridgeIngress, packet: ping}); err != nil {
		t.Fatal(err)
	}

	g.Close()

	before := counts(t, n.pinDir)

	sizes, err := tableSizes(n.pinDir)
	if err != nil {
		t.Fatal(err)
	}

	if diff := cmp.Diff(map[string]int{"ns": 1, "frags": 0, "services": 8, "takeover": 0, "host_addrs": 5, "lookup_targets": 0}, sizes); diff != "" {
		t.Errorf("table sizes (-want +got):\n%s", diff)
	}

	g, err = Open(Options{PinDir: n.pinDir, Config: n.config()})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()

	if diff := cmp.Diff(before, counts(t, n.pinDir)); diff != "" {
		t.Errorf("counters (-before +after):\n%s", diff)
	}

	for _, s := range []step{
		rx(v4.rx(v4.remote, v4.node, protoICMP, v4.pong(7)), retNext, "icmp_echo_reply_ns"),
		rx(v4.rx(v4.remote, v4.node, protoTCP, tcp(4000, 30080, flagSYN)), retRedirect, "service"),
		rx(v4.rx(v4.remote, v4.second, protoTCP, tcp(4000, 22, flagSYN)), retNext, "default"),
	} {
		runStep(t, n, g, 0, s)
	}
}

func TestGateway_sync(t *testing.T) {
	n := newNode(t)
	g := n.open(t)
	second := rx(v4.rx(v4.remote, v4.second, protoTCP, tcp(4000, 22, flagSYN)), retNext, "default")
	nodePort := rx(v4.rx(v4.remote, v4.node, protoTCP, tcp(4000, 30080, flagSYN)), retRedirect, "service")

	runStep(t, n, g, 0, second)
	runStep(t, n, g, 1, nodePort)

	err := errors.Join(
		g.SyncAddrs(hosts(v4.node, netip.MustParseAddr("fe80::1%eth0"))),
		g.SyncServices(ovns([]verdict.ServiceKey{{Addr: v4.node, Proto: protoUDP, Port: 30080}, {Addr: v4.node, Proto: protoTCP, Port: 30090}})),
	)
	if err != nil {
		t.Fatal(err)
	}

	second.reason = "not_ours"
	nodePort.ret, nodePort.reason = retNext, "default"

	runStep(t, n, g, 2, second)
	runStep(t, n, g, 3, nodePort)
	runStep(t, n, g, 4, rx(v4.rx(v4.remote, v4.node, protoTCP, tcp(4000, 30090, flagSYN)), retRedirect, "service"))

	sizes, err := tableSizes(n.pinDir)
	if err != nil || sizes["services"] != 2 {
		t.Errorf("services %d, %v; want 2", sizes["services"], err)
	}
}

// Many entries take several batches, and none is lost between them.
func TestGateway_SyncServices_many(t *testing.T) {
	n := newNode(t)
	g := n.open(t)

	var want []verdict.ServiceKey
	for i := range 20000 {
		want = append(want, verdict.ServiceKey{Addr: netip.AddrFrom4([4]byte{192, 0, byte(i >> 8), byte(i)}), Proto: protoTCP, Port: uint16(30000 + i%1000)})
	}

	for _, keep := range []int{20000, 15000, 0} {
		if err := g.SyncServices(ovns(want[:keep])); err != nil {
			t.Fatal(err)
		}

		sizes, err := tableSizes(n.pinDir)
		if err != nil || sizes["services"] != keep {
			t.Errorf("services %d, %v; want %d", sizes["services"], err, keep)
		}
	}
}

func TestGateway_SetConfig(t *testing.T) {
	n := newNode(t)
	g := n.open(t)
	packet := v4.rx(v4.remote, v4.node, protoUDP, udp(53, 40000))
	runStep(t, n, g, 0, rx(packet, retNext, "default"))
	c := n.config()

	c.SNATPorts = cluster.PortRange{First: 40000, Last: 40000}
	if err := g.SetConfig(c); err != nil {
		t.Fatal(err)
	}

	runStep(t, n, g, 1, rx(packet, retRedirect, "snat_port"))
	runStep(t, n, g, 2, rx(v4.rx(v4.remote, v4.node, protoUDP, udp(53, 40001)), retNext, "default"))

	c.SNATPorts = cluster.PortRange{}
	if err := g.SetConfig(c); err == nil {
		t.Error("no error for an empty range")
	}
}

func TestOpen_replacesIncompatibleMap(t *testing.T) {
	n := newNode(t)
	n.open(t).Close()

	path := filepath.Join(n.pinDir, "ns")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}

	old, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Hash, KeySize: 4, ValueSize: 4, MaxEntries: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close()

	if err := old.Pin(path); err != nil {
		t.Fatal(err)
	}

	g := n.open(t)
	if got := g.objs.Ns.KeySize(); got != 20 {
		t.Errorf("ns has keys of %d bytes", got)
	}

	sizes, err := tableSizes(n.pinDir)
	if err != nil || sizes["services"] != 8 {
		t.Errorf("services %d, %v; want 8", sizes["services"], err)
	}
}

func TestOpen_mountsBPFFS(t *testing.T) {
	n := newNode(t)
	parent := filepath.Join(t.TempDir(), "bpf")
	n.pinDir = filepath.Join(parent, "gateway")
	g := n.open(t)

	defer func() {
		if err := unix.Unmount(parent, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	}()

	if ok, err := onBPFFS(n.pinDir); !ok {
		t.Errorf("pin directory is not on a bpffs: %v", err)
	}

	if err := g.Detach(); err != nil {
		t.Error(err)
	}
}

func TestOpen_refuses(t *testing.T) {
	n := newNode(t)

	full := t.TempDir()
	if err := os.WriteFile(filepath.Join(full, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}

	for _, tt := range []struct{ name, dir, want string }{
		{"a relative path", "bpf", "not an absolute path"},
		{"a parent with files in it", filepath.Join(full, "gateway"), "directory is not empty"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Open(Options{PinDir: tt.dir, Config: n.config()})
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

// A table that an earlier version pinned, and this one does not use, is removed.
func TestOpen_removesAbandonedTables(t *testing.T) {
	n := newNode(t)
	n.open(t)

	for _, name := range abandoned {
		m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.LRUHash, KeySize: 40, ValueSize: 8, MaxEntries: 16})
		if err != nil {
			t.Fatal(err)
		}

		if err := errors.Join(m.Pin(filepath.Join(n.pinDir, name)), m.Close()); err != nil {
			t.Fatal(err)
		}
	}

	n.open(t)

	for _, name := range abandoned {
		if _, err := os.Stat(filepath.Join(n.pinDir, name)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is still there: %v", name, err)
		}
	}
}
