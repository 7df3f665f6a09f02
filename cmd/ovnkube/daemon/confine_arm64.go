package daemon

import "golang.org/x/sys/unix"

// auditArch is this architecture's, which has one set of numbers.
const auditArch, foreignNumbers = unix.AUDIT_ARCH_AARCH64, 1 << 31

// deniedHere are those calls of denied that only this architecture has.
var deniedHere []uintptr
