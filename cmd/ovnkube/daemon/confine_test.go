package daemon

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestConfine checks the filter in every thread of a confined process and in a child process, as
// root and as a user without capabilities. Denied calls fail, other calls work.
func TestConfine(t *testing.T) {
	for _, who := range []string{"root", "nobody"} {
		for _, modules := range []string{"modules", "no-modules"} {
			t.Run(who+" "+modules, func(t *testing.T) {
				cmd := exec.Command("/proc/self/exe")

				cmd.Env = append(os.Environ(), testDaemon+"=confined "+who+" "+modules)
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Errorf("%v\n%s", err, out)
				}
			})
		}
	}
}

// confinedMain is a daemon that confines itself and checks the result.
func confinedMain(who, modules string) error {
	stop := make(chan struct{})
	defer close(stop)

	for range 4 { // threads that exist before
		ready := make(chan struct{})

		go func() {
			r, w, err := os.Pipe()
			if err != nil {
				panic(err)
			}

			close(ready)

			go func() { <-stop; _ = w.Close() }()

			_, _ = unix.Read(int(r.Fd()), make([]byte, 1)) // a blocking call keeps a thread
		}()

		<-ready
	}

	if who == "nobody" {
		if err := errors.Join(unix.Setgroups(nil), unix.Setresgid(65534, 65534, 65534), unix.Setresuid(65534, 65534, 65534)); err != nil {
			return err
		}
	}

	if err := Confine(modules == "modules"); err != nil {
		return err
	}

	statuses, err := filepath.Glob("/proc/self/task/*/status")
	if err != nil || len(statuses) < 4 {
		return fmt.Errorf("threads %v, %w", statuses, err)
	}

	for _, path := range statuses {
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}

		if err := confinedStatus(string(b), who == "nobody"); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}

	out, err := exec.Command("cat", "/proc/self/status").Output()
	if err != nil {
		return err
	}

	if err := confinedStatus(string(out), who == "nobody"); err != nil {
		return fmt.Errorf("a program that it starts: %w", err)
	}

	return tryDenied(modules == "modules")
}

func confinedStatus(status string, noNewPrivs bool) error {
	want := []string{"Seccomp:\t2\n"}
	if noNewPrivs {
		want = append(want, "NoNewPrivs:\t1\n")
	} else {
		want = append(want, "NoNewPrivs:\t0\n")
	}

	for _, line := range want {
		if !strings.Contains(status, line) {
			return fmt.Errorf("no %q in\n%s", line, status)
		}
	}

	return nil
}

// tryDenied makes each call with invalid arguments, which do no harm if the filter fails.
func tryDenied(modules bool) error {
	const none = ^uintptr(0)

	var errs []error

	list := deniedCalls(modules)
	for _, nr := range list {
		if _, _, errno := unix.Syscall6(nr, none, none, none, none, none, none); errno != unix.EPERM {
			errs = append(errs, fmt.Errorf("call %d: %w, want it denied", nr, errno))
		}
	}

	if slices.Contains(list, unix.SYS_INIT_MODULE) == modules || len(list) < 37 {
		errs = append(errs, fmt.Errorf("modules %t: %d calls", modules, len(list)))
	}
	// x32 has other numbers, denied as a whole.
	if _, _, errno := unix.Syscall(foreignNumbers|unix.SYS_GETPID, 0, 0, 0); errno != unix.EPERM {
		errs = append(errs, fmt.Errorf("a foreign call: %w", errno))
	}

	return errors.Join(errs...)
}
