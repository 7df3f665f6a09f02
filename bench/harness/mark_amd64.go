package main

// markBegin lets bench/stacks, if it is there, count from here.
func markBegin()

// markEnd lets it count no further.
func markEnd()

// markWrite lets it write what it has counted, and begin anew.
func markWrite()
