package clock

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestAwait holds that the machine is old enough after it, also where the test is the first program
// after boot (test/vm/suite).
func TestAwait(t *testing.T) {
	if err := Await(t.Context()); err != nil {
		t.Fatal(err)
	}

	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		t.Fatal(err)
	}

	if age := time.Duration(now.Nano()); age < 10*time.Second {
		t.Errorf("the machine is %s old", age)
	}
}
