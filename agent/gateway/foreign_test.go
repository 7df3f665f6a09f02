package gateway

import (
	"encoding/binary"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/agent/testnode"
	"github.com/ovn-ebpf/ovn-ebpf/bpf"
)

// foreign is a foreign tcx program. It is loaded without a library, so that bpf stays the only
// importer of cilium/ebpf.
type foreign struct {
	t          *testing.T
	prog, link int
}

// attachForeign attaches a program that passes every packet, at the head or the tail of the
// device's ingress.
func attachForeign(t *testing.T, ifindex int, head bool) *foreign {
	t.Helper()

	const movR0, next, exit = 0xb7, -1, 0x95 // TCX_NEXT of linux/bpf.h

	insns := make([]byte, 16)
	insns[0], insns[8] = movR0, exit
	value := int32(next)
	binary.NativeEndian.PutUint32(insns[4:], uint32(value))

	license := append([]byte("GPL"), 0)
	load := struct {
		progType, count  uint32
		insns, license   unsafe.Pointer
		logLevel, logLen uint32
		log              uint64
	}{progType: unix.BPF_PROG_TYPE_SCHED_CLS, count: 2, insns: unsafe.Pointer(&insns[0]), license: unsafe.Pointer(&license[0])}
	f := &foreign{t: t}
	f.prog = sysBPF(t, unix.BPF_PROG_LOAD, unsafe.Pointer(&load), unsafe.Sizeof(load))

	create := struct {
		prog, ifindex, attachType, flags uint32
		relative, pad                    uint32
		revision                         uint64
	}{prog: uint32(f.prog), ifindex: uint32(ifindex), attachType: unix.BPF_TCX_INGRESS, flags: unix.BPF_F_AFTER}
	if head {
		create.flags = unix.BPF_F_BEFORE
	}

	f.link = sysBPF(t, unix.BPF_LINK_CREATE, unsafe.Pointer(&create), unsafe.Sizeof(create))

	return f
}

// seen returns the number of runs of the program while statistics were enabled.
func (f *foreign) seen() int {
	f.t.Helper()

	info, err := os.ReadFile(fmt.Sprintf("/proc/self/fdinfo/%d", f.prog))
	if err != nil {
		f.t.Fatal(err)
	}

	n := regexp.MustCompile(`run_cnt:\s+(\d+)`).FindSubmatch(info)
	if n == nil {
		f.t.Fatalf("no run_cnt in %s", info)
	}

	count, err := strconv.Atoi(string(n[1]))
	if err != nil {
		f.t.Fatal(err)
	}

	return count
}

func (f *foreign) close() {
	unix.Close(f.link)
	unix.Close(f.prog)
}

// countRuns makes the kernel count program runs until the test ends.
func countRuns(t *testing.T) {
	t.Helper()

	enable := struct{ kind uint32 }{unix.BPF_STATS_RUN_TIME}
	fd := sysBPF(t, unix.BPF_ENABLE_STATS, unsafe.Pointer(&enable), unsafe.Sizeof(enable))
	t.Cleanup(func() { unix.Close(fd) })
}

// detachByID detaches a link like "bpftool link detach".
func detachByID(t *testing.T, id uint32) {
	t.Helper()

	byID := struct{ id, next, flags uint32 }{id: id}

	fd := sysBPF(t, unix.BPF_LINK_GET_FD_BY_ID, unsafe.Pointer(&byID), unsafe.Sizeof(byID))
	defer unix.Close(fd)

	detach := struct{ fd uint32 }{uint32(fd)}
	sysBPF(t, unix.BPF_LINK_DETACH, unsafe.Pointer(&detach), unsafe.Sizeof(detach))
}

// pinnedLinkID returns the ID of the link pinned at path.
func pinnedLinkID(t *testing.T, path string) uint32 {
	t.Helper()

	name := append([]byte(path), 0)
	get := struct {
		path      unsafe.Pointer
		fd, flags uint32
	}{path: unsafe.Pointer(&name[0])}

	fd := sysBPF(t, unix.BPF_OBJ_GET, unsafe.Pointer(&get), unsafe.Sizeof(get))
	defer unix.Close(fd)

	info, err := os.ReadFile(fmt.Sprintf("/proc/self/fdinfo/%d", fd))
	if err != nil {
		t.Fatal(err)
	}

	id := regexp.MustCompile(`link_id:\s+(\d+)`).FindSubmatch(info)
	if id == nil {
		t.Fatalf("no link_id in %s", info)
	}

	n, err := strconv.ParseUint(string(id[1]), 10, 32)
	if err != nil {
		t.Fatal(err)
	}

	return uint32(n)
}

func sysBPF(t *testing.T, command int, attr unsafe.Pointer, size uintptr) int {
	t.Helper()

	fd, _, errno := unix.Syscall(unix.SYS_BPF, uintptr(command), uintptr(attr), size)
	if errno != 0 {
		t.Fatalf("bpf command %d: %v", command, errno)
	}

	return int(fd)
}

// pings returns the number of echo requests that the agent's program gave to the host.
func (r *rig) pings() uint64 {
	r.t.Helper()

	counters, err := bpf.ReadCounters(r.s.PinDir)
	if err != nil {
		r.t.Fatal(err)
	}

	for _, c := range counters {
		if c.Reason == "icmp_echo" {
			return c.Packets
		}
	}

	r.t.Fatal("no counter of icmp_echo")

	return 0
}

// foreignPrograms attaches foreign programs before and after the agent's. The agent's program
// decides, and each foreign program sees the host's packets.
func (r *rig) foreignPrograms(t *testing.T) {
	countRuns(t)

	uplink, err := link.Get("eth0")
	if err != nil {
		t.Fatal(err)
	}

	for _, head := range []bool{true, false} {
		f := attachForeign(t, uplink.Index, head)
		seen, ours := f.seen(), r.pings()
		r.hostAnswers()

		if f.seen() == seen || r.pings() == ours {
			t.Errorf("at the head %t: the foreign program saw %d packets, ours decided %d pings", head, f.seen()-seen, r.pings()-ours)
		}

		if head {
			r.ahead(t, "1 foreign tcx programs run before the agent's on eth0")
		}

		f.close()
		r.ahead(t, "")
	}

	r.awaitReady()
}

// ahead waits until the gateway reports programs before its own.
func (r *rig) ahead(t *testing.T, want string) {
	t.Helper()
	r.gw.Trigger()
	testnode.Eventually(t, "what is said of foreign programs", func() error {
		if got := r.gw.Stats().Degraded[partAhead]; got != want {
			return fmt.Errorf("got %q, want %q", got, want)
		}

		return nil
	})
}
