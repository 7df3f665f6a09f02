package daemon

import (
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Confine denies this process and its children the system calls that the daemons do not need
// (EPERM), by a seccomp filter for all threads. It cannot be undone. If a container runtime also
// sets a profile, the stricter result of both applies. permitModules permits loading kernel
// modules.
//
// A process with CAP_SYS_ADMIN keeps privileges gained by execve, such as SELinux domain
// transitions. Without that capability, a filter requires no_new_privs (seccomp(2)).
func Confine(permitModules bool) error {
	if auditArch == 0 {
		return fmt.Errorf("confine process: no filter for %s", runtime.GOARCH)
	}

	runtime.LockOSThread() // no_new_privs is per thread until the filter is applied to all threads

	defer runtime.UnlockOSThread()

	filter := filterProgram(deniedCalls(permitModules))

	err := install(filter)
	if errors.Is(err, unix.EACCES) {
		if err = unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err == nil {
			err = install(filter)
		}
	}

	if err != nil {
		return fmt.Errorf("confine process: %w", err)
	}

	return nil
}

// deniedCalls returns system calls that neither the daemons nor their child processes need, and
// that affect more than the network: other processes, the clock, the kernel itself.
func deniedCalls(permitModules bool) []uintptr {
	list := []uintptr{
		unix.SYS_ACCT,
		unix.SYS_ADD_KEY,
		unix.SYS_ADJTIMEX,
		unix.SYS_CHROOT,
		unix.SYS_CLOCK_ADJTIME,
		unix.SYS_CLOCK_SETTIME,
		unix.SYS_DELETE_MODULE,
		unix.SYS_FANOTIFY_INIT,
		unix.SYS_IO_URING_ENTER,
		unix.SYS_IO_URING_REGISTER,
		unix.SYS_IO_URING_SETUP,
		unix.SYS_KCMP,
		unix.SYS_KEXEC_FILE_LOAD,
		unix.SYS_KEXEC_LOAD,
		unix.SYS_KEYCTL,
		unix.SYS_LOOKUP_DCOOKIE,
		unix.SYS_MIGRATE_PAGES,
		unix.SYS_MOVE_PAGES,
		unix.SYS_NFSSERVCTL,
		unix.SYS_OPEN_BY_HANDLE_AT,
		unix.SYS_PERSONALITY,
		unix.SYS_PIDFD_GETFD,
		unix.SYS_PIVOT_ROOT,
		unix.SYS_PROCESS_VM_READV,
		unix.SYS_PROCESS_VM_WRITEV,
		unix.SYS_PTRACE,
		unix.SYS_QUOTACTL,
		unix.SYS_REBOOT,
		unix.SYS_REQUEST_KEY,
		unix.SYS_SETDOMAINNAME,
		unix.SYS_SETHOSTNAME,
		unix.SYS_SETTIMEOFDAY,
		unix.SYS_SWAPOFF,
		unix.SYS_SWAPON,
		unix.SYS_SYSLOG,
		unix.SYS_USERFAULTFD,
		unix.SYS_VHANGUP,
	}
	if !permitModules {
		list = append(list, unix.SYS_FINIT_MODULE, unix.SYS_INIT_MODULE)
	}

	return append(list, deniedHere...)
}

// filterProgram returns the filter as a classic BPF program (seccomp(2)). It denies the listed
// calls, and all calls of other architectures, which have different numbers:
//
//	if arch != auditArch: deny
//	if number >= foreignNumbers: deny
//	for each call: if number == call: deny
//	allow
func filterProgram(calls []uintptr) []unix.SockFilter {
	const number, arch = 0, 4 // offsets of the fields nr and arch in struct seccomp_data

	load := func(offset uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
	}
	exit := func(action uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: action}
	}
	deny := exit(unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM))
	// runNextIf skips the next instruction unless the comparison holds.
	runNextIf := func(operator uint16, k uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_K | operator, Jt: 0, Jf: 1, K: k}
	}

	out := []unix.SockFilter{
		load(arch),
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: 1, K: auditArch},
		deny,
		load(number),
		runNextIf(unix.BPF_JGE, foreignNumbers),
		deny,
	}
	for _, nr := range calls {
		out = append(out, runNextIf(unix.BPF_JEQ, uint32(nr)), deny)
	}

	return append(out, exit(unix.SECCOMP_RET_ALLOW))
}

// install applies the filter to all threads of the process.
func install(filter []unix.SockFilter) error {
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}

	thread, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER,
		unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&prog)))
	switch {
	case errno != 0:
		return errno
	case thread != 0:
		return fmt.Errorf("thread %d has a filter of its own", thread)
	}

	return nil
}
