package daemon

import "golang.org/x/sys/unix"

// auditArch is the native architecture; numbers from foreignNumbers on are calls of x32.
const auditArch, foreignNumbers = unix.AUDIT_ARCH_X86_64, 0x40000000

// deniedHere are denied calls that only this architecture has.
var deniedHere = []uintptr{
	unix.SYS_IOPERM,
	unix.SYS_IOPL,
	unix.SYS_MODIFY_LDT,
	unix.SYS_USELIB,
	unix.SYS__SYSCTL,
}
