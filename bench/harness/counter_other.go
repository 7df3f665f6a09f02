//go:build !amd64

package main

// Marks exist only on amd64, the architecture of the test VM.
func markBegin() {}
func markEnd()   {}
func markWrite() {}

// tsc exists only on amd64, the architecture of the test VM.
func tsc() int64 { panic("harness: no instruction counter on this architecture") }
