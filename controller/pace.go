package controller

import (
	"os"
	"runtime"
)

// Pace returns what to give Config.Busy in a process that is the controller and nothing
// else: a calm controller has one processor (GOMAXPROCS, see package runtime), a busy one
// as many as there are. A trickle of changes is one goroutine's work after another's; a second
// processor is woken for each, finds little to do and sleeps again, for an eighth of the CPU
// that a change takes: compare bench/scale with GOMAXPROCS=2. GOMAXPROCS in the environment
// is left alone.
func Pace() func(busy bool) {
	if _, set := os.LookupEnv("GOMAXPROCS"); set {
		return nil
	}

	return func(busy bool) {
		if busy {
			runtime.SetDefaultGOMAXPROCS()
		} else {
			runtime.GOMAXPROCS(1)
		}
	}
}
