package main

import "fmt"

// helper returns the file that the mutants call.
func helper(name string, mutants int) string {
	return fmt.Sprintf(`package %s

import (
	"os"
	"strconv"
	"sync/atomic"
)

var (
	mutantActive, _ = strconv.Atoi(os.Getenv("MUTANT"))
	mutantRecord    = os.Getenv("MUTANT_RECORD")
	mutantReached   [%d]atomic.Bool
)

// mutantIs reports whether the mutant is active. If asked to, it records that it was reached.
func mutantIs(id int) bool {
	if mutantRecord != "" && !mutantReached[id].Swap(true) {
		f, err := os.OpenFile(mutantRecord, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			panic(err)
		}
		if _, err := f.WriteString(strconv.Itoa(id) + "\n"); err != nil {
			panic(err)
		}
		f.Close()
	}
	return id == mutantActive
}

func mutantAnd(id int, a bool, b func() bool) bool {
	if mutantIs(id) {
		return a || b()
	}
	return a && b()
}

func mutantOr[T any](id int, a T, b func() T) T {
	if mutantIs(id) {
		return b()
	}
	return a
}
`, name, mutants+1)
}
