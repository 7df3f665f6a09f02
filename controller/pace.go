package controller

import (
	"os"
	"runtime"
)

// Pace returns a function for Config.Busy, for processes that run nothing but the controller. It
// limits a calm controller to one processor (GOMAXPROCS, see package runtime), and lets a busy one
// use all. If the environment sets GOMAXPROCS, Pace returns nil.
//
// A single change passes from one goroutine to the next. With two processors, each step wakes the
// second one, which finds little to do and sleeps again. That takes an eighth of a change's CPU
// time (bench/scale with GOMAXPROCS=2).
func Pace() func(busy bool) {
	if _, isSet := os.LookupEnv("GOMAXPROCS"); isSet {
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
