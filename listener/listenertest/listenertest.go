// Package listenertest tests that a server of package listener bounds its connections: it opens
// more than the server permits.
package listenertest

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"testing"
	"time"
)

// Beyond is the number of connections that Flood opens above the limit.
const Beyond = 100

// closeTimeout is shorter than listener's default for idle connections. So the server has closed a
// connection in this time only because of the limit.
const closeTimeout = 20 * time.Second

// A Client begins to use a connection, and then leaves it open. It ignores errors, because the
// server may have closed the connection.
type Client func(net.Conn)

// Flood opens limit+Beyond connections, which have had an answer and are idle. It fails the test
// unless the server, which must run in this process, closes all but limit of them, frees their
// descriptors, and still answers a new client.
func Flood(t *testing.T, limit int, dial func() (net.Conn, error)) {
	t.Helper()
	FloodBy(t, limit, dial, Answered)
}

// FloodBy is like Flood, but uses the connections by these clients, in turn.
func FloodBy(t *testing.T, limit int, dial func() (net.Conn, error), clients ...Client) {
	t.Helper()
	before := descriptors(t)

	var closed atomic.Int64

	for i := range limit + Beyond {
		c, err := dial()
		if err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		defer c.Close()

		clients[i%len(clients)](c)
		go func() {
			_, _ = io.Copy(io.Discard, c)

			closed.Add(1)
		}()
	}

	isBounded := func() bool {
		const margin = 20 // for other descriptors of this process

		clientSide, serverSide := limit+Beyond, limit

		return closed.Load() >= Beyond && descriptors(t)-before <= clientSide+serverSide+margin
	}

	for start := time.Now(); !isBounded(); time.Sleep(10 * time.Millisecond) {
		if time.Since(start) > closeTimeout {
			t.Errorf("%d of %d connections closed, want at least %d; %d descriptors",
				closed.Load(), limit+Beyond, Beyond, descriptors(t)-before)

			break
		}
	}

	if err := Ask(dial); err != nil {
		t.Errorf("a new client beside %d connections: %v", limit, err)
	}
}

// request is a complete request.
const request = "GET / HTTP/1.1\r\nHost: x\r\n\r\n"

// Silent sends nothing.
func Silent(net.Conn) {}

// Halfway sends half a header.
func Halfway(c net.Conn) { _, _ = io.WriteString(c, request[:len(request)/2]) }

// Answered sends a request and reads the answer.
func Answered(c net.Conn) {
	if _, err := io.WriteString(c, request); err != nil {
		return
	}

	if r, err := http.ReadResponse(bufio.NewReader(c), nil); err == nil {
		_, _ = io.Copy(io.Discard, r.Body)
		r.Body.Close()
	}
}

// Ask returns an error unless a request over a new connection is answered, with any status.
func Ask(dial func() (net.Conn, error)) error {
	c, err := dial()
	if err != nil {
		return err
	}
	defer c.Close()

	if err := c.SetDeadline(time.Now().Add(closeTimeout)); err != nil {
		return err
	}

	if _, err := io.WriteString(c, request); err != nil {
		return fmt.Errorf("ask: %w", err)
	}

	r, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return fmt.Errorf("read answer: %w", err)
	}

	r.Body.Close()

	return nil
}

// descriptors returns the number of open file descriptors of this process.
func descriptors(t *testing.T) int {
	t.Helper()

	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}

	return len(list)
}
