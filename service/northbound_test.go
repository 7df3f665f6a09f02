package service_test

import (
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/ovn-ebpf/ovn-ebpf/cluster"
	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
	"github.com/ovn-ebpf/ovn-ebpf/controller/reconcile"
)

// northbound is what the controller writes about Services and host ports.
type northbound struct {
	balancers []plan.LoadBalancer
	drops     []drop
}

// drop is an ACL of source ranges.
type drop struct {
	proto string
	at    []netip.Prefix
	ports []string
	from  []netip.Prefix
}

var dropMatch = regexp.MustCompile(`^ip[46]\.dst == (.*) && (\w+)\.dst == (.*) && ip[46]\.src == (.*)$`)

func newDrop(t *testing.T, match string) drop {
	t.Helper()

	m := dropMatch.FindStringSubmatch(match)
	if m == nil {
		t.Fatalf("an ACL that this test cannot read: %s", match)
	}

	set := func(text string) []string { return strings.Split(strings.Trim(text, "{}"), ", ") }
	networks := func(text string) (out []netip.Prefix) {
		for _, s := range set(text) {
			if a, err := netip.ParseAddr(s); err == nil {
				out = append(out, netip.PrefixFrom(a, a.BitLen()))
			} else {
				out = append(out, netip.MustParsePrefix(s))
			}
		}

		return out
	}

	return drop{proto: m[2], at: networks(m[1]), ports: set(m[3]), from: networks(m[4])}
}

// admits reports whether no ACL drops what the client sends to the frontend.
func (nb northbound) admits(f frontend, client netip.Addr) bool {
	return !slices.ContainsFunc(nb.drops, func(d drop) bool {
		return d.proto == f.proto && cluster.Contains(d.at, f.at.Addr()) && slices.Contains(d.ports, strconv.Itoa(int(f.at.Port()))) && cluster.Contains(d.from, client)
	})
}

func (w *world) cluster(t *testing.T) *plan.Cluster {
	t.Helper()

	var objects []runtime.Object
	for _, n := range w.nodes {
		objects = append(objects, n)
	}

	for _, o := range w.objects {
		if o.Service != nil {
			objects = append(objects, o.Service)
		}

		if o.Pod != nil {
			objects = append(objects, o.Pod)
		}

		for _, s := range o.Slices {
			objects = append(objects, s)
		}
	}

	c, err := reconcile.NewCluster(w.cfg, objects...)
	if err != nil {
		t.Fatal(err)
	}

	c.Servers = database

	return c
}

func (w *world) northbound(t *testing.T) northbound {
	t.Helper()
	c := w.cluster(t)

	var out northbound

	for _, k := range c.Keys() {
		rows, _ := plan.Rows(c, k) // the error is what is not served
		for _, r := range rows {
			switch r := r.(type) {
			case plan.LoadBalancer:
				out.balancers = append(out.balancers, r)
			case plan.ACL:
				if k.Kind == plan.KindService {
					out.drops = append(out.drops, newDrop(t, r.Match))
				}
			}
		}
	}

	return out
}

// vipsOf returns what clients at the node's switch or router reach.
func vipsOf(all []plan.LoadBalancer, group, switchName, router string) map[frontend]string {
	out := map[frontend]string{}

	for _, lb := range all {
		if slices.Contains(lb.Groups, "clusterLBGroup") || slices.Contains(lb.Groups, group) ||
			slices.Contains(lb.Switches, switchName) || slices.Contains(lb.Routers, router) {
			for vip, to := range lb.VIPs {
				out[frontend{lb.Protocol, netip.MustParseAddrPort(vip)}] = to
			}
		}
	}

	return out
}
