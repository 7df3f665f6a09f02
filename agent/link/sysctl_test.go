package link

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ovn-ebpf/ovn-ebpf/agent/testnode"
)

// TestAllowSysctls starts with a read-only /proc/sys, as in an unprivileged container. Afterwards
// the network sysctls are writable, and no others.
func TestAllowSysctls(t *testing.T) {
	if changed, err := AllowSysctls(); changed || err != nil {
		t.Fatalf("of a host: changed %t, error %v", changed, err)
	}

	testnode.Run(t, "mount", "--bind", "/proc/sys", "/proc/sys")
	t.Cleanup(func() { testnode.Run(t, "umount", "--recursive", "/proc/sys") })
	testnode.Run(t, "mount", "-o", "remount,bind,ro", "/proc/sys")

	const key = "net/ipv4/conf/lo/rp_filter"
	if err := WriteSysctl(key, "2"); !errors.Is(err, unix.EROFS) {
		t.Fatalf("before: %v", err)
	}

	for _, want := range []bool{true, false} {
		if changed, err := AllowSysctls(); changed != want || err != nil {
			t.Fatalf("changed %t, want %t, error %v", changed, want, err)
		}
	}

	for _, value := range []string{"2", "0"} {
		if err := WriteSysctl(key, value); err != nil {
			t.Error(err)
		}
	}

	if f, err := os.OpenFile("/proc/sys/kernel/panic", os.O_WRONLY, 0); !errors.Is(err, unix.EROFS) {
		t.Errorf("open a sysctl of the whole machine: %v", err)
		f.Close()
	}
}
