package process

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ovn-ebpf/ovn-ebpf/test/lab/netns"
)

// Spec is a daemon to start.
type Spec struct {
	Argv   []string
	Env    []string // in addition to the caller's
	Netns  string   // name under /run/netns; "": that of the caller
	Log    string   // file for both outputs, appended to; "" discards them
	Record string   // file that records the process; "": none
	Nice   int      // scheduling priority
	// Tethered daemons are killed when the caller ends.
	Tethered bool
}

// Process is a process started now or earlier. PID and Start together are unique until the next
// boot.
type Process struct {
	PID   int
	Start uint64 // clock ticks after boot, field 22 of /proc/<pid>/stat
	log   string
	done  chan struct{} // closed when this program has reaped its child; nil for other processes
	code  int           // its exit status, once done is closed
}

// Start runs the daemon in a new session, without waiting for readiness.
func Start(s Spec) (*Process, error) {
	name := filepath.Base(s.Argv[0])

	argv := s.Argv
	if s.Nice != 0 {
		argv = append([]string{"nice", "-n", strconv.Itoa(s.Nice)}, argv...) // the same PID
	}

	if s.Netns != "" {
		// nsenter, not `ip netns exec`: the latter remounts /sys and so hides bpffs. nsenter executes the
		// program under the same PID.
		argv = append([]string{"nsenter", "--net=" + netns.Path(s.Netns), "--"}, argv...)
	}

	cmd := exec.Command(argv[0], argv[1:]...)

	cmd.Env = append(os.Environ(), s.Env...)

	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if s.Tethered {
		cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	}

	if s.Log != "" {
		f, err := os.OpenFile(s.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		if err != nil {
			return nil, fmt.Errorf("start %s: %w", name, err)
		}
		defer f.Close()

		cmd.Stdout, cmd.Stderr = f, f
	}

	p := &Process{log: s.Log, done: make(chan struct{})}

	started := make(chan error)
	go p.run(cmd, s.Tethered, started)

	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}

	if s.Record != "" {
		if err := p.write(s); err != nil {
			return nil, errors.Join(fmt.Errorf("record %s: %w", name, err), p.Stop(0))
		}
	}

	return p, nil
}

// run starts the command, reports the start, and reaps it. The kernel kills a tethered process when
// the forking thread ends, so run keeps that thread.
func (p *Process) run(cmd *exec.Cmd, tethered bool, started chan<- error) {
	if tethered {
		runtime.LockOSThread()

		defer runtime.UnlockOSThread()
	}

	if err := cmd.Start(); err != nil {
		started <- err
		return
	}

	p.PID = cmd.Process.Pid
	st, err := readStat(p.PID) // it exists until it is reaped, even after its end
	p.Start = st.start

	started <- err

	_ = cmd.Wait() // the daemon's log has the reason of its end
	p.code = cmd.ProcessState.ExitCode()
	close(p.done)
}

// write writes the record: one line that identifies the process, and one with its specification.
func (p *Process) write(s Spec) error {
	spec, err := json.Marshal(s)
	if err != nil {
		return err
	}

	tmp := s.Record + ".tmp"
	if err := os.WriteFile(tmp, fmt.Appendf(nil, "%d %d %s\n%s\n", p.PID, p.Start, p.log, spec), 0o644); err != nil {
		return err
	}

	return os.Rename(tmp, s.Record)
}

// Again restarts a recorded process. It fails while that one runs.
func Again(record string) (*Process, error) {
	p, err := Load(record)
	if err != nil {
		return nil, err
	}

	if p.Alive() {
		return nil, fmt.Errorf("start process again: it runs, as %d", p.PID)
	}

	b, err := os.ReadFile(record)
	if err != nil {
		return nil, fmt.Errorf("start process again: %w", err)
	}

	_, line, _ := strings.Cut(string(b), "\n")

	var s Spec
	if err := json.Unmarshal([]byte(line), &s); err != nil {
		return nil, fmt.Errorf("start process again: %s: %w", record, err)
	}

	return Start(s)
}

// Load reads a record of Start. The process may have ended.
func Load(record string) (*Process, error) {
	b, err := os.ReadFile(record)
	if err != nil {
		return nil, fmt.Errorf("load process: %w", err)
	}

	p := &Process{}
	line, _, _ := strings.Cut(string(b), "\n")

	fields := strings.SplitN(strings.TrimSpace(line), " ", 3)
	if len(fields) < 2 {
		return nil, fmt.Errorf("load process: %s: %q is not a record", record, b)
	}

	p.PID, err = strconv.Atoi(fields[0])
	if err == nil {
		p.Start, err = strconv.ParseUint(fields[1], 10, 64)
	}

	if err != nil {
		return nil, fmt.Errorf("load process: %s: %w", record, err)
	}

	if len(fields) == 3 {
		p.log = fields[2]
	}

	return p, nil
}

// Find returns the running process with this ID.
func Find(pid int) (*Process, error) {
	st, err := readStat(pid)
	if err != nil {
		return nil, err
	}

	return &Process{PID: pid, Start: st.start}, nil
}

// Alive reports whether the process runs; a zombie does not.
func (p *Process) Alive() bool {
	st, err := readStat(p.PID)
	return err == nil && st.start == p.Start && !st.ended()
}

// Locate returns a running process under the ID that it has here. For one that started in a PID
// namespace below, that is another ID than the recorded one.
func (p *Process) Locate() (*Process, bool) {
	if p.Alive() {
		return p, true
	}

	dirs, err := os.ReadDir("/proc")
	if err != nil {
		return nil, false
	}

	for _, d := range dirs {
		pid, err := strconv.Atoi(d.Name())
		if err != nil {
			continue
		}

		st, err := readStat(pid) // fails if it has ended
		if err == nil && st.start == p.Start && !st.ended() && innermost(pid) == p.PID {
			return &Process{PID: pid, Start: st.start}, true
		}
	}

	return nil, false
}

// innermost returns the ID of the process in its own PID namespace, or 0.
func innermost(pid int) int {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}

	_, rest, _ := strings.Cut(string(b), "\nNSpid:")
	line, _, _ := strings.Cut(rest, "\n")

	ids := strings.Fields(line)
	if len(ids) == 0 {
		return 0
	}

	inner, _ := strconv.Atoi(ids[len(ids)-1]) // 0 if the kernel's format is unknown

	return inner
}

// Signal sends sig to the process and its group. It succeeds if the process has ended.
func (p *Process) Signal(sig syscall.Signal) error {
	fd, err := p.open()
	if err != nil || fd < 0 {
		return err
	}
	defer closeFD(fd)

	return p.signal(fd, sig)
}

// signal signals the process by its descriptor, and its group, whose ID is reliable only until the
// leader is reaped.
func (p *Process) signal(fd int, sig syscall.Signal) error {
	if st, err := readStat(p.PID); err == nil && st.start == p.Start && st.group == p.PID {
		if err := unix.Kill(-p.PID, sig); err == nil || errors.Is(err, unix.ESRCH) {
			return nil
		}
	}

	if err := unix.PidfdSendSignal(fd, sig, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("signal process %d: %w", p.PID, err)
	}

	return nil
}

// open returns a descriptor that identifies only this process, or -1 when it has ended.
func (p *Process) open() (int, error) {
	fd, err := unix.PidfdOpen(p.PID, 0)
	if errors.Is(err, unix.ESRCH) {
		return -1, nil
	}

	if err != nil {
		return -1, fmt.Errorf("open process %d: %w", p.PID, err)
	}
	// Checked after opening: from now on the PID cannot be reused.
	if !p.Alive() {
		closeFD(fd)
		return -1, nil
	}

	return fd, nil
}

func closeFD(fd int) { _ = unix.Close(fd) } // a pidfd has nothing to flush

// Stop ends the process and its group: SIGTERM, and SIGKILL after grace, or at once if grace is 0.
// It waits for the end of the process.
func (p *Process) Stop(grace time.Duration) error {
	fd, err := p.open()
	if err != nil || fd < 0 {
		return err
	}
	defer closeFD(fd)

	if grace > 0 {
		if err := p.signal(fd, unix.SIGTERM); err != nil {
			return err
		}

		if ended(fd, grace) {
			return p.reaped()
		}
	}

	if err := p.signal(fd, unix.SIGKILL); err != nil {
		return err
	}

	if !ended(fd, time.Minute) {
		return fmt.Errorf("stop process %d: it survives SIGKILL", p.PID)
	}

	p.groupEnded(time.Minute)

	return p.reaped()
}

// groupEnded waits until the process group is empty, or for the limit: a daemon without its monitor
// still holds its pid file, and the next one would refuse to start.
func (p *Process) groupEnded(limit time.Duration) {
	const poll = 5 * time.Millisecond
	for end := time.Now().Add(limit); time.Now().Before(end) && others(p.PID); time.Sleep(poll) {
	}
}

// others reports whether processes of a group without its leader still run.
func others(group int) bool {
	dirs, err := os.ReadDir("/proc")
	if err != nil {
		return false
	}

	for _, d := range dirs {
		pid, err := strconv.Atoi(d.Name())
		if err != nil || pid == group {
			continue
		}

		st, err := readStat(pid) // fails if it has ended
		if err == nil && st.group == group && !st.ended() {
			return true
		}
	}

	return false
}

func (p *Process) reaped() error {
	if p.done != nil {
		<-p.done
	}

	return nil
}

// ended waits until the process behind fd has ended, or for the limit.
func ended(fd int, limit time.Duration) bool {
	deadline := time.Now().Add(limit)
	for {
		left := max(0, time.Until(deadline))

		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(left.Milliseconds()))
		if errors.Is(err, unix.EINTR) {
			continue
		}

		return err == nil && n > 0
	}
}

// Wait waits for the end of the process and returns its exit status: -1 after a signal, or for a
// process that is not this program's child.
func (p *Process) Wait(ctx context.Context) (int, error) {
	if p.done != nil {
		select {
		case <-p.done:
			return p.code, nil
		case <-ctx.Done():
			return -1, context.Cause(ctx)
		}
	}

	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()

	for p.Alive() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return -1, context.Cause(ctx)
		}
	}

	return -1, nil
}

// Await calls ready until it returns nil. It gives up when the process or ctx ends; the error then
// holds the end of the process's log.
func (p *Process) Await(ctx context.Context, name string, ready func() error) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()

	for {
		err := ready()
		if err == nil {
			return nil
		}

		if !p.Alive() {
			return fmt.Errorf("start %s: it ended; its log %s ends: %s", name, p.log, Tail(p.log))
		}

		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w (last: %w)", name, context.Cause(ctx), err)
		case <-tick.C:
		}
	}
}

// Tail returns the last lines of a log, joined to one line.
func Tail(file string) string {
	f, err := os.Open(file)
	if err != nil {
		return err.Error()
	}
	defer f.Close()

	st, err := f.Stat()
	if err != nil {
		return err.Error()
	}

	const most = 2000

	b, err := io.ReadAll(io.NewSectionReader(f, max(0, st.Size()-most), most))
	if err != nil {
		return err.Error()
	}

	lines := strings.Split(strings.TrimSpace(string(b)), "\n")

	return strings.Join(lines[max(0, len(lines)-5):], " | ")
}
