package daemon

import (
	"os"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// timerSlack is how much later than asked for a daemon's threads may wake, see
// PR_SET_TIMERSLACK in prctl(2). Linux's default is 50 µs.
const timerSlack = time.Millisecond

// CoarseTimers lets the kernel be later with this process's timers, of which none needs better. A
// thread of Go's runtime (sysmon) sleeps for 20 µs at a time while anything runs; under a trickle
// of work that is a sixth of the CPU that a daemon takes. A thread has its slack from the one that
// started it, and that one runs before any of our code: so the program is executed once more, with
// the same process ID, arguments and open files. Call it first in main. Where it is refused, the
// process goes on as it is.
func CoarseTimers() {
	runtime.LockOSThread() // who has the slack is who executes
	defer runtime.UnlockOSThread()
	now, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	if err != nil || now == 0 || now >= int(timerSlack) { // 0: a real-time thread, which has none
		return
	}
	self, err := os.Executable()
	if err != nil || unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(timerSlack), 0, 0, 0) != nil {
		return
	}
	_ = syscall.Exec(self, os.Args, os.Environ()) // refused: this thread's timers are late, which does no harm
}
