package live

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"time"
)

// Tests: requests of one byte, one after another, and streams as seen from the measuring node.
const (
	UDPRR     = "udp_rr"
	TCPRR     = "tcp_rr"
	StreamOut = "stream_out"
	StreamIn  = "stream_in"
)

// Tests returns all tests in order.
func Tests() []string { return []string{UDPRR, TCPRR, StreamOut, StreamIn} }

// Options configure a measurement.
type Options struct {
	Peer    netip.AddrPort // a node that serves this one
	Seconds int            // of each test, at most MaxSeconds
	Limit   int            // Mbit/s of a stream; 0: none
}

// Row is the result of a test.
type Row struct {
	Backend    string  `json:"backend,omitempty"` // set by the caller
	Test       string  `json:"test"`
	Seconds    float64 `json:"seconds"`
	Operations int     `json:"operations,omitempty"` // of an rr
	Lost       int     `json:"lost,omitempty"`       // datagrams without a reply
	P50        float64 `json:"p50_us,omitempty"`     // microseconds of an operation
	P99        float64 `json:"p99_us,omitempty"`
	Bytes      int64   `json:"bytes,omitempty"` // of a stream, at the receiver
	Here       Cost    `json:"here"`            // at the measuring node
	There      Cost    `json:"there"`           // at the serving node
}

// Cost is the cost at one end: all packets of the interface, and all CPU time of the machine.
type Cost struct {
	Packets uint64  `json:"packets"`
	CPU     float64 `json:"cpu_s"`
}

// PerPacket returns the CPU time per packet in nanoseconds.
func (c Cost) PerPacket() float64 {
	if c.Packets == 0 {
		return 0
	}

	return c.CPU * 1e9 / float64(c.Packets)
}

// Measure runs all tests, one after another.
func Measure(ctx context.Context, o Options) ([]Row, error) {
	if o.Seconds < 1 || o.Seconds > MaxSeconds || o.Limit < 0 {
		return nil, fmt.Errorf("measure: want 1 to %d seconds a test, and no limit below 0", MaxSeconds)
	}

	var rows []Row

	for _, test := range Tests() {
		row, err := o.measure(ctx, test)
		if err != nil {
			return nil, fmt.Errorf("measure %s: %w", test, errors.Join(ctx.Err(), err))
		}

		rows = append(rows, row)
	}

	return rows, nil
}

// measure runs a test and returns its figures, with the cost on both machines.
func (o Options) measure(ctx context.Context, test string) (Row, error) {
	// local is this node's address towards the peer. It selects the interface whose packets count.
	local, serverBefore, err := o.peerUsage(ctx)
	if err != nil {
		return Row{}, err
	}

	clientBefore, err := readUsage(local)
	if err != nil {
		return Row{}, err
	}

	row, start := Row{Test: test}, time.Now()
	if err := o.runTest(ctx, &row); err != nil {
		return Row{}, err
	}

	row.Seconds = time.Since(start).Seconds()

	clientAfter, err := readUsage(local)
	if err != nil {
		return Row{}, err
	}

	_, serverAfter, err := o.peerUsage(ctx)
	if err != nil {
		return Row{}, err
	}

	client, server := clientAfter.since(clientBefore), serverAfter.since(serverBefore)
	row.Here = Cost{client.Packets, client.Busy.Seconds()}
	row.There = Cost{server.Packets, server.Busy.Seconds()}

	return row, nil
}

// runTest runs the test of the row over a new connection, and adds its figures to the row.
func (o Options) runTest(ctx context.Context, row *Row) error {
	network := "tcp"
	if row.Test == UDPRR {
		network = "udp"
	}

	c, err := o.dial(ctx, network)
	if err != nil {
		return err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()

	if network == "tcp" {
		if err := json.NewEncoder(c).Encode(request{row.Test, o.Seconds, o.Limit}); err != nil {
			return err
		}
	}

	span := time.Duration(o.Seconds) * time.Second

	switch row.Test {
	case StreamOut:
		return streamOut(c.(*net.TCPConn), span, o.Limit, row)
	case StreamIn:
		if row.Bytes, err = io.Copy(io.Discard, c); err == nil && row.Bytes == 0 {
			err = errors.New("nothing came")
		}

		return err
	default:
		return ask(c, span, row)
	}
}

func (o Options) dial(ctx context.Context, network string) (net.Conn, error) {
	d := net.Dialer{Timeout: 5 * time.Second}
	return d.DialContext(ctx, network, o.Peer.String())
}

// peerUsage requests the peer's usage, and returns the local address of the connection.
func (o Options) peerUsage(ctx context.Context) (netip.Addr, usage, error) {
	c, err := o.dial(ctx, "tcp")
	if err != nil {
		return netip.Addr{}, usage{}, err
	}
	defer c.Close()

	if err := errors.Join(c.SetDeadline(time.Now().Add(5*time.Second)), json.NewEncoder(c).Encode(request{Test: "usage"})); err != nil {
		return netip.Addr{}, usage{}, err
	}

	var u usage
	if err := json.NewDecoder(c).Decode(&u); err != nil {
		return netip.Addr{}, usage{}, fmt.Errorf("ask %s what it has done (does it serve for this address?): %w", o.Peer, err)
	}

	return c.LocalAddr().(*net.TCPAddr).AddrPort().Addr().Unmap(), u, nil
}

// ask sends a byte and waits for its reply, repeatedly. It counts a datagram without a reply within
// 200 ms as lost.
func ask(c net.Conn, span time.Duration, row *Row) error {
	const patience = 200 * time.Millisecond

	_, datagrams := c.(*net.UDPConn)

	var took []float64

	for start, number := time.Now(), byte(0); time.Since(start) < span; {
		began := time.Now()

		wait := 5 * time.Second
		if datagrams {
			wait = patience
		}

		if err := c.SetDeadline(began.Add(wait)); err != nil {
			return err
		}

		number++

		err := exchange(c, number)
		if datagrams && errors.Is(err, os.ErrDeadlineExceeded) {
			row.Lost++
			continue
		}

		if err != nil {
			return err
		}

		took = append(took, float64(time.Since(began).Microseconds()))
	}

	if len(took) == 0 {
		return errors.New("not one answer came")
	}

	slices.Sort(took)
	row.Operations, row.P50, row.P99 = len(took), took[len(took)/2], took[len(took)*99/100]

	return nil
}

// exchange sends a byte and waits for its reply, ignoring late replies to earlier ones.
func exchange(c net.Conn, number byte) error {
	buf := []byte{number}
	if _, err := c.Write(buf); err != nil {
		return err
	}

	for {
		if _, err := c.Read(buf); err != nil || buf[0] == number {
			return err
		}
	}
}

// streamOut sends a stream, and sets the number of bytes that the peer has received.
func streamOut(c *net.TCPConn, span time.Duration, limit int, row *Row) error {
	if err := stream(c, span, limit); err != nil {
		return err
	}

	if err := errors.Join(c.CloseWrite(), c.SetReadDeadline(time.Now().Add(30*time.Second))); err != nil {
		return err
	}

	return json.NewDecoder(c).Decode(&row.Bytes)
}

// stream writes to w for the span, at most limit Mbit/s; 0: without a limit.
func stream(w io.Writer, span time.Duration, limit int) error {
	chunk := make([]byte, 60000)

	var sent int64

	for start := time.Now(); ; {
		elapsed := time.Since(start)
		if elapsed >= span {
			return nil
		}

		if ahead := due(sent, limit) - elapsed; ahead > 0 {
			time.Sleep(min(ahead, span-elapsed))
			continue
		}

		n, err := w.Write(chunk)
		sent += int64(n)

		if err != nil {
			return err
		}
	}
}

// due returns the earliest time after the start at which this number of bytes may have been sent.
func due(sent int64, limit int) time.Duration {
	if limit == 0 {
		return 0
	}

	return time.Duration(float64(sent) * 8 / (float64(limit) * 1e6) * float64(time.Second))
}
