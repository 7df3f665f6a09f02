package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/test/lab/traffic"
)

// background is a command that runs during other steps of a test.
type background struct {
	name     string
	cmd      *exec.Cmd
	out, err bytes.Buffer
	done     chan struct{} // closed at the command's end
	failed   error         // valid after done
}

// run starts a command on a lab host and kills it at the end of the test.
func (c *Cluster) run(t *testing.T, name, on string, argv ...string) *background {
	t.Helper()

	cmd, err := c.Command(t.Context(), on, argv...)
	if err != nil {
		t.Fatal(err)
	}

	b := &background{name: name, cmd: cmd, done: make(chan struct{})}

	cmd.Stdout, cmd.Stderr = &b.out, &b.err

	if err := cmd.Start(); err != nil {
		t.Fatalf("start %s: %v", name, err)
	}
	go func() {
		b.failed = cmd.Wait()
		close(b.done)
	}()

	return b
}

// wait returns the command's output, and fails the test if the command failed.
func (b *background) wait(t *testing.T) string {
	t.Helper()
	<-b.done

	if b.failed != nil {
		t.Errorf("%s: %v: %s%s", b.name, b.failed, b.out.String(), b.err.String())
	}

	return b.out.String()
}

// ended reports whether the command has ended.
func (b *background) ended() bool {
	select {
	case <-b.done:
		return true
	default:
		return false
	}
}

// stop interrupts the command, so that it prints its report.
func (b *background) stop(t *testing.T) {
	t.Helper()

	if err := b.cmd.Process.Signal(syscall.SIGINT); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("stop %s: %v", b.name, err)
	}
}

// held waits for a held connection, and fails the test if a number was not answered.
func (b *background) held(t *testing.T) traffic.HoldReport {
	t.Helper()

	var report traffic.HoldReport

	out := b.wait(t)
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Errorf("%s: %v: %s", b.name, err, out)
		return report
	}

	if report.Sent == 0 || report.Lost != 0 || report.Error != "" {
		t.Errorf("%s: %+v", b.name, report)
	}

	t.Logf("%s: %+v", b.name, report)

	return report
}

// pinged waits for pings, and fails the test if a reply is missing.
func (b *background) pinged(t *testing.T, count int) {
	t.Helper()

	out := b.wait(t)
	if want := strconv.Itoa(count) + " received"; !strings.Contains(out, want) {
		t.Errorf("%s: want %q in: %s", b.name, want, out)
	}
}

func (c *Cluster) ping(t *testing.T, name, on string, to netip.Addr, argv ...string) *background {
	t.Helper()
	return c.run(t, name, on, append(append([]string{"ping", "-n", "-q"}, argv...), to.String())...)
}

func (c *Cluster) hold(t *testing.T, name, on string, to netip.AddrPort, duration time.Duration, argv ...string) *background {
	t.Helper()
	return c.run(t, name, on, append(c.traffic("hold", to.String(), "-duration", duration.String()), argv...)...)
}

// within repeats try until it succeeds, up to a minute, which is generous for a loaded machine.
func within(t *testing.T, what string, try func() error) {
	t.Helper()
	withinTime(t, time.Minute, what, try)
}

func withinTime(t *testing.T, limit time.Duration, what string, try func() error) {
	t.Helper()

	var err error
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		if err = try(); err == nil {
			return
		}
	}

	t.Fatalf("%s: %v", what, err)
}

// ask makes one TCP request.
func (c *Cluster) ask(t *testing.T, on string, to netip.AddrPort, argv ...string) error {
	_, err := c.Exec(t.Context(), on, append(c.traffic("tcp", to.String(), "-timeout", "2s"), argv...)...)
	return err
}

// isUnanswered returns nil if err says that a request had no answer within its time, or was
// refused: by the peer, or by a firewall on the way, whose ICMP errors are the last two. Any other
// failure of a request proves nothing, for example a client that does not start.
func isUnanswered(err error) error {
	if err == nil {
		return errors.New("it is answered")
	}

	for _, why := range []string{"i/o timeout", "connection timed out", "connection refused", "connect: no route to host", "connect: permission denied"} {
		if strings.Contains(err.Error(), why) {
			return nil
		}
	}

	return fmt.Errorf("a request that should have no answer failed: %w", err)
}

func port(addr netip.Addr, p uint16) netip.AddrPort { return netip.AddrPortFrom(addr, p) }
