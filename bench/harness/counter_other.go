//go:build !amd64

package main

// Marks are only there on amd64, which is what the test VM emulates.
func markBegin() {}
func markEnd()   {}
func markWrite() {}

// tsc is only there on amd64, which is what the test VM emulates.
func tsc() int64 { panic("harness: no instruction counter on this architecture") }
