package bpf

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/ovn-ebpf/ovn-ebpf/agent/testnode"
)

func wantDetached(t *testing.T, h *sockHost, s *Sock) {
	t.Helper()

	if ok, err := s.Attached(); !ok || err != nil {
		t.Errorf("attached: %t, %v", ok, err)
	}

	if err := s.Detach(); err != nil {
		t.Fatal(err)
	}

	if ok, err := s.Attached(); ok || err != nil {
		t.Errorf("after Detach: attached %t, %v", ok, err)
	}

	entries, err := os.ReadDir(h.pinDir)
	if err != nil || len(entries) != 0 {
		t.Errorf("pins are left: %v, %v", entries, err)
	}

	wantNoPrograms(t, h)
}

func wantNoPrograms(t *testing.T, h *sockHost) {
	t.Helper()

	for _, at := range []ebpf.AttachType{ebpf.AttachCGroupInet4Connect, ebpf.AttachCGroupUDP6Recvmsg, ebpf.AttachCGroupInet4PostBind} {
		target := openDir(t, h.cgroup)
		eventually(t, "the programs to leave "+at.String(), func() bool { // the kernel takes a pin's link down in its own time
			result, err := link.QueryPrograms(link.QueryOptions{Target: target, Attach: at})
			if err != nil {
				t.Fatal(err)
			}

			return len(result.Programs) == 0
		})
	}
}

func openDir(t *testing.T, path string) int {
	t.Helper()

	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { f.Close() })

	return int(f.Fd())
}

// Foreign programs on the cgroup stay and remain effective.
func TestSock_besideOthers(t *testing.T) {
	h := newSockHost(t)
	refuse := func(port uint16) *ebpf.Program {
		prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
			Name: "foreign", Type: ebpf.CGroupSockAddr, AttachType: ebpf.AttachCGroupInet4Connect, License: "Apache-2.0",
			Instructions: asm.Instructions{ // user_port is at 24
				asm.LoadMem(asm.R1, asm.R1, 24, asm.Word), asm.Mov.Imm(asm.R0, 1),
				asm.JNE.Imm(asm.R1, int32(bePort(port)), "out"),
				asm.Mov.Imm(asm.R0, 0), asm.Return().WithSymbol("out"),
			},
		})
		if err != nil {
			t.Fatal(err)
		}

		t.Cleanup(func() { prog.Close() })

		return prog
	}
	attach := func(p *ebpf.Program) {
		l, err := link.AttachCgroup(link.CgroupOptions{Path: h.cgroup, Attach: ebpf.AttachCGroupInet4Connect, Program: p})
		if err != nil {
			t.Fatal(err)
		}

		t.Cleanup(func() { l.Close() })
	}
	attach(refuse(1111))

	s := h.open(t, webService(backAddrs...))

	attach(refuse(2222))

	if err := s.Attach(); err != nil {
		t.Fatal(err)
	}

	askOnce(t, h, vip4)

	for _, to := range []string{"192.0.2.11:1111", "192.0.2.11:2222"} {
		c := h.client(t, unix.SOCK_STREAM, netip.MustParseAddrPort(to).Addr(), false)
		if err := c.connect(netip.MustParseAddrPort(to)); !errors.Is(err, unix.EPERM) {
			t.Errorf("connect to %s: %v, want EPERM", to, err)
		}
	}

	result, err := link.QueryPrograms(link.QueryOptions{Target: openDir(t, h.cgroup), Attach: ebpf.AttachCGroupInet4Connect})
	if err != nil || len(result.Programs) != 3 {
		t.Errorf("programs: %v, %v; want three", result, err)
	}
}

// The cgroup of an earlier load's links was deleted, or another cgroup is configured.
func TestSock_otherCgroup(t *testing.T) {
	h := newSockHost(t)
	h.open(t, webService(backAddrs...))
	h.cgroup = testnode.Cgroup(t)

	s := h.open(t, webService(backAddrs...))
	if ok, err := s.Attached(); !ok || err != nil {
		t.Errorf("attached: %t, %v", ok, err)
	}

	askOnce(t, h, vip4)

	if err := s.Detach(); err != nil {
		t.Fatal(err)
	}
}

// A table of another version is recreated.
func TestOpenSock_otherLayout(t *testing.T) {
	h := newSockHost(t)
	if err := preparePinDir(h.pinDir); err != nil {
		t.Fatal(err)
	}

	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Hash, KeySize: 4, ValueSize: 4, MaxEntries: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()

	if err := m.Pin(filepath.Join(h.pinDir, sockMapSockFrontends)); err != nil {
		t.Fatal(err)
	}

	h.open(t, webService(backAddrs...))
	askOnce(t, h, vip4)
}

func TestSock_UpdateServices_needsSync(t *testing.T) {
	h := newSockHost(t)
	h.open(t, webService(backAddrs...))

	s, err := OpenSock(CgroupOptions{PinDir: h.pinDir, CgroupPath: h.cgroup, NetnsCookie: h.cookie})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()

	if _, err := s.UpdateServices(nil); err == nil || !strings.Contains(err.Error(), "synced") {
		t.Errorf("update before the first sync: %v", err)
	}

	if ok, err := s.Attached(); ok || err != nil {
		t.Errorf("the programs of another load are taken for its own: %t, %v", ok, err)
	}

	askOnce(t, h, vip4)
}

func TestFindCgroup(t *testing.T) {
	const mountinfo = `24 1 0:22 / /proc rw - proc proc rw
30 23 0:26 / /sys/fs/cgroup ro - tmpfs tmpfs ro
31 30 0:27 / /sys/fs/cgroup/unified rw,nosuid shared:5 - cgroup2 cgroup2 rw
32 30 0:28 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu
33 30 0:27 /a /mnt/with\040space rw - cgroup2 none rw
`

	got, err := cgroup2Mounts(strings.NewReader(mountinfo))
	if want := []string{"/sys/fs/cgroup/unified", "/mnt/with space"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("cgroup2 mounts %q, %v; want %q", got, err, want)
	}

	if _, err := OpenSock(CgroupOptions{PinDir: newPinDir(t), CgroupPath: t.TempDir()}); err != nil {
		t.Errorf("open: %v", err) // the path counts where it is used
	}
}

// Before Linux 6.1 a program cannot return ECONNREFUSED.
func TestSock_refusesOnOldKernel(t *testing.T) {
	h := newSockHost(t)
	h.open(t, webService())

	spec, err := loadSock()
	if err == nil {
		err = errors.Join(spec.Variables[sockVarHostNetns].Set(h.cookie), spec.Variables[sockVarHasSetRetval].Set(false))
	}

	if err != nil {
		t.Fatal(err)
	}

	var objs sockObjects
	if err := spec.LoadAndAssign(&objs, &ebpf.CollectionOptions{Maps: ebpf.MapOptions{PinPath: h.pinDir}}); err != nil {
		t.Fatal(err)
	}
	defer objs.Close()

	for _, hook := range sockHooks(&objs.sockPrograms) {
		if err := attachCgroup(h.pinDir, h.cgroup, hook); err != nil {
			t.Fatal(err)
		}
	}

	for _, way := range sockWays {
		to := netip.MustParseAddrPort(way.to)

		c := h.client(t, unix.SOCK_STREAM, to.Addr(), way.mapped)
		if err := c.connect(to); !errors.Is(err, unix.EPERM) {
			t.Errorf("connect to %s: %v, want EPERM", way.to, err)
		}
	}
}

// Detaching the gateway also removes the other users of its pin directory.
func TestGateway_Detach_takesAll(t *testing.T) {
	n := newNode(t)
	g := n.open(t)
	h := &sockHost{namespace: n.namespace, pinDir: n.pinDir, cgroup: testnode.Cgroup(t)}
	h.open(t, webService(backAddrs...))

	gate, err := LoadGate(CgroupOptions{PinDir: n.pinDir, CgroupPath: h.cgroup})
	if err == nil {
		t.Cleanup(func() { gate.Close() })

		err = gate.Attach()
	}

	if err != nil {
		t.Fatal(err)
	}

	if err := g.Detach(); err != nil {
		t.Fatal(err)
	}

	wantNoPrograms(t, h)
}
