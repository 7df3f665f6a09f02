package bfd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"reflect"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ovn-ebpf/ovn-ebpf/loop"
)

// Port is the UDP port of BFD (RFC 5881).
const Port = 3784

// retry is the wait after an address could not be used.
const retry = 2 * time.Second

// Responder answers BFD at addresses of the host. Its methods are safe for concurrent use.
type Responder struct {
	works func() bool // see New
	log   *slog.Logger
	port  uint16      // Port, except in tests
	wake  loop.Signal // want has changed

	mu   sync.Mutex // guards want
	want settings
}

// settings are the arguments of Set.
type settings struct {
	addresses []netip.Addr   // own
	peers     []netip.Prefix // networks of accepted peers
}

// New returns a Responder without addresses. works reports whether this node's gateway is usable;
// it is called about once per second and peer.
func New(works func() bool, log *slog.Logger) *Responder {
	return &Responder{works: works, log: log, port: Port, wake: loop.NewSignal()}
}

// Set sets the own addresses and the networks of accepted peers. Without addresses, the Responder
// answers nothing.
func (r *Responder) Set(addresses []netip.Addr, peers []netip.Prefix) {
	r.mu.Lock()
	changed := !reflect.DeepEqual(r.want, settings{addresses, peers})
	r.want = settings{slices.Clone(addresses), slices.Clone(peers)}
	r.mu.Unlock()

	if changed {
		r.wake.Trigger()
	}
}

// Run answers until ctx ends, with a goroutine for each address. After Set, it starts all of them
// again. It retries addresses that cannot be used, as the host may not have them yet.
func (r *Responder) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		r.mu.Lock()
		want := r.want
		r.mu.Unlock()

		term, cancel := context.WithCancel(ctx)

		var group errgroup.Group
		for _, a := range want.addresses {
			group.Go(func() error {
				r.keepServing(term, a, want.peers)
				return nil
			})
		}

		select {
		case <-ctx.Done():
		case <-r.wake:
		}

		cancel()

		_ = group.Wait() // nil
	}

	return nil
}

// keepServing answers at one address until ctx ends. It logs a repeated error once.
func (r *Responder) keepServing(ctx context.Context, own netip.Addr, peers []netip.Prefix) {
	lastError := ""

	for ctx.Err() == nil {
		err := r.serve(ctx, own, peers)
		if ctx.Err() != nil {
			return
		}

		if text := fmt.Sprint(err); text != lastError {
			r.log.Warn("cannot answer BFD, nodes without a gateway cannot detect faults of this one",
				"error", err)

			lastError = text
		}

		loop.Pause(ctx, retry)
	}
}

// serve answers at one address until ctx ends or an error occurs. Its goroutine handles all
// sessions of the address: it reads until the next packet to send is due, sends, and reads again.
func (r *Responder) serve(ctx context.Context, own netip.Addr, peers []netip.Prefix) error {
	conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(own, r.port)))
	if err != nil {
		return fmt.Errorf("answer BFD at %s: %w", own, err)
	}
	defer conn.Close()

	// The end of ctx interrupts the read below.
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()

	sessions := map[netip.AddrPort]*session{}
	buffer := make([]byte, 128)

	for {
		if err := conn.SetReadDeadline(r.sendDue(conn, sessions)); err != nil {
			return fmt.Errorf("answer BFD at %s: %w", own, err)
		}

		n, from, err := conn.ReadFromUDPAddrPort(buffer)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			continue
		}

		if err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}

			continue // the ICMP error of an earlier packet
		}

		addr := from.Addr().Unmap()

		p, err := Parse(buffer[:n])
		if err != nil || !slices.ContainsFunc(peers, func(p netip.Prefix) bool { return p.Contains(addr) }) {
			continue
		}

		key := netip.AddrPortFrom(addr, r.port) // answers go to this port, whatever the source port of p

		s := sessions[key]
		if s == nil {
			s = newSession(own, addr)
			sessions[key] = s
		}

		before := s.state
		if s.receive(p, time.Now(), r.works()) {
			s.next = time.Time{} // answer at once
		}

		r.logChange(addr, before, s.state)
	}
}

// sendDue sends all due packets and returns the time of the next one.
func (r *Responder) sendDue(conn *net.UDPConn, sessions map[netip.AddrPort]*session) time.Time {
	now := time.Now()
	next := now.Add(time.Hour)

	for to, s := range sessions {
		before := s.state
		due, expired := s.tick(now, r.works())
		r.logChange(to.Addr(), before, s.state)

		if expired {
			delete(sessions, to)
			continue
		}

		if due {
			// A lost packet is repeated within a second.
			_, _ = conn.WriteToUDPAddrPort(s.packet(now, rand.Float64()).Marshal(), to)
		}

		if s.next.Before(next) {
			next = s.next
		}
	}

	return next
}

// logChange logs that a session has come up or gone down.
func (r *Responder) logChange(peer netip.Addr, before, now State) {
	if before != now && (before == Up || now == Up) {
		r.log.Info("BFD session changed its state", "peer", peer, "state", now.String())
	}
}
