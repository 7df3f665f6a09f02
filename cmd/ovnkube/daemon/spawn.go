package daemon

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/loop"
)

// insideEnv marks the background process and tells how long the parent waits. The process writes to
// the descriptor a line for each thing that it waits for, and finally untilUp.
const (
	insideEnv  = "OVNKUBE_DETACHED"
	untilUp    = "up"
	untilReady = "ready"
	upFD       = 3
	up         = "up"
)

// Background describes a process to start in the background.
type Background struct {
	Args       []string // of this program, starting with its name
	Dir        string   // "": the current directory
	UntilReady bool     // wait until it is ready, not only until it is up

	// Waiting, if not nil, is called with what the process waits for, after each change.
	Waiting func(string)
}

// Spawn starts this program again, which calls Start. It returns ErrDetached when the process is
// up, or the error with which it has ended. Until then, both share standard error. If ctx ends, the
// process ends, too.
func Spawn(ctx context.Context, b Background) error {
	read, write, err := os.Pipe()
	if err != nil {
		return err
	}
	defer read.Close()

	until := untilUp
	if b.UntilReady {
		until = untilReady
	}

	child := exec.Command("/proc/self/exe") // not bound to ctx, as it outlives the wait
	child.Args, child.Dir, child.Stderr = b.Args, b.Dir, os.Stderr

	child.Env = append(os.Environ(), insideEnv+"="+until)
	child.ExtraFiles = []*os.File{write}
	child.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = child.Start()

	write.Close()

	if err != nil {
		return fmt.Errorf("start in the background: %w", err)
	}

	end := func() { _ = child.Process.Signal(syscall.SIGTERM) } // fails only after its end
	stop := context.AfterFunc(ctx, end)

	isUp := false
	for lines := bufio.NewScanner(read); !isUp && lines.Scan(); {
		isUp = lines.Text() == up
		if !isUp && b.Waiting != nil {
			b.Waiting(lines.Text())
		}
	}

	if !stop() {
		return errors.Join(context.Cause(ctx), ended(child.Wait()))
	}

	if isUp {
		return ErrDetached
	}

	if err := ended(child.Wait()); err != nil {
		return err
	}

	return errors.New("the process in the background has ended")
}

func ended(err error) error {
	if err != nil {
		return fmt.Errorf("the process in the background has ended: %w", err)
	}

	return nil
}

// Stop ends the process of a pid file, if any, and waits for its end.
func Stop(ctx context.Context, pidfile string) error {
	const poll = 50 * time.Millisecond

	pid, err := Running(pidfile)
	if err != nil || pid == 0 {
		return err
	}

	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("end process %d of %s: %w", pid, pidfile, err)
	}

	for {
		now, err := Running(pidfile)
		if err != nil || now != pid {
			return err
		}

		if !loop.Pause(ctx, poll) {
			return fmt.Errorf("process %d of %s does not end: %w", pid, pidfile, context.Cause(ctx))
		}
	}
}
