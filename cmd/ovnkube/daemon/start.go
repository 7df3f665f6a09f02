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

// Process is a started daemon. Its parts, such as controller and agent, report what they lack. The
// parent of --detach waits until the process is up or ready, and systemd gets the same progress.
// The methods are safe for concurrent use.
type Process struct {
	pidfile *PIDFile

	parent        *os.File  // pipe to the parent that waits; nil in the foreground
	release       sync.Once // of the parent
	waitsForReady bool      // the parent waits until the process is ready, not only until it is up

	end   sync.Once
	ended chan struct{} // closed by End

	mu      sync.Mutex        // guards missing
	missing map[string]string // by part; "" if the part is ready
}

// Start applies the options. Without --detach, and in the background process, it returns a Process.
// With --detach it starts the background process with the same arguments, and returns ErrDetached
// when that process is up, or the error with which that process has ended.
func (o *Options) Start(ctx context.Context) (*Process, error) {
	parentWaits := os.Getenv(backgroundEnv) // "" in the foreground
	if o.Detach && parentWaits == "" {
		dir := "/"
		if o.NoChdir {
			dir = ""
		}

		return nil, Spawn(ctx, Background{Args: os.Args, Dir: dir})
	}

	p := &Process{
		missing:       map[string]string{},
		waitsForReady: parentWaits == waitUntilReady,
		ended:         make(chan struct{}),
	}
	if parentWaits != "" {
		if err := os.Unsetenv(backgroundEnv); err != nil { // child processes must not inherit it
			return nil, err
		}

		unix.CloseOnExec(parentFD)
		p.parent = os.NewFile(parentFD, "parent")
	}

	if o.PIDFile != "" {
		var err error
		if p.pidfile, err = WritePIDFile(o.PIDFile, o.Overwrite); err != nil {
			return nil, err
		}
	}

	return p, nil
}

// releaseParent ends the wait of the parent of --detach, once. It redirects standard input, output
// and error to /dev/null.
func (p *Process) releaseParent() {
	p.release.Do(func() {
		if p.parent == nil {
			return
		}

		null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
		if err == nil {
			for fd := range 3 {
				_ = unix.Dup3(int(null.Fd()), fd, 0) // on failure the terminal stays open, which does no harm
			}

			null.Close()
		}

		p.notifyParent(isUpLine)
		p.parent.Close()
	})
}

// notifyParent sends a line to the waiting parent, if any. Errors are ignored: a parent that has
// ended does not wait.
func (p *Process) notifyParent(line string) {
	if p.parent != nil {
		_, _ = fmt.Fprintln(p.parent, line)
	}
}

// Expect adds a part that must become ready. All parts must be added before any reports progress.
func (p *Process) Expect(part string) {
	p.mu.Lock()
	defer p.mu.Unlock()

	p.missing[part] = "not begun"
}

// Follow reports what a part still lacks ("" for nothing) as Progress: once at the beginning, and
// after each change until End. It polls missing in a goroutine.
func (p *Process) Follow(part string, missing func() string) {
	const interval = 500 * time.Millisecond

	go func() {
		ticker := time.NewTicker(interval)
		defer ticker.Stop()

		reported := missing()
		p.Progress(part, reported)

		for {
			select {
			case <-p.ended:
				return
			case <-ticker.C:
			}

			if text := missing(); text != reported {
				reported = text
				p.Progress(part, text)
			}
		}
	}()
}

// Progress reports what a part still lacks, "" for nothing. The first call marks the daemon as up.
// systemd gets READY=1 if no part lacks anything, and otherwise a status with what is missing.
func (p *Process) Progress(part, missing string) {
	p.mu.Lock()
	p.missing[part] = missing

	var lacks []string

	for _, name := range slices.Sorted(maps.Keys(p.missing)) {
		if text := p.missing[name]; text != "" {
			lacks = append(lacks, strings.TrimPrefix(name+": "+text, ": ")) // a lone part has the name ""
		}
	}
	p.mu.Unlock()

	// One line, because the parent reads lines, and so does systemd.
	text := strings.ReplaceAll(strings.Join(lacks, "; "), "\n", "; ")
	if len(lacks) == 0 || !p.waitsForReady {
		p.releaseParent()
	} else {
		p.notifyParent(text)
	}

	if len(lacks) == 0 {
		notify(daemon.SdNotifyReady + "\nSTATUS=ready")
		return
	}

	notify("STATUS=waits for " + text)
}

// End ends Follow and removes the pid file. The process must not report anything afterwards.
func (p *Process) End() {
	p.end.Do(func() {
		close(p.ended)
		notify(daemon.SdNotifyStopping)
		p.pidfile.Remove()
	})
}

// notify sends a state to systemd, if systemd has started this process. Errors are ignored, as this
// process cannot repair them.
func notify(state string) { _, _ = daemon.SdNotify(false, state) }
