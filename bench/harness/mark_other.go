//go:build !amd64

package main

// Marks are only there on amd64, which is what the test VM emulates.
func markBegin() {}
func markEnd()   {}
func markWrite() {}
