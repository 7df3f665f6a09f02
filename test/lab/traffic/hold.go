package traffic

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// HoldReport is the result of a held connection.
type HoldReport struct {
	Sent, Received, Lost int
	MaxGapMS             int64 // longest time between two replies
	Local                string
	Stalls               []Stall   `json:",omitempty"`
	Last                 time.Time `json:",omitzero"` // time of the last reply
	Unanswered           time.Time `json:",omitzero"` // when the next number was sent, if there was one
	Error                string    `json:",omitempty"`
}

// Stall is a long time without a reply.
type Stall struct {
	End time.Time // time of the next reply
	MS  int64
}

// aStall is the minimum gap to report: longer than the effect of one lost segment on a busy
// machine.
const aStall = 500 * time.Millisecond

// hold sends a number every interval and counts the replies, until o.duration has passed or ctx
// ends. Over TCP the replies must be the numbers in order, followed by the end of the server's
// side: only a lost connection loses numbers, and a gap shows retransmissions.
func hold(ctx context.Context, o options) (HoldReport, error) {
	network := "tcp"
	if o.udp {
		network = "udp"
	}

	c, err := dial(ctx, network, o)
	if err != nil {
		return HoldReport{Error: err.Error()}, err
	}
	defer c.Close()

	answers := make(chan error, 1)
	report := HoldReport{Local: c.LocalAddr().String()}

	var seen received
	go func() { answers <- seen.read(c, o.udp) }()

	err = sendNumbers(ctx, c, o, &report, &seen)
	err = errors.Join(err, lastAnswers(c, o), <-answers)
	report.Received, report.MaxGapMS, report.Stalls = seen.count, seen.gap.Milliseconds(), seen.stalls
	report.Last, report.Unanswered = seen.last, seen.unanswered

	report.Lost = report.Sent - report.Received
	if err == nil && report.Lost > 0 && !o.udp {
		err = fmt.Errorf("hold %s: %d numbers not answered", o.addr, report.Lost)
	}

	if err != nil {
		report.Error = err.Error()
	}

	return report, err
}

// lastAnswers waits for outstanding replies; over TCP, where retransmission intervals grow with an
// interruption, for all of o.timeout.
func lastAnswers(c net.Conn, o options) error {
	wait := min(o.timeout, time.Second)

	if t, ok := c.(*net.TCPConn); ok {
		if err := t.CloseWrite(); err != nil {
			return err
		}

		wait = o.timeout
	}

	return c.SetReadDeadline(time.Now().Add(wait))
}

func sendNumbers(ctx context.Context, c net.Conn, o options, report *HoldReport, seen *received) error {
	tick := time.NewTicker(o.interval)
	defer tick.Stop()

	end := time.After(o.duration)

	for {
		seen.sending()

		_, err := fmt.Fprintf(c, "seq %d\n", report.Sent)
		if err != nil && !errors.Is(err, unix.ECONNREFUSED) {
			return err
		}

		report.Sent++

		select {
		case <-ctx.Done():
			return nil
		case <-end:
			return nil
		case <-tick.C:
		}
	}
}

type received struct {
	count  int
	gap    time.Duration
	stalls []Stall

	mu               sync.Mutex // guards the fields below
	last, unanswered time.Time  // see HoldReport
}

// sending notes that a number is about to be sent.
func (r *received) sending() {
	r.mu.Lock()
	defer r.mu.Unlock()

	if r.unanswered.IsZero() {
		r.unanswered = time.Now()
	}
}

// answered notes a reply.
func (r *received) answered(at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()

	r.last, r.unanswered = at, time.Time{}
}

// read reads replies until the read deadline, over TCP until the server closes the connection.
func (r *received) read(c net.Conn, udp bool) error {
	last := time.Now()
	buf := bufio.NewReader(c)
	datagram := make([]byte, 2000)

	for {
		var (
			line string
			err  error
		)
		if udp {
			_, err = c.Read(datagram)
		} else {
			line, err = buf.ReadString('\n')
		}

		switch {
		case udp && errors.Is(err, os.ErrDeadlineExceeded), !udp && errors.Is(err, io.EOF) && line == "":
			return nil
		case udp && errors.Is(err, unix.ECONNREFUSED):
			continue // the ICMP error of a datagram
		case err != nil:
			return fmt.Errorf("read answer %d: %w", r.count, err)
		case !udp && strings.TrimSpace(line) != strconv.Itoa(r.count):
			return fmt.Errorf("read answer %d: got %q", r.count, line)
		}

		now := time.Now()
		if gap := now.Sub(last); gap > aStall {
			r.stalls = append(r.stalls, Stall{End: now, MS: gap.Milliseconds()})
		}

		r.gap = max(r.gap, now.Sub(last))
		last = now
		r.answered(now)
		r.count++
	}
}
