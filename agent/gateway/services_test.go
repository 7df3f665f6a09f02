package gateway

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"

	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/agent/service"
	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// TestServiceWrites checks that among 10,000 Services with 50,000 pods, a change causes only the
// writes of its own Service.
func TestServiceWrites(t *testing.T) {
	r := newServingRig(t)
	r.fill()

	if got := r.sync(t); got < manyServices*2*podsEach {
		t.Errorf("%d writes, fewer than there are endpoints", got)
	}
	// 2,500 node ports on three addresses and 1,000 load balancer addresses.
	if got := r.entries(t); got != 2500*3+1000 {
		t.Errorf("the gateway has %d frontends, want %d", got, 2500*3+1000)
	}

	for _, step := range []struct {
		name    string
		i, pods int // pods < 0: deleted
		most    int // writes: frontends and backends of the one Service
		entries int // of the gateway, as they change
	}{
		{"nothing", 8, podsEach, 0, 0},
		// A pod is a backend per family. Every frontend stores the number of backends.
		{"one pod more", 8, podsEach + 1, 2 + 4, 0},
		{"one pod less", 8, podsEach, 2 + 4, 0},
		{"no pods", 8, 0, 2*podsEach + 4, 0},
		{"pods again", 8, podsEach, 2*podsEach + 4, 0},
		{"a new Service", manyServices + 4000, podsEach, 2*podsEach + 2 + 2, 1},
		{"it goes", manyServices + 4000, -1, 2*podsEach + 2 + 2, -1},
		{"one with a node port goes", 8, -1, 2*podsEach + 4 + 3, -3},
		{"and comes back", 8, podsEach, 2*podsEach + 4 + 3, 3},
	} {
		before, o := r.entries(t), service.Objects{}
		if step.pods >= 0 {
			o = numbered(step.i, step.pods)
		}

		r.set(serviceKey(step.i), o)
		writes, entries := r.sync(t), r.entries(t)-before
		t.Logf("%s: %d writes", step.name, writes)

		if writes > step.most || writes == 0 && step.most > 0 {
			t.Errorf("%s: %d writes, want at most %d", step.name, writes, step.most)
		}

		if entries != step.entries {
			t.Errorf("%s: %d frontends more at the gateway, want %d", step.name, entries, step.entries)
		}
	}
}

// TestRestartAdoptsServiceTables checks that a restart adopts the tables and removes entries that
// became stale meanwhile. An unknown cluster state changes nothing.
func TestRestartAdoptsServiceTables(t *testing.T) {
	r := newServingRig(t)
	for i := range 3 {
		r.objects[serviceKey(4*i)] = numbered(4*i, 1)
	}

	r.sync(t)

	want := 3*3 + 1
	if got := r.entries(t); got != want {
		t.Fatalf("%d frontends, want %d", got, want)
	}

	r.restart(t)

	r.listed = false
	r.planChanges(r.node)

	if r.planned || r.writeChanges() != nil || r.entries(t) != want {
		t.Errorf("%d frontends before the cluster is known, want %d", r.entries(t), want)
	}

	r.listed = true
	delete(r.objects, serviceKey(4)) // while no agent ran

	if r.sync(t); r.entries(t) != want-3 {
		t.Errorf("%d frontends after the restart, want %d", r.entries(t), want-3)
	}
	// Its pods move to the host's network: three frontends change owner, and get a target.
	web := numbered(8, 1)
	web.Service.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	r.set(serviceKey(8), web)
	r.sync(t)

	here := numbered(8, 1)

	here.Service.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	for i, s := range here.Slices {
		s.Endpoints[0].Addresses[0], s.Endpoints[0].NodeName = []string{"172.30.0.11", "fd00:172:30::11"}[i], &r.node.Name
	}

	r.set(serviceKey(8), here)

	if writes, most := r.sync(t), 3+3+2; writes != most {
		t.Errorf("to the host's network: %d writes, want %d: owners, targets and backends", writes, most)
	}

	r.set(serviceKey(8), numbered(8, 1))
	r.sync(t)
	// Another node address changes all of them, without any event.
	r.node.Addresses = r.node.Addresses[:1]
	if r.sync(t); r.entries(t) != 2+1 {
		t.Errorf("%d frontends with one address, want %d", r.entries(t), 3)
	}
	// After a failed write, the tables are written in full as soon as possible.
	r.programs.Load().Close()
	r.set(serviceKey(4), numbered(4, 1))

	if r.planChanges(r.node); r.writeChanges() == nil {
		t.Error("written to closed tables")
	}

	r.open(t)

	if r.sync(t); r.entries(t) != 3+1 {
		t.Errorf("%d frontends afterwards, want %d", r.entries(t), 4)
	}
}

// TestGone checks that a removed UDP endpoint is reported once, and not if it is back.
func TestGone(t *testing.T) {
	r := newServingRig(t)
	dns := func(pods int) service.Objects {
		o, proto := numbered(1, pods), corev1.ProtocolUDP

		o.Service.Spec.Ports[0].Protocol = proto
		for _, s := range o.Slices {
			s.Ports[0].Protocol = &proto
		}

		return o
	}
	gone := func(want ...string) {
		t.Helper()

		var addrs []netip.AddrPort
		for _, s := range want {
			addrs = append(addrs, netip.MustParseAddrPort(s))
		}

		if diff := cmp.Diff(addrs, r.takeGone(), cmpopts.EquateComparable(netip.AddrPort{}), cmpopts.EquateEmpty()); diff != "" {
			t.Error(diff)
		}
	}

	r.set(serviceKey(1), dns(2))
	r.sync(t)
	gone()
	r.set(serviceKey(1), dns(1))
	r.sync(t)
	gone("10.240.0.9:8080", "[fd00:10:244::9]:8080")
	gone()
	r.set(serviceKey(1), dns(0))
	r.sync(t)
	r.set(serviceKey(1), dns(1))
	r.sync(t)
	gone()
	// A new agent finds removed endpoints in the tables.
	r.restart(t)
	r.objects[serviceKey(1)] = dns(0)
	r.sync(t)
	gone("10.240.0.8:8080", "[fd00:10:244::8]:8080")
}

// TestServicesOwnLoop checks that the Services' loop writes changes of Services. It defers to the
// gateway's loop before the first round, when a Service address is added or removed, after an
// error, and where flows hold the frontends.
func TestServicesOwnLoop(t *testing.T) {
	r := newServingRig(t)
	s := r.Services
	s.close() // the gateway's table alone

	round := func() {
		t.Helper()

		if s.planChanges(r.node); s.write(s.programs.Load()) != nil {
			t.Error("not written")
		}
	}
	check := func(what string, alone bool, entries int) {
		t.Helper()

		if got := s.updateAlone(); got != alone {
			t.Errorf("%s: without a round of the gateway: %t, want %t", what, got, alone)
		}

		if got := r.entries(t); got != entries {
			t.Errorf("%s: %d frontends, want %d", what, got, entries)
		}
	}

	r.set(serviceKey(4), numbered(4, 1))
	check("before the first round", false, 0)
	round()
	check("nothing changed", true, 3)
	r.set(serviceKey(8), numbered(8, 1))
	check("a node port", true, 6)
	r.set(serviceKey(10), numbered(10, 1))
	check("a load balancer's address", false, 6)
	check("and again", false, 6)
	round()
	r.set(serviceKey(8), service.Objects{})
	check("a Service that goes", true, 4)
	r.set(serviceKey(10), service.Objects{})
	check("an address that goes", false, 4)
	round()

	s.settings.Layout, s.settings.Backend = verdict.Bridged, OpenFlow

	check("flows", false, 3)

	s.settings.Backend = EBPF

	r.programs.Load().Close()
	r.set(serviceKey(8), numbered(8, 1))

	for range 2 {
		if s.updateAlone() {
			t.Error("written to closed tables")
		}
	}
}

// TestServicesRestInProportion checks that the pause before a change of Services is in proportion to
// the work before it, has an upper bound, and ends early when the context ends.
func TestServicesRestInProportion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s Services

		work := func(d time.Duration) {
			s.mu.Lock()
			defer s.mu.Unlock()
			defer s.pacer.startWork()()

			time.Sleep(d)
		}
		rest := func(want time.Duration) {
			t.Helper()

			began := time.Now()

			if !s.rest(t.Context()) {
				t.Error("the loop ends")
			}

			if got := time.Since(began); got != want {
				t.Errorf("waited %v, want %v", got, want)
			}
		}
		rest(0) // before the first change
		work(time.Millisecond)
		rest(restFactor * time.Millisecond)
		rest(0)
		work(time.Millisecond) // the Services' loop plans, and the gateway's loop writes
		work(time.Millisecond)
		time.Sleep(10 * time.Millisecond)
		rest((2*restFactor - 10) * time.Millisecond)

		for range 3 { // rounds of the gateway between which there is time do not add up
			work(time.Millisecond)
			time.Sleep(time.Second)
		}

		work(time.Millisecond)
		rest(restFactor * time.Millisecond)
		work(time.Minute)
		rest(longestRest)
		work(time.Minute)
		time.Sleep(longestRest)
		rest(0)
		work(time.Minute)

		ctx, cancel := context.WithCancel(t.Context())
		cancel()

		if s.rest(ctx) {
			t.Error("the loop continues after its end")
		}
	})
}

func TestServiceNode(t *testing.T) {
	h := Host{Addresses: []link.Address{address("172.30.0.11/24", "eth0"), address("fe80::1/64", "eth0"), address("10.244.0.2/24", "ovn-k8s-mp0")}}
	n := Node{
		Addresses: []netip.Prefix{netip.MustParsePrefix("172.30.0.11/24")},
		HostCIDRs: []netip.Prefix{netip.MustParsePrefix("172.30.0.11/24"), netip.MustParsePrefix("172.30.0.77/24")},
	}
	s := &Services{
		settings: Settings{Wiring: Wiring{Backend: EBPF}},
		source:   Source{Node: "node1", Zone: func() string { return "zone1" }, Nodes: func() int { return 9 }},
	}
	f := facts{hosts: []netip.Addr{netip.MustParseAddr("172.30.0.12")}, joins: []netip.Prefix{netip.MustParsePrefix("100.64.0.0/16")}}

	got := s.serviceNode(h, n, f)
	if got.Name != "node1" || got.Zone != "zone1" || !got.Lookup || len(got.Addresses) != 2 || len(got.Own) != 3 {
		t.Errorf("node %+v", got)
	}

	if got.Nodes != 16 {
		t.Errorf("%d nodes for budgets, want 9, rounded up to a power of two", got.Nodes)
	}

	if !slices.Equal(got.Hosts, f.hosts) || !slices.Equal(got.Cluster.Join, f.joins) {
		t.Errorf("node %+v, want what the gateway was told", got)
	}

	// Node ports are served only at addresses that the cluster trusts.
	s.source.TrustedHosts = func(addresses []netip.Prefix) []netip.Prefix {
		return slices.DeleteFunc(slices.Clone(addresses), func(p netip.Prefix) bool { return p.Addr() == n.HostCIDRs[1].Addr() })
	}
	if trusting := s.serviceNode(h, n, f); !slices.Equal(trusting.Addresses, got.Addresses[:1]) || len(trusting.Own) != 3 || len(n.HostCIDRs) != 2 {
		t.Errorf("addresses %v, own %v; want only the trusted address, and all own ones", trusting.Addresses, trusting.Own)
	}

	for _, without := range []Settings{{Wiring: Wiring{Backend: OpenFlow}}, {Wiring: s.settings.Wiring, NoEBPF: "no kernel for it"}} {
		if s.settings = without; s.serviceNode(h, n, f).Lookup {
			t.Errorf("%+v: no program gives packets to sockets", without)
		}
	}
}

// TestWriteErrors checks that an error names the table.
func TestWriteErrors(t *testing.T) {
	r := newServingRig(t)
	r.set(serviceKey(8), numbered(8, 1))

	fails := func(theirs bool) {
		t.Helper()

		if r.planChanges(r.node); !r.planned {
			t.Fatal("the cluster is not known")
		}

		if err := r.writeChanges(); err == nil || errors.As(err, &sockError{}) != theirs {
			t.Errorf("error %v: of the sockets' tables %t, want %t", err, !theirs, theirs)
		}
	}

	if err := r.lookup.Close(); err != nil {
		t.Fatal(err)
	}

	fails(false)
	r.restart(t)

	if err := r.sock.Close(); err != nil {
		t.Fatal(err)
	}

	fails(true)
}
