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

// The protocol between the parent and the process in the background. The parent sets the
// environment variable to the state for which it waits. The process writes lines to the file
// descriptor: each is what the process waits for, until isUpLine ends the parent's wait.
const (
	backgroundEnv  = "OVNKUBE_DETACHED"
	waitUntilUp    = "up"
	waitUntilReady = "ready"
	parentFD       = 3 // the first of ExtraFiles
	isUpLine       = "up"
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

	wait := waitUntilUp
	if b.UntilReady {
		wait = waitUntilReady
	}

	child := exec.Command("/proc/self/exe") // not bound to ctx, as it outlives the wait
	child.Args = b.Args
	child.Dir = b.Dir
	child.Stderr = os.Stderr

	child.Env = append(os.Environ(), backgroundEnv+"="+wait)
	child.ExtraFiles = []*os.File{write}
	child.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = child.Start()

	write.Close() // so that reading ends if the process ends

	if err != nil {
		return fmt.Errorf("start in the background: %w", err)
	}

	terminate := func() { _ = child.Process.Signal(syscall.SIGTERM) } // fails only if the process has ended
	keepRunning := context.AfterFunc(ctx, terminate)

	isUp := false
	for lines := bufio.NewScanner(read); !isUp && lines.Scan(); {
		isUp = lines.Text() == isUpLine
		if !isUp && b.Waiting != nil {
			b.Waiting(lines.Text())
		}
	}

	if hasTerminated := !keepRunning(); hasTerminated {
		return errors.Join(context.Cause(ctx), endedError(child.Wait()))
	}

	if isUp {
		return ErrDetached
	}

	if err := endedError(child.Wait()); err != nil {
		return err
	}

	return errors.New("the process in the background has ended")
}

// endedError returns the error for a process in the background that has failed; nil if it has not.
func endedError(err error) error {
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
		current, err := Running(pidfile)
		if err != nil || current != pid {
			return err
		}

		if !loop.Pause(ctx, poll) {
			return fmt.Errorf("process %d of %s does not end: %w", pid, pidfile, context.Cause(ctx))
		}
	}
}
