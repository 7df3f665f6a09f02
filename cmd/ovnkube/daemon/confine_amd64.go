package daemon

import "golang.org/x/sys/unix"

// auditArch is this architecture's; numbers from foreignNumbers on are x32's calls.
const auditArch, foreignNumbers = unix.AUDIT_ARCH_X86_64, 0x40000000

// deniedHere are those calls of denied that only this architecture has.
var deniedHere = []uintptr{unix.SYS_IOPERM, unix.SYS_IOPL, unix.SYS_MODIFY_LDT, unix.SYS_USELIB, unix.SYS__SYSCTL}
