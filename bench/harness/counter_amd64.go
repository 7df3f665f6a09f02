package main

// markBegin starts counting in bench/stacks, if loaded.
func markBegin()

// markEnd stops counting.
func markEnd()

// markWrite makes it write its counts and reset them.
func markWrite()

// tsc returns the time stamp counter. With qemu's -icount shift=0 it is the number of executed
// instructions.
func tsc() int64
