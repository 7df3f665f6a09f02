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

// ErrDetached is what Start returns where the work goes on in the background.
var ErrDetached = errors.New("runs in the background")

// Process is a daemon that has begun. Its methods may be called from any goroutine.
type Process struct {
	pidfile  *PIDFile
	up       *os.File // nil in the foreground
	isUp     sync.Once
	hasEnded sync.Once

	untilReady bool // whoever waits, waits for that
	ended      chan struct{}

	mu      sync.Mutex        // guards missing
	missing map[string]string // by part
}

// Start does what the options ask for. Without --detach, and in the process in the
// background, it returns that Process. With it, it starts the background process with our
// arguments and returns ErrDetached when that is up, or an error if it ends before.
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
		if err := os.Unsetenv(insideEnv); err != nil { // a child of ours is none of it
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

// goUp lets whoever waits for --detach go on; standard input, output and error are none
// from here.
func (p *Process) goUp() {
	p.isUp.Do(func() {
		if p.up == nil {
			return
		}
		null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
		if err == nil {
			for fd := range 3 {
				_ = unix.Dup3(int(null.Fd()), fd, 0) // what stays open is the terminal, which does no harm
			}
			null.Close()
		}
		p.say(up)
		p.up.Close()
	})
}

// say tells a line to whoever waits. Nobody does any more: nothing to tell.
func (p *Process) say(line string) {
	if p.up != nil {
		_, _ = fmt.Fprintln(p.up, line)
	}
}

// Expect adds a part that must be ready before the whole is. All are expected before
// any makes progress.
func (p *Process) Expect(part string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.missing[part] = "not begun"
}

// Follow asks what a part still misses, "" for nothing, now and until End, and tells its
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

// Progress says what a part still misses, "" for nothing. With the first of them the
// daemon is up. Systemd is told that it is ready once all miss nothing, and at any time
// what they miss.
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
		p.say(waits)
	}
	if len(all) == 0 {
		notify(daemon.SdNotifyReady + "\nSTATUS=ready")
		return
	}
	notify("STATUS=waits for " + waits)
}

// End takes the pid file away.
func (p *Process) End() {
	p.hasEnded.Do(func() {
		close(p.ended)
		notify(daemon.SdNotifyStopping)
		p.pidfile.Remove()
	})
}

// notify is for systemd where it has started us, else nothing. That it does not
// listen is not ours to mend.
func notify(state string) { _, _ = daemon.SdNotify(false, state) }
