package campaign

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/test/lab/netns"
)

const (
	probeUDP = 100 * time.Millisecond // between two datagrams of one stream
	probeTCP = 500 * time.Millisecond // between two connections

	// lostAfter is the time after which a probe counts as lost. It is much longer than a reply takes
	// on an overloaded machine, so that only lost packets count.
	lostAfter = 10 * time.Second
	// healthyFor is the maximum age of the newest answered probe of a working path.
	healthyFor = 1500 * time.Millisecond
	// stuckAfter is the time after which a silent stream of datagrams through OVN restarts from
	// another port. Connection tracking keeps its decision about the first datagram as long as others
	// follow.
	stuckAfter = 5 * time.Second
)

// Path is a path through the cluster.
type Path struct {
	Name string
	Host bool // traffic of the host, which must lose no packet by faults of OVS, OVN, agents or Kubernetes
	// Tunnel is set for paths to a pod on another node, or to a Service with such an endpoint.
	Tunnel bool
	// Translated is set for paths on which a gateway router translates the client's address.
	Translated bool
	From       string
	To         func(v6 bool) netip.AddrPort
	Kinds      []string // "udp", "tcp", other kinds of ask, or kinds of open; nil: the first two
	Server     string   // name by which the server of "tcp" and "query" must answer; "": any
	Port       int      // local port of "udp" and "held"; 0: the kernel chooses
	Only4      bool     // no IPv6
	TLS        *tls.Config
}

// Count holds the sent and lost packets of a path, and the number of restarts of a stream.
type Count struct {
	Sent, Lost, Redialled int
	first, last           time.Time // send times of the first and the last lost packet
	err                   error     // of the first connection that failed
}

// when returns the period of the losses, in local time.
func (c Count) when() string {
	const clock = "15:04:05.0"

	text := fmt.Sprintf("sent between %s and %s", c.first.Format(clock), c.last.Format(clock))
	if c.err != nil {
		text += ": " + c.err.Error()
	}

	return text
}

func (c *Count) add(d Count) {
	c.Sent, c.Lost, c.Redialled = c.Sent+d.Sent, c.Lost+d.Lost, c.Redialled+d.Redialled
}

// probe probes one path in one family and protocol until its context ends.
type probe struct {
	path   *Path
	v6     bool
	kind   string
	ns     string
	bucket *atomic.Int64 // the current fault

	mu       sync.Mutex // guards the following fields
	counts   map[int64]*Count
	pending  map[uint64]sent // neither answered nor lost
	answered time.Time       // send time of the newest answered probe
	dialled  time.Time       // creation time of its socket
}

type sent struct {
	at     time.Time
	bucket int64
}

func (p *probe) String() string {
	return fmt.Sprintf("%s, %s %s", p.path.Name, p.kind, map[bool]string{true: "v6", false: "v4"}[p.v6])
}

// run probes until ctx ends.
func (p *probe) run(ctx context.Context) {
	switch p.kind {
	case "tcp", "https", "ovsdb", "query":
		p.runAsks(ctx)
		return
	}

	for ctx.Err() == nil {
		if err := p.runStream(ctx); err != nil {
			time.Sleep(probeUDP)
		}
	}
}

func (p *probe) begin(seq uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()

	s := sent{at: time.Now(), bucket: p.bucket.Load()}
	p.pending[seq] = s

	p.count(s.bucket).Sent++
	for seq, s := range p.pending {
		if time.Since(s.at) > lostAfter {
			p.lose(seq)
		}
	}
}

func (p *probe) count(bucket int64) *Count {
	if p.counts[bucket] == nil {
		p.counts[bucket] = &Count{}
	}

	return p.counts[bucket]
}

func (p *probe) lose(seq uint64) {
	s := p.pending[seq]
	delete(p.pending, seq)
	c := p.count(s.bucket)

	c.Lost++
	if c.first.IsZero() || s.at.Before(c.first) {
		c.first = s.at
	}

	if s.at.After(c.last) {
		c.last = s.at
	}
}

// stuck reports whether a stream of datagrams has been silent so long that a client would use
// another port. It is always false for the host's streams.
func (p *probe) stuck() bool {
	p.mu.Lock()
	defer p.mu.Unlock()

	if p.path.Host || time.Since(p.dialled) < stuckAfter || time.Since(p.answered) < stuckAfter {
		return false
	}

	p.count(p.bucket.Load()).Redialled++

	return true
}

// end records the result of a probe. A reply after lostAfter counts as lost.
func (p *probe) end(seq uint64, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()

	s, there := p.pending[seq]
	switch {
	case !there:
	case !ok:
		p.lose(seq)
	default:
		delete(p.pending, seq)

		if s.at.After(p.answered) {
			p.answered = s.at
		}
	}
}

// works reports whether probes sent after since are answered.
func (p *probe) works(since time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()

	return p.answered.After(since) && time.Since(p.answered) < healthyFor
}

// settle waits for outstanding replies up to the limit, then counts the others as lost. It does not
// wait for what is sent meanwhile: on a broken path some packet is always outstanding.
func (p *probe) settle(bucket int64) Count {
	began := time.Now()

	for {
		p.mu.Lock()
		waiting := false

		for seq, s := range p.pending {
			if s.bucket == bucket && time.Since(s.at) > lostAfter {
				p.lose(seq)
			} else if s.bucket == bucket && s.at.Before(began) {
				waiting = true
			}
		}

		c := *p.count(bucket)
		p.mu.Unlock()

		if !waiting {
			return c
		}

		time.Sleep(probeUDP)
	}
}

// runAsks asks again and again, each time from a new socket.
func (p *probe) runAsks(ctx context.Context) {
	tick := time.NewTicker(probeTCP)
	defer tick.Stop()

	for seq := uint64(0); ; seq++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}

		p.begin(seq)

		err := p.ask(ctx)
		if ctx.Err() == nil {
			p.failed(err)
			p.end(seq, err == nil)
		}
	}
}

// failed records the error of a connection.
func (p *probe) failed(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()

	if c := p.count(p.bucket.Load()); c.err == nil {
		c.err = err
	}
}

// ask opens a socket and sends one request: by "tcp"; by "query", which is UDP; by "https" to an API
// server; and by "ovsdb" to a database of OVN.
func (p *probe) ask(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, lostAfter-time.Second)
	defer cancel()

	network := "tcp"
	if p.kind == "query" {
		network = "udp"
	}

	c, err := netns.Dialer(p.ns)(ctx, network, p.path.To(p.v6).String())
	if err != nil {
		return err
	}
	defer c.Close()

	deadline, _ := ctx.Deadline()
	if err := c.SetDeadline(deadline); err != nil {
		return err
	}

	switch p.kind {
	case "https":
		return answered(tls.Client(c, p.path.TLS), "GET /livez HTTP/1.0\r\n\r", '\n', "")
	case "ovsdb":
		return answered(c, `{"method":"echo","params":["alive"],"id":1}`, '}', `["alive"]`)
	case "query":
		return queried(c, p.path.Server)
	}

	return answered(c, "who", '\n', p.path.Server)
}

// answered sends a question on a connection. The answer ends with a delimiter and must have a text.
func answered(c net.Conn, question string, end byte, want string) error {
	if _, err := fmt.Fprintln(c, question); err != nil {
		return err
	}

	answer, err := bufio.NewReader(c).ReadString(end)
	if err == nil && !strings.Contains(answer, want) {
		err = fmt.Errorf("answered by %q", answer)
	}

	return err
}

// queried sends a datagram. The server must answer by its name.
func queried(c net.Conn, name string) error {
	if _, err := fmt.Fprintln(c, "who"); err != nil {
		return err
	}

	buf := make([]byte, 2000)

	n, err := c.Read(buf)
	if err == nil && !strings.HasPrefix(string(buf[:n]), name) {
		err = fmt.Errorf("answered by %q", buf[:n])
	}

	return err
}

// runStream sends numbers from one socket and expects them back.
func (p *probe) runStream(ctx context.Context) error {
	c, err := p.open(ctx)
	if err != nil {
		p.refused()
		return err
	}
	defer c.Close()

	stop := context.AfterFunc(ctx, func() { c.Close() })
	defer stop()

	p.mu.Lock()
	p.dialled = time.Now()

	p.mu.Unlock()
	go p.read(c)

	tick := time.NewTicker(probeUDP)
	defer tick.Stop()

	for seq := uint64(time.Now().UnixNano()); ; seq++ {
		p.begin(seq)

		err := c.send(seq)
		for try := 0; err != nil && try < 10; try++ {
			err = c.send(seq) // reports a pending ICMP error of an earlier packet, perhaps forged, only once
		}

		if err != nil && ctx.Err() == nil {
			p.end(seq, false)
		}

		if p.stuck() {
			return nil
		}

		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// refused counts a datagram that could not be sent.
func (p *probe) refused() {
	p.begin(0)
	p.end(0, false)
}

func (p *probe) read(c stream) {
	buf := make([]byte, 2000)
	for {
		seq, err := c.receive(buf)
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err == nil && seq != 0:
			p.end(seq, true)
		}
	}
}
