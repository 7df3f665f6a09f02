package daemon

import (
	"os"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// timerSlack is the permitted delay of the threads' timers, see PR_SET_TIMERSLACK in prctl(2).
// Linux's default is 50 µs.
const timerSlack = time.Millisecond

// CoarseTimers permits the kernel to delay this process's timers, none of which needs precision.
// Go's sysmon thread sleeps for only 20 µs at a time while the program works; under light load that
// was a sixth of a daemon's CPU time. Threads inherit the slack from their creator, and the runtime
// starts threads before main. So CoarseTimers executes the program again, with the same process ID,
// arguments and open files. Call it first in main. If the kernel refuses, the process continues
// unchanged.
func CoarseTimers() {
	runtime.LockOSThread() // exec keeps the slack of the calling thread

	defer runtime.UnlockOSThread()

	now, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	if err != nil || now == 0 || now >= int(timerSlack) { // 0: a real-time thread, which has no slack
		return
	}

	self, err := os.Executable()
	if err != nil || unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(timerSlack), 0, 0, 0) != nil {
		return
	}

	_ = syscall.Exec(self, os.Args, os.Environ()) // on failure only this thread's timers are coarse
}
