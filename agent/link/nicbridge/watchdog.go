package nicbridge

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"
)

// The watchdog is a process of its own, because the mover may be killed, or the host may lose its
// network and with it the operator's session. It starts before the first change (startWatchdog),
// and runs the command of Options.Watchdog, which calls Watch. Two pipes connect it with the mover.
// They share the snapshot, whose phase shows how far the mover is.

// Times and limits of the watchdog.
const (
	grace     = 5 * time.Second  // beyond the mover's own timeout
	probation = 10 * time.Second // after a successful move
	attempts  = 100              // to restore, one per second
)

// Descriptors that the watchdog inherits.
const (
	parentFD = 3 // reports end of file when the mover is dead
	readyFD  = 4 // written when the watchdog is watching
)

// startWatchdog starts the watchdog and returns when it is watching. The watchdog has its own
// session and survives this process. stop reports the end of the move to it. Without a command it
// does nothing.
func (m *mover) startWatchdog(ctx context.Context) (stop func(), err error) {
	if len(m.Watchdog) == 0 {
		return func() {}, nil
	}

	parent, alive, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start watchdog: %w", err)
	}

	ready, watching, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start watchdog: %w", err), parent.Close(), alive.Close())
	}
	defer ready.Close()

	file := filepath.Join(m.Dir, "nic-"+m.NIC+".watchdog.log")

	out, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start watchdog: %w", err),
			parent.Close(), alive.Close(), watching.Close())
	}

	seconds := strconv.Itoa(int((m.Timeout + grace) / time.Second))
	args := append(slices.Clone(m.Watchdog[1:]), m.Dir, m.NIC, seconds)
	cmd := exec.Command(m.Watchdog[0], args...)
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = out, out, []*os.File{parent, watching}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = cmd.Start()

	parent.Close()
	watching.Close()
	out.Close()

	if err != nil {
		alive.Close()
		return nil, fmt.Errorf("start watchdog %s: %w", m.Watchdog[0], err)
	}

	go func() { _ = cmd.Wait() }()

	if deadline, ok := ctx.Deadline(); ok {
		_ = ready.SetReadDeadline(deadline)
	}

	if _, err := ready.Read(make([]byte, 1)); err != nil {
		alive.Close()
		return nil, fmt.Errorf("start watchdog %s: see %s: %w", m.Watchdog[0], out.Name(), err)
	}

	return func() { alive.Close() }, nil
}

// Watch runs the watchdog's process. The command of Options.Watchdog calls it with the arguments
// that were appended: directory, NIC and the seconds that the mover has. It restores the NIC from
// the snapshot if the mover dies or is late. For ten seconds after a successful move, it also
// restores the NIC if all gateways stop answering. It calls dial, which connects to Open vSwitch,
// only when it restores.
func Watch(
	ctx context.Context,
	args []string,
	dial func(context.Context) (Switch, error),
	log *slog.Logger,
) error {
	if len(args) != 3 {
		return fmt.Errorf("check arguments of watchdog: %d, want directory, NIC and seconds", len(args))
	}

	seconds, err := strconv.Atoi(args[2])
	if err != nil {
		return fmt.Errorf("check arguments of watchdog: %w", err)
	}

	w := watchdog{dir: args[0], nic: args[1], dial: dial, log: log.With("nic", args[1])}
	parent, ready := os.NewFile(parentFD, "parent"), os.NewFile(readyFD, "ready")

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	// The context mover ends at the mover's deadline, or when the mover's end of the pipe is
	// closed.
	errLate := errors.New("the mover is late")

	mover, stop := context.WithTimeoutCause(ctx, time.Duration(seconds)*time.Second, errLate)
	defer stop()

	mover, end := context.WithCancelCause(mover)

	go func() {
		_, _ = io.Copy(io.Discard, parent)

		end(errors.New("the mover is dead"))
	}()

	if _, err := ready.Write([]byte{1}); err != nil {
		return fmt.Errorf("notify the mover: %w", err)
	}

	ready.Close()

	return w.run(ctx, mover)
}

// watchdog watches one move.
type watchdog struct {
	dir, nic string
	dial     func(context.Context) (Switch, error)
	log      *slog.Logger
}

// run returns when there is nothing left to watch. mover ends when the mover has ended or is late.
func (w *watchdog) run(ctx, mover context.Context) error {
	for {
		alive := mover.Err() == nil // checked first, so that a snapshot read after the mover's end is final

		s, err := Load(w.dir, w.nic)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		case s.Phase == Restored:
			return nil
		case alive:
		case s.Phase == Done:
			return w.watchGateways(ctx)
		default:
			w.log.Warn("restoring the NIC", "cause", context.Cause(mover), "phase", s.Phase)
			return w.restore(ctx, s)
		}

		_ = wait(mover, 5*poll) // the cause is handled above

		if err := ctx.Err(); err != nil {
			return nil
		}
	}
}

// watchGateways restores the NIC if the gateways stop answering soon after a successful move.
func (w *watchdog) watchGateways(ctx context.Context) error {
	trial, cancel := context.WithTimeout(ctx, probation)
	defer cancel()

	for wait(trial, time.Second) == nil {
		s, err := Load(w.dir, w.nic)
		if err != nil || s.Phase != Done {
			return err
		}

		if err := s.verify(ctx); err != nil {
			w.log.Warn("restoring the NIC", "cause", err)
			return w.restore(ctx, s)
		}
	}

	return nil
}

// restore restores the NIC, and retries after errors.
func (w *watchdog) restore(ctx context.Context, s *Snapshot) (err error) {
	for range attempts {
		if err = w.restoreOnce(ctx, s); err == nil {
			return nil
		}

		w.log.Error("cannot restore the NIC, trying again", "error", err)

		if wait(ctx, time.Second) != nil {
			break
		}
	}

	return err
}

// restoreOnce is one attempt of restore. It restores the kernel's part even if Open vSwitch cannot
// be reached.
func (w *watchdog) restoreOnce(ctx context.Context, s *Snapshot) error {
	ctx, cancel := context.WithTimeout(ctx, undoTimeout)
	defer cancel()

	sw, err := w.dial(ctx)
	if err != nil {
		w.log.Error("cannot reach OVS", "error", err)
		sw = unreachable{err}
	}

	o := Options{NIC: s.NIC, Bridge: s.Bridge, Dir: w.dir, Switch: sw, Log: w.log}
	if err := o.complete(); err != nil {
		return err
	}

	return (&mover{Options: o, snap: s}).restoreSnapshot(ctx)
}

// unreachable is the Switch of a restoration while Open vSwitch cannot be reached. All calls fail.
type unreachable struct{ err error }

func (u unreachable) AddBridge(context.Context, string, string, int) error { return u.err }
func (u unreachable) AddPort(context.Context, string, string) error        { return u.err }
func (u unreachable) Remove(context.Context, string, string) error         { return u.err }
