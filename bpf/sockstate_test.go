package bpf

import (
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// askOnce connects anew and returns the backend.
func askOnce(t *testing.T, h *sockHost, to string) string {
	t.Helper()
	return connectOnce(t, h, unix.SOCK_STREAM, netip.MustParseAddrPort(to), false)
}

func update(t *testing.T, s *Sock, changes ...SockService) int {
	t.Helper()

	writes, err := s.UpdateServices(changes)
	if err != nil {
		t.Fatal(err)
	}

	return writes
}

func stickyService(backends ...string) SockService {
	w := webService(backends...)
	for i := range w.Ports {
		w.Ports[i].Affinity = 3 * time.Hour
	}

	return w
}

func TestSock_affinity(t *testing.T) {
	h := newSockHost(t)
	s := h.open(t, stickyService(backAddrs...))

	first := askOnce(t, h, vip4)
	for range 20 {
		for _, to := range []string{vip4, "127.0.0.1:30080", "192.0.2.1:30080"} {
			if got := askOnce(t, h, to); got != first {
				t.Fatalf("%s: answered by %s, before by %s", to, got, first)
			}
		}
	}

	t.Log("others come and go, in every order of slots")

	for _, backends := range [][]string{{first}, append([]string{first}, backAddrs...), {first}} {
		update(t, s, stickyService(backends...))

		if got := askOnce(t, h, vip4); got != first {
			t.Errorf("with %v: answered by %s, before by %s", backends, got, first)
		}
	}

	t.Log("it goes itself")

	others := slices.DeleteFunc(slices.Clone(backAddrs), func(a string) bool { return a == first })
	update(t, s, stickyService(others...))

	second := askOnce(t, h, vip4)
	if !slices.Contains(others, second) {
		t.Errorf("answered by %s, which is gone", second)
	}

	update(t, s, stickyService(backAddrs...))

	for range 20 {
		if got := askOnce(t, h, vip4); got != second {
			t.Fatalf("answered by %s, before by %s", got, second)
		}
	}

	t.Log("no connection for three hours")

	seen := make(map[string]bool)

	for range 200 {
		age(t, s, 3*time.Hour)

		seen[askOnce(t, h, vip4)] = true
		if len(seen) == 3 {
			return
		}
	}

	t.Errorf("after 200 times of three hours: backends %v", seen)
}

// age moves every choice that is kept into the past.
func age(t *testing.T, s *Sock, by time.Duration) {
	t.Helper()

	stuck, err := readTable[uint32, sockStuck](s.objs.SockAffinity)
	if err != nil {
		t.Fatal(err)
	}

	for set, v := range stuck {
		v.Ns -= uint64(by) // may be before boot: the difference is what counts
		if err := s.objs.SockAffinity.Put(set, v); err != nil {
			t.Fatal(err)
		}
	}
}

func TestSock_backendGoes(t *testing.T) {
	h := newSockHost(t)
	s := h.open(t, webService(backAddrs...))
	to := netip.MustParseAddrPort(vip4)
	c := h.client(t, unix.SOCK_DGRAM, to.Addr(), false)

	first, _, err := c.ask(to)
	if err != nil {
		t.Fatal(err)
	}

	// The socket keeps to its backend while that is there, wherever its slot is.
	for _, backends := range [][]string{backAddrs[:3], {first}, {backAddrs[0], first}, {first, backAddrs[2]}, backAddrs} {
		update(t, s, webService(backends...))

		if got, from, err := c.ask(to); err != nil || got != first || from != to {
			t.Fatalf("with %v: answered by %s as %v, %v; before by %s", backends, got, from, err, first)
		}
	}

	_ = s.GoneUDP()
	others := slices.DeleteFunc(slices.Clone(backAddrs), func(a string) bool { return a == first })
	update(t, s, webService(others...))

	for range 50 {
		if got := askOnce(t, h, vip4); got == first {
			t.Fatalf("answered by %s, which is gone", got)
		}
	}

	if got, from, err := c.ask(to); err != nil || got == first || from != to {
		t.Errorf("answered by %s as %v, %v", got, from, err)
	}

	if got, want := s.GoneUDP(), backs(first); !slices.Equal(got, want) {
		t.Errorf("gone: %v, want %v", got, want)
	}

	if got := s.GoneUDP(); len(got) != 0 {
		t.Errorf("gone again: %v", got)
	}
}

func TestSock_restart(t *testing.T) {
	h := newSockHost(t)
	dns := SockService{Key: "kube-system/dns", Ports: []SockPort{{
		Frontends: fronts("10.96.0.53:53"), Proto: protoUDP, Backends: backs(backAddrs[0], backAddrs[1]),
	}}}
	s := h.open(t, webService(backAddrs...), dns)
	to := netip.MustParseAddrPort("10.96.0.53:53")
	c := h.client(t, unix.SOCK_DGRAM, to.Addr(), false)

	first, _, err := c.ask(to)
	if err != nil {
		t.Fatal(err)
	}

	conn := h.client(t, unix.SOCK_DGRAM, to.Addr(), false)
	if err := conn.connect(to); err != nil {
		t.Fatal(err)
	}

	fronts, backends := tableLen(t, s.objs.SockFrontends), tableLen(t, s.objs.SockBackends)
	if fronts != 9 || backends != 14 {
		t.Errorf("tables hold %d frontends and %d backends, want 9 and 14", fronts, backends)
	}

	t.Log("the process dies")

	if err := s.Close(); err != nil {
		t.Fatal(err)
	}

	askOnce(t, h, vip4)

	t.Log("another takes over, and finds nothing to do")

	s = h.open(t, webService(backAddrs...), dns)
	if h.writes != 0 {
		t.Errorf("first sync: %d writes", h.writes)
	}

	if writes, err := s.SyncServices([]SockService{dns, webService(backAddrs...)}); err != nil || writes != 0 {
		t.Errorf("sync of what is there: %d writes, %v", writes, err)
	}

	if got := tableLen(t, s.objs.SockFrontends); got != fronts {
		t.Errorf("%d frontends, want %d", got, fronts)
	}

	if got := tableLen(t, s.objs.SockBackends); got != backends {
		t.Errorf("%d backends, want %d", got, backends)
	}

	if got, from, err := c.ask(to); err != nil || from != to || got != first {
		t.Errorf("a socket from before: answered by %s as %v, %v; before by %s", got, from, err, first)
	}

	if got := conn.peer(t); got != to {
		t.Errorf("a connection from before: peer is %v", got)
	}

	t.Log("everything goes")

	_ = s.GoneUDP()
	if _, err := s.SyncServices(nil); err != nil {
		t.Fatal(err)
	}

	if n := tableLen(t, s.objs.SockFrontends) + tableLen(t, s.objs.SockBackends); n != 0 {
		t.Errorf("%d entries are left", n)
	}

	if got := s.GoneUDP(); len(got) != len(backAddrs) {
		t.Errorf("gone: %v, want every backend", got)
	}

	wantDetached(t, h, s)
}

// What went while no agent was there is reported gone by the next one.
func TestSock_GoneUDP_meanwhile(t *testing.T) {
	h := newSockHost(t)

	s := h.open(t, webService(backAddrs[:2]...))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}

	s = h.open(t, webService(backAddrs[:1]...))
	if got, want := s.GoneUDP(), backs(backAddrs[1]); !slices.Equal(got, want) {
		t.Errorf("gone: %v, want %v", got, want)
	}

	if writes := update(t, s, webService(backAddrs[:1]...)); writes != 0 {
		t.Errorf("update to what is there: %d writes", writes)
	}
}

// Services change while sockets connect: every one must get through, to a
// backend that its frontend had before or has after.
func TestSock_UpdateServices_neverTears(t *testing.T) {
	h := newSockHost(t)
	s := h.open(t, webService(backAddrs[0]))

	var stop atomic.Bool

	done := make(chan error)
	go func() {
		defer close(done)

		sets := [][]string{{backAddrs[0]}, backAddrs[:3], {backAddrs[2]}, {backAddrs[1], backAddrs[2]}, {backAddrs[0], backAddrs[1]}}
		for i := 0; !stop.Load(); i++ {
			other := SockService{Key: "default/other", Ports: []SockPort{{
				Frontends: fronts("10.96.0.20:80"), Proto: protoTCP, Backends: backs(backAddrs[i%3]),
			}}}
			if i%2 == 0 {
				other.Ports = nil
			}

			if _, err := s.UpdateServices([]SockService{webService(sets[i%len(sets)]...), other}); err != nil {
				done <- err
				return
			}

			if i%50 == 0 {
				if _, err := s.SyncServices([]SockService{webService(sets[i%len(sets)]...), other}); err != nil {
					done <- err
					return
				}
			}
		}
	}()

	for range 2000 {
		if got := askOnce(t, h, vip4); !slices.Contains(backAddrs[:3], got) {
			t.Errorf("answered by %s", got)
		}
	}

	stop.Store(true)

	if err := <-done; err != nil {
		t.Fatal(err)
	}
}
