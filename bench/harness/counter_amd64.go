package main

// markBegin lets bench/stacks, if it is there, count from here.
func markBegin()

// markEnd lets it count no further.
func markEnd()

// markWrite lets it write what it has counted, and begin anew.
func markWrite()

// tsc returns the time stamp counter. Under qemu's -icount shift=0 it counts the
// instructions that the CPU has executed.
func tsc() int64
