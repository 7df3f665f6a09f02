package daemon

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sys/unix"
)

// ErrDetached is returned by Start when the background process does the work.
var ErrDetached = errors.New("runs in the background")

// Process is a started daemon. Its methods are safe for concurrent use.
type Process struct {
	pidfile  *PIDFile
	up       *os.File // nil in the foreground
	isUp     sync.Once
	hasEnded sync.Once

	untilReady bool // the parent waits for readiness
	ended      chan struct{}

	mu      sync.Mutex        // guards missing
	missing map[string]string // by part
}

// Start applies the options. Without --detach, and in the background process, it returns a Process.
// With --detach it starts the background process with the same arguments. It returns ErrDetached
// when that is up, or the error with which it has ended.
func (o *Options) Start(ctx context.Context) (*Process, error) {
	until := os.Getenv(insideEnv)
	if o.Detach && until == "" {
		dir := "/"
		if o.NoChdir {
			dir = ""
		}

		return nil, Spawn(ctx, Background{Args: os.Args, Dir: dir})
	}

	p := &Process{missing: map[string]string{}, untilReady: until == untilReady, ended: make(chan struct{})}
	if until != "" {
		if err := os.Unsetenv(insideEnv); err != nil { // child processes must not inherit it
			return nil, err
		}

		unix.CloseOnExec(upFD)
		p.up = os.NewFile(upFD, "up")
	}

	if o.PIDFile != "" {
		var err error
		if p.pidfile, err = WritePIDFile(o.PIDFile, o.Overwrite); err != nil {
			return nil, err
		}
	}

	return p, nil
}

// goUp ends the wait of the parent of --detach, and redirects standard input, output and error to
// /dev/null.
func (p *Process) goUp() {
	p.isUp.Do(func() {
		if p.up == nil {
			return
		}

		null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
		if err == nil {
			for fd := range 3 {
				_ = unix.Dup3(int(null.Fd()), fd, 0) // on failure the terminal stays open, which does no harm
			}

			null.Close()
		}

		p.notifyParent(up)
		p.up.Close()
	})
}

// notifyParent sends a line to the waiting parent, if any.
func (p *Process) notifyParent(line string) {
	if p.up != nil {
		_, _ = fmt.Fprintln(p.up, line)
	}
}

// Expect adds a part that must become ready. All parts must be added before any reports progress.
func (p *Process) Expect(part string) {
	p.mu.Lock()
	defer p.mu.Unlock()

	p.missing[part] = "not begun"
}

// Follow polls what a part still lacks ("" for nothing), now and until End, and reports it as
// Progress.
func (p *Process) Follow(part string, missing func() string) {
	const every = 500 * time.Millisecond
	go func() {
		ticker := time.NewTicker(every)
		defer ticker.Stop()

		for last, first := "", true; ; first = false {
			if now := missing(); first || now != last {
				last = now
				p.Progress(part, now)
			}

			select {
			case <-p.ended:
				return
			case <-ticker.C:
			}
		}
	}()
}

// Progress reports what a part still lacks, "" for nothing. The first call marks the daemon as up.
// Systemd gets READY once no part lacks anything, and otherwise a status of what is missing.
func (p *Process) Progress(part, missing string) {
	p.mu.Lock()
	p.missing[part] = missing

	var all []string

	for _, name := range slices.Sorted(maps.Keys(p.missing)) {
		if text := p.missing[name]; text != "" {
			all = append(all, strings.TrimPrefix(name+": "+text, ": "))
		}
	}
	p.mu.Unlock()

	waits := strings.ReplaceAll(strings.Join(all, "; "), "\n", "; ")
	if len(all) == 0 || !p.untilReady {
		p.goUp()
	} else {
		p.notifyParent(waits)
	}

	if len(all) == 0 {
		notify(daemon.SdNotifyReady + "\nSTATUS=ready")
		return
	}

	notify("STATUS=waits for " + waits)
}

// End removes the pid file.
func (p *Process) End() {
	p.hasEnded.Do(func() {
		close(p.ended)
		notify(daemon.SdNotifyStopping)
		p.pidfile.Remove()
	})
}

// notify sends a state to systemd, if systemd has started this process. Errors are ignored, as this
// process cannot repair them.
func notify(state string) { _, _ = daemon.SdNotify(false, state) }
