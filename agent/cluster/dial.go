package cluster

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"
)

// Dial returns a function for the Dial of rest.Config. Its connections detect a dead peer within
// 25 s, also while no request is pending. control is the Control of net.Dialer, and may be nil.
func Dial(
	control func(network, address string, conn syscall.RawConn) error,
) func(ctx context.Context, network, address string) (net.Conn, error) {
	d := net.Dialer{
		Timeout: 10 * time.Second,
		Control: control,
		KeepAliveConfig: net.KeepAliveConfig{
			Enable:   true,
			Idle:     10 * time.Second,
			Interval: 5 * time.Second,
			Count:    3,
		},
	}

	return d.DialContext
}

// FollowAddresses must be called with the host's addresses, without loopback, after each possible
// change. It closes connections to the API server from other addresses. The client opens new ones.
func (c *Cluster) FollowAddresses(addrs []netip.Addr) {
	if n := c.dialer.follow(addrs); n > 0 {
		c.log.Info("closed connections to the API server from a lost host address", "count", n)
	}
}

// dialer opens the connections to the API server, and closes those from an address that the host
// has lost. Otherwise the kernel would retransmit for 15 minutes without a reply. It is safe for
// concurrent use.
type dialer struct {
	dial func(ctx context.Context, network, address string) (net.Conn, error)

	mu        sync.Mutex                 // guards the following fields
	hostAddrs map[netip.Addr]bool        // at the last call of follow
	conns     map[*conn]bool             // open connections
	dialing   map[int]context.CancelFunc // dials that have not ended, by a number
	nextDial  int                        // number of the next dial
}

func newDialer(dial func(context.Context, string, string) (net.Conn, error)) *dialer {
	if dial == nil {
		dial = Dial(nil)
	}

	return &dialer{dial: dial, conns: map[*conn]bool{}, dialing: map[int]context.CancelFunc{}}
}

// DialContext is the Dial of rest.Config.
func (d *dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	d.mu.Lock()
	id := d.nextDial
	d.nextDial++
	d.dialing[id] = cancel
	d.mu.Unlock()

	raw, err := d.dial(ctx, network, address)

	d.mu.Lock()
	defer d.mu.Unlock()

	delete(d.dialing, id)

	if err == nil && ctx.Err() != nil { // an address was lost meanwhile, perhaps this connection's
		raw.Close()

		err = ctx.Err()
	}

	if err != nil {
		return nil, err
	}

	c := &conn{raw, d}
	d.conns[c] = true

	return c, nil
}

// follow takes the host's current addresses. It closes connections from other addresses and returns
// their number. If an address was lost, it also makes the pending dials fail, because any of them
// may use that address. The client dials again.
func (d *dialer) follow(addrs []netip.Addr) int {
	current := map[netip.Addr]bool{}
	for _, a := range addrs {
		current[a.WithZone("")] = true
	}

	d.mu.Lock()

	var gone []*conn

	for c := range d.conns {
		if a := localAddr(c); a.IsValid() && !a.IsLoopback() && !current[a] {
			gone = append(gone, c)
		}
	}

	for a := range d.hostAddrs {
		if !current[a] {
			for _, cancel := range d.dialing {
				cancel()
			}
		}
	}

	d.hostAddrs = current
	d.mu.Unlock()

	for _, c := range gone { // Close takes the mutex
		c.Close()
	}

	return len(gone)
}

// conn is a connection of the dialer, which forgets it when it is closed.
type conn struct {
	net.Conn
	from *dialer
}

// Close closes the connection and removes it from the dialer.
func (c *conn) Close() error {
	c.from.mu.Lock()
	delete(c.from.conns, c)
	c.from.mu.Unlock()

	return c.Conn.Close()
}

// localAddr returns the address of the host's end, or the zero Addr for a connection without TCP.
func localAddr(c net.Conn) netip.Addr {
	tcp, ok := c.LocalAddr().(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}

	return tcp.AddrPort().Addr().Unmap().WithZone("")
}
