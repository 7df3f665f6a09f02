package daemon

import "golang.org/x/sys/unix"

// auditArch is the native architecture, which has one set of numbers.
const auditArch, foreignNumbers = unix.AUDIT_ARCH_AARCH64, 1 << 31

// deniedHere are denied calls that only this architecture has.
var deniedHere []uintptr
