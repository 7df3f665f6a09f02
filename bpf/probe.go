package bpf

import (
	"errors"
	"fmt"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/features"
	"golang.org/x/sys/unix"
)

// capability is one of capabilities(7).
type capability struct {
	bit  uint // in a set of capabilities
	name string
}

// ErrPrivilege is wrapped by the error of Supported if the process lacks privileges. The kernel is
// then not checked.
var ErrPrivilege = errors.New("missing privileges")

// Supported returns in one line what this process or kernel lacks for the gateway's programs, or
// nil. Linux 6.1 is the oldest tested kernel. It charges memory to the cgroup, so RLIMIT_MEMLOCK
// does not matter.
func Supported() error {
	effective, err := effectiveCaps()
	if err != nil {
		return fmt.Errorf("read capabilities: %w", err)
	}

	if missing := missingCaps(effective); len(missing) > 0 {
		return &privilegeError{missing}
	}

	helpers := []asm.BuiltinFunc{
		asm.FnSkcLookupTcp,
		asm.FnSkLookupUdp,
		asm.FnTcpCheckSyncookie,
		asm.FnCloneRedirect,
		asm.FnSkbVlanPush,
		asm.FnSkbChangeType,
	}
	for _, helper := range helpers {
		if err := features.HaveProgramHelper(ebpf.SchedCLS, helper); err != nil {
			return fmt.Errorf("run eBPF gateway: kernel lacks %v for programs of type SchedCLS: %w",
				helper, err)
		}
	}

	if err := features.HaveMapType(ebpf.LRUHash); err != nil {
		return fmt.Errorf("run eBPF gateway: kernel lacks maps of type LRUHash: %w", err)
	}

	return nil
}

type privilegeError struct{ capabilities []string }

func (e *privilegeError) Error() string {
	return "run eBPF gateway: missing " + strings.Join(e.capabilities, ", ")
}

func (e *privilegeError) Is(target error) bool { return target == ErrPrivilege }

// missingCaps returns the names of missing capabilities. CAP_SYS_ADMIN includes those that were
// split from it.
func missingCaps(effective uint64) []string {
	has := func(bit uint) bool { return effective>>bit&1 == 1 }

	var missing []string

	for _, c := range []capability{{unix.CAP_BPF, "CAP_BPF"}, {unix.CAP_PERFMON, "CAP_PERFMON"}} {
		if !has(c.bit) && !has(unix.CAP_SYS_ADMIN) {
			missing = append(missing, c.name)
		}
	}

	if !has(unix.CAP_NET_ADMIN) {
		missing = append(missing, "CAP_NET_ADMIN")
	}

	return missing
}

// effectiveCaps returns the process's effective capabilities, one bit each.
func effectiveCaps() (uint64, error) {
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}

	var data [2]unix.CapUserData
	if err := unix.Capget(&hdr, &data[0]); err != nil {
		return 0, errors.Join(errors.New("capget"), err)
	}

	return uint64(data[1].Effective)<<32 | uint64(data[0].Effective), nil
}
