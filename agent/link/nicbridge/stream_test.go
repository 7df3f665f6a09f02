package nicbridge

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
)

// stream is a permanently busy connection between peer and host.
type stream struct {
	conn net.Conn
	stop chan struct{}
	done chan error
	gap  time.Duration // the longest time without an answer
	n    int
}

func (r *rig) stream(t *testing.T, host string) *stream {
	t.Helper()

	l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { l.Close() })

	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}

			go func() { _, _ = io.Copy(c, c); c.Close() }()
		}
	}()

	s := &stream{stop: make(chan struct{}), done: make(chan error, 1)}

	err = link.InNetns("/proc/"+r.peer+"/ns/net", func() (err error) {
		s.conn, err = net.Dial("tcp", l.Addr().String())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { s.conn.Close() })

	go func() { s.done <- s.run() }()

	return s
}

func (s *stream) run() error {
	in := bufio.NewReader(s.conn)
	for ; ; s.n++ {
		start := time.Now()

		if _, err := fmt.Fprintln(s.conn, s.n); err != nil {
			return err
		}

		got, err := in.ReadString('\n')
		if err != nil || strings.TrimSpace(got) != fmt.Sprint(s.n) {
			return fmt.Errorf("answer %d: %q, %w", s.n, got, err)
		}

		s.gap = max(s.gap, time.Since(start))
		select {
		case <-s.stop:
			return nil
		default:
		}
	}
}

// alive ends the connection and fails if it was ever interrupted.
func (s *stream) alive(t *testing.T) {
	t.Helper()
	close(s.stop)

	if err := <-s.done; err != nil {
		t.Errorf("connection: %v", err)
	}

	t.Logf("connection with %s: %d answers, longest wait %s", s.conn.RemoteAddr(), s.n, s.gap)
}
