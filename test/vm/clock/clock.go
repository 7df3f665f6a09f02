// Package clock lets a program wait until a machine that has just booted is old enough for
// ovs-vswitchd.
package clock

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// enough is the age at which ovs-vswitchd may start. Version 3.1 on the kernel datapath, started
// within 10 s of boot, never gets an upcall handler, reports no error, and loses every packet that
// misses the flow table. A time namespace with an older clock is no remedy: the kernel's times of
// use are not in it, so ovs-vswitchd takes every flow for idle and deletes all of them twice a
// second.
const enough = 13 * time.Second

// Await waits until CLOCK_MONOTONIC is old enough for ovs-vswitchd. On a machine that has been up
// for a while it returns at once.
func Await(ctx context.Context) error {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return fmt.Errorf("read monotonic clock: %w", err)
	}

	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(enough - time.Duration(now.Nano())):
		return nil
	}
}
