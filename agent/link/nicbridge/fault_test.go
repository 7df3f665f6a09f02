package nicbridge

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/agent/testnode"
)

// TestFailureAtEveryStep makes each change of a move fail. The former state is restored, and a
// connection of a peer survives.
func TestFailureAtEveryStep(t *testing.T) {
	r := newRig(t)
	r.opts.Watchdog = nil
	before := r.state(t)
	s := r.stream(t, "10.5.0.2")
	injected := errors.New("injected")

	for fail := 1; ; fail += stride() {
		step, last := 0, ""
		r.opts.hook = func(what string) error {
			if step++; step == fail {
				last = what
				return injected
			}

			return nil
		}

		err := Move(t.Context(), r.opts)
		if err == nil {
			t.Logf("%d changes", fail-1)
			break
		}

		if !errors.Is(err, injected) || strings.Contains(err.Error(), "restore") {
			t.Fatalf("step %d (%s): %v", fail, last, err)
		}

		r.same(t, fmt.Sprintf("step %d (%s) failed", fail, last), before)
	}

	r.opts.hook = nil
	if err := Restore(t.Context(), r.opts); err != nil {
		t.Fatal(err)
	}

	r.same(t, "restored", before)
	s.alive(t)
}

// TestKillAtEveryStep kills the mover before each change, forward and back. Its watchdog restores
// the NIC.
func TestKillAtEveryStep(t *testing.T) {
	r := newRig(t)
	before := r.state(t)

	for _, what := range []string{"restore", "move"} {
		for kill := 1; ; kill += stride() {
			if what == "restore" {
				r.opts.Watchdog = nil
				if err := Move(t.Context(), r.opts); err != nil {
					t.Fatal(err)
				}
			}

			if r.mover(t, what, kill) {
				t.Logf("%s: %d changes", what, kill-1)
				break
			}

			r.same(t, fmt.Sprintf("%s killed before change %d", what, kill), before)
			r.reachable(t)
		}
	}
}

// stride returns the step between the changes that a fault test covers. It is a prime number, so that
// it does not hit the same change of each device.
func stride() int {
	if testing.Short() {
		return 37
	}

	return 1
}

// mover runs a moving process and reports whether it ran to the end.
func (r *rig) mover(t *testing.T, what string, kill int) bool {
	t.Helper()

	cmd := exec.Command("/proc/self/exe", "mover", r.dir, what, strconv.Itoa(kill))
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	err := cmd.Run()

	exit := (*exec.ExitError)(nil)
	switch {
	case err == nil:
		return true
	case errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL:
		return false
	}

	t.Fatalf("%s, to be killed before change %d: %v", what, kill, err)

	return false
}

// TestCrashWithoutWatchdog leaves a half-moved NIC, which the next start undoes.
func TestCrashWithoutWatchdog(t *testing.T) {
	r := newRig(t)
	before := r.state(t)
	stopped := errors.New("stopped")
	r.opts.Watchdog = nil
	r.opts.hook = func(what string) error {
		if what == "set ipv6/disable_ipv6 of "+nicName+" to 1" {
			panic(stopped)
		}

		return nil
	}

	func() {
		defer func() {
			if err, ok := recover().(error); !ok || !errors.Is(err, stopped) {
				t.Fatalf("stopped by %v", err)
			}
		}()

		_ = Move(t.Context(), r.opts)
	}()

	r.opts.hook = nil
	if s, err := Load(r.dir, nicName); err != nil || s.Phase != Moving {
		t.Fatalf("snapshot %+v, error %v; want a move that has not ended", s, err)
	}

	if done, err := Recover(t.Context(), r.opts); err != nil || !done {
		t.Fatalf("recovered %t, error %v", done, err)
	}

	r.same(t, "recovered", before)

	if done, err := Recover(t.Context(), r.opts); err != nil || done {
		t.Fatalf("recovered again %t, error %v", done, err)
	}
}

// TestGatewayFallsSilent stops the peer's answers after the move. The watchdog restores the NIC.
func TestGatewayFallsSilent(t *testing.T) {
	r := newRig(t)

	before := r.state(t)
	if err := Move(t.Context(), r.opts); err != nil {
		t.Fatal(err)
	}

	r.sw.KillVswitchd() // nothing passes between NIC and bridge any more,

	if kernelDatapath() {
		testnode.Run(t, "ovs-dpctl", "del-flows") // but for what the kernel knows
	}

	testnode.Eventually(t, "the watchdog restores", func() error {
		s, err := Load(r.dir, nicName)
		if err == nil && s.Phase != Restored {
			err = fmt.Errorf("phase %s", s.Phase)
		}

		return err
	})

	notBridge := func(l string) bool { return strings.Contains(l, bridgeName) } // no process is left to delete it
	if err := compare(before, slices.DeleteFunc(r.state(t), notBridge)); err != nil {
		t.Error(err)
	}

	r.reachable(t)
}
