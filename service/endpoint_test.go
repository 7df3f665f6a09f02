package service_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/service"
)

// manyEndpoints returns ready endpoints, 100 on each node, sorted by address.
func manyEndpoints(n int) []service.Endpoint {
	var out []service.Endpoint

	for i := range n {
		a := netip.AddrFrom4([4]byte{10, 244, byte(i / 100), byte(1 + i%100)})
		out = append(out, service.Endpoint{Addr: netip.AddrPortFrom(a, 8080), State: service.Ready, Node: fmt.Sprint("node", i/100)})
	}

	return out
}

// TestUsable_isBounded: of too many endpoints, each order of them gives the same ones, sorted by
// address. They are on all nodes. If an endpoint is removed, at most one other takes its place.
func TestUsable_isBounded(t *testing.T) {
	const limit = service.MaxFrontendBackends
	if all := manyEndpoints(limit); len(service.Usable(all)) != limit || service.ExceedsBackends(all) {
		t.Errorf("of %d endpoints, %d are used; exceeds %t", limit, len(service.Usable(all)), service.ExceedsBackends(all))
	}

	all := manyEndpoints(1000)

	used := service.Usable(all)
	if len(used) != limit || !service.ExceedsBackends(all) {
		t.Fatalf("of %d endpoints, %d are used; exceeds %t", len(all), len(used), service.ExceedsBackends(all))
	}

	if !slices.IsSortedFunc(used, func(a, b service.Endpoint) int { return a.Addr.Compare(b.Addr) }) {
		t.Error("not sorted by address")
	}

	perNode := map[string]int{}
	for _, e := range used {
		perNode[e.Node]++
	}

	for n := range 10 {
		if got := perNode[fmt.Sprint("node", n)]; got < 20 || got > 60 {
			t.Errorf("%d of 100 endpoints on node%d are used, want about 40", got, n)
		}
	}

	shuffled := slices.Clone(all)
	rand.New(rand.NewPCG(1, 2)).Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })

	if again := service.Usable(shuffled); !slices.EqualFunc(again, used, same) {
		t.Error("another order of the endpoints gives other ones")
	}

	for i := range all {
		without := service.Usable(slices.Delete(slices.Clone(all), i, i+1))
		changed := 0

		for _, e := range without {
			if !slices.ContainsFunc(used, func(u service.Endpoint) bool { return same(u, e) }) {
				changed++
			}
		}

		if changed > 1 || len(without) != limit {
			t.Fatalf("without %s: %d endpoints, and %d of them are new", all[i].Addr, len(without), changed)
		}
	}
}

func same(a, b service.Endpoint) bool { return a.Addr == b.Addr }
