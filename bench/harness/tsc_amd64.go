package main

// tsc returns the time stamp counter. Under qemu's -icount shift=0 it counts the
// instructions that the CPU has executed.
func tsc() int64
