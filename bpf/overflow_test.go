package bpf

import (
	"fmt"
	"maps"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// TestGateway_fullTablesKeepWhatFits checks that a full table takes as many entries as it has room
// for, keeps those that it has, tells how many are left out, and takes these when others go.
func TestGateway_fullTablesKeepWhatFits(t *testing.T) {
	n := newNode(t)
	sizes := Sizes{"services": 4, "host_addrs": 4, "lookup_targets": 4}
	g := n.open(t, func(o *Options) { o.Sizes, o.CountServices = sizes, 10 })
	front := func(port int) verdict.ServiceKey {
		return verdict.ServiceKey{Addr: v4.node, Proto: protoTCP, Port: uint16(port)}
	}
	entries := func(table string) int {
		t.Helper()

		tables, err := Tables(n.pinDir)
		if err != nil || tables[table].Capacity != 4 {
			t.Fatalf("tables %v, %v", tables, err)
		}

		return tables[table].Entries
	}
	check := func(what, table string, unwritten map[string]int, has, left int) {
		t.Helper()

		if got := entries(table); got != has || unwritten[table] != left {
			t.Errorf("%s: %d entries, %d unwritten; want %d, %d", what, got, unwritten[table], has, left)
		}
	}
	must := func(err error) {
		t.Helper()

		if err != nil {
			t.Fatal(err)
		}
	}

	t.Run("services", func(t *testing.T) {
		update := func(add map[verdict.ServiceKey]verdict.ServiceOwner, remove ...verdict.ServiceKey) {
			t.Helper()

			_, err := g.UpdateServices(add, remove)
			must(err)
		}

		must(g.SyncServices(map[verdict.ServiceKey]verdict.ServiceOwner{front(1): verdict.ServiceOVN, front(2): verdict.ServiceOVN, front(3): verdict.ServiceOVN}))
		check("room", "services", g.Unwritten(), 3, 0)
		update(map[verdict.ServiceKey]verdict.ServiceOwner{front(4): verdict.ServiceOVN, front(5): verdict.ServiceOVN, front(6): verdict.ServiceOVN})
		check("full", "services", g.Unwritten(), 4, 2)
		update(map[verdict.ServiceKey]verdict.ServiceOwner{front(1): verdict.ServiceHost})

		if got := n.reason(t, g, v4.rx(v4.remote, v4.node, protoTCP, tcp(4000, 1, flagSYN))); got["service_host"] != 1 {
			t.Errorf("a changed entry of a full table: %v", got)
		}

		update(nil, front(2))
		check("one goes", "services", g.Unwritten(), 4, 1)
		update(nil, front(4), front(5), front(6))
		check("those that had no room go", "services", g.Unwritten(), 2, 0)

		all := map[verdict.ServiceKey]verdict.ServiceOwner{}
		for port := 10; port < 15; port++ {
			all[front(port)] = verdict.ServiceOVN
		}

		must(g.SyncServices(all)) // the stale ones make room
		check("replaced", "services", g.Unwritten(), 4, 1)
		must(g.SyncServices(maps.Clone(all)))
		check("again", "services", g.Unwritten(), 4, 1)
		must(g.SyncServices(nil))
		check("none", "services", g.Unwritten(), 0, 0)
	})
	t.Run("addresses", func(t *testing.T) {
		addr := func(i int) netip.Addr { return netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}) }

		want := map[netip.Addr]verdict.AddrKind{addr(1): verdict.AddrHost, addr(2): verdict.AddrPeer}
		for i := 10; i < 15; i++ {
			want[addr(i)] = verdict.AddrVIP
		}

		must(g.SyncAddrs(want))
		check("full", "host_addrs", g.Unwritten(), 4, 3)

		want[addr(3)], want[addr(4)] = verdict.AddrHost, verdict.AddrFormer
		must(g.SyncAddrs(want))
		check("addresses that are no Service's come first", "host_addrs", g.Unwritten(), 4, 5)
		have, err := readTable[gatewayAddr, uint8](g.objs.HostAddrs)
		must(err)

		for i, kind := range map[int]verdict.AddrKind{1: verdict.AddrHost, 2: verdict.AddrPeer, 3: verdict.AddrHost, 4: verdict.AddrFormer} {
			if got := have[gatewayAddr{W: words(addr(i))}]; verdict.AddrKind(got) != kind {
				t.Errorf("%s has %s, want %s", addr(i), verdict.AddrKind(got), kind)
			}
		}

		must(g.SyncAddrs(map[netip.Addr]verdict.AddrKind{addr(10): verdict.AddrVIP, addr(11): verdict.AddrVIP, addr(12): verdict.AddrVIP, addr(13): verdict.AddrHost}))
		check("replaced", "host_addrs", g.Unwritten(), 4, 0)
	})
	t.Run("lookup targets", func(t *testing.T) {
		l, err := OpenLookup(LookupOptions{PinDir: n.pinDir, Sizes: sizes})
		must(err)
		t.Cleanup(func() { l.Close() })

		want := map[verdict.ServiceKey]netip.AddrPort{}
		for port := range 6 {
			want[front(1+port)] = netip.AddrPortFrom(v4.node, 80)
		}

		for range 2 {
			_, err = l.Sync(want)
			must(err)
			check("full", "lookup_targets", l.Unwritten(), 4, 2)
		}

		clear(want)

		for port := range 4 {
			want[front(11+port)] = netip.AddrPortFrom(v4.node, 80)
		}

		_, err = l.Sync(want)
		must(err)
		check("replaced", "lookup_targets", l.Unwritten(), 4, 0)
	})
}

// TestSock_fullTables checks that of the services for host sockets those are left out as a whole
// that the tables have no room for, and that they are served when others go.
func TestSock_fullTables(t *testing.T) {
	h := newSockHost(t)

	s, err := OpenSock(CgroupOptions{PinDir: h.pinDir, CgroupPath: h.cgroup, NetnsCookie: h.cookie, Sizes: Sizes{"sock_frontends": 4, "sock_backends": 6}})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { s.Close() })

	service := func(i, frontends, backends int) SockService {
		p := SockPort{Proto: protoTCP}
		for f := range frontends {
			p.Frontends = append(p.Frontends, netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 96, byte(i), byte(f)}), 80))
		}

		for b := range backends {
			p.Backends = append(p.Backends, netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 244, byte(i), byte(b)}), 80))
		}

		out := SockService{Key: fmt.Sprint("ns/", i)}
		if frontends > 0 {
			out.Ports = []SockPort{p}
		}

		return out
	}
	for _, step := range []struct {
		name              string
		full              bool
		services          []SockService
		fronts, backs     int // in the tables
		noFronts, noBacks int
	}{
		{"room", true, []SockService{service(1, 1, 2), service(2, 1, 2)}, 2, 4, 0, 0},
		{"too many backends", false, []SockService{service(3, 1, 3)}, 2, 4, 1, 3},
		{"a smaller one has room", false, []SockService{service(4, 1, 2)}, 3, 6, 1, 3},
		{"backends change in a full table", false, []SockService{service(1, 1, 1)}, 3, 5, 1, 3},
		{"a larger one loses its room", false, []SockService{service(1, 1, 4)}, 2, 4, 2, 7},
		{"two go", false, []SockService{service(2, 0, 0), service(4, 0, 0)}, 1, 4, 1, 3},
		{"too many frontends", false, []SockService{service(5, 4, 0)}, 1, 4, 5, 3},
		{"all go", false, []SockService{service(1, 0, 0), service(3, 0, 0)}, 4, 0, 0, 0},
		{"replaced by as many", true, []SockService{service(6, 2, 3), service(7, 2, 3)}, 4, 6, 0, 0},
		{"one for another", false, []SockService{service(6, 0, 0), service(8, 2, 3)}, 4, 6, 0, 0},
		{"all for others", true, []SockService{service(1, 2, 3), service(2, 2, 3), service(3, 1, 1)}, 4, 6, 1, 1},
	} {
		sync := s.UpdateServices
		if step.full {
			sync = s.SyncServices
		}

		if _, err := sync(step.services); err != nil {
			t.Errorf("%s: %v", step.name, err)
		}

		want := map[string]int{"sock_frontends": step.noFronts, "sock_backends": step.noBacks}
		if diff := cmp.Diff(want, s.Unwritten()); diff != "" {
			t.Errorf("%s: unwritten (-want +got):\n%s", step.name, diff)
		}

		if fronts, backs := tableLen(t, s.objs.SockFrontends), tableLen(t, s.objs.SockBackends); fronts != step.fronts || backs != step.backs {
			t.Errorf("%s: %d frontends, %d backends; want %d, %d", step.name, fronts, backs, step.fronts, step.backs)
		}

		state, err := s.load()
		if err != nil {
			t.Fatal(err)
		}

		for front, to := range state.fronts {
			if n := len(state.sets[to.Set]); to.Set != 0 && n != int(to.Count) {
				t.Errorf("%s: frontend %v has %d backends, its set %d", step.name, front, to.Count, n)
			}
		}
	}
}
