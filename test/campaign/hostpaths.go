package campaign

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/netip"
	"time"

	"k8s.io/client-go/rest"

	"github.com/ovn-ebpf/ovn-ebpf/test/lab"
)

// Ports of a host's traffic, at which the attacks aim.
const (
	dnsPort, ntpPort, kubeletPort = 53, 123, 10250

	ephemeralPort = 40001 // one of those from which the kernel chooses
	boundPort     = 8091  // chosen by the program that connects
	reservedPort  = 31007 // the same, one of the NodePorts
)

// apiPort is the API server's, and the others are those of OVN's databases: Northbound, Southbound,
// between their members, and of the controller's own Southbound.
const (
	apiPort                = 6443
	northPort, southPort   = 6641, 6642
	northRaft, southRaft   = 6643, 6644
	southPortForController = 6645
)

// Ports of a node's scheduler and controller manager. Like its resolver at dnsPort, they listen only
// at loopback addresses.
const schedulerPort, managerPort = 10259, 10257

// atLoopback are the servers of node2 at loopback addresses.
var atLoopback = []struct {
	kind string
	at   netip.AddrPort
}{
	{"query", netip.MustParseAddrPort("127.0.0.53:53")},
	{"tcp", netip.MustParseAddrPort("127.0.0.1:10259")},
	{"tcp", netip.MustParseAddrPort("127.0.0.1:10257")},
}

// socketsKnown is the time after which agents know a new UDP socket of their host
// (docs/services.md). Until then a host port can take its datagrams.
const socketsKnown = 35 * time.Second

// serveHost starts the servers of node1 and node2 at which the attacks aim.
func (g *ground) serveHost(ctx context.Context) error {
	for _, port := range []int{kubeletPort, dnsPort, ntpPort} {
		if err := g.serve(ctx, "node1", "node1", port); err != nil {
			return err
		}
	}

	for i, s := range atLoopback {
		protocol := "-tcp"
		if s.kind == "query" {
			protocol = "-udp"
		}

		_, err := g.Serve(ctx, "node2", fmt.Sprint("serve-loopback-", i), "-name", "node2", protocol, s.at.String())
		if err != nil {
			return err
		}
	}

	g.served = time.Now()

	return nil
}

// hostPaths returns the paths of the victim and all kinds of host traffic. Listeners of a host lose
// new connections to a load balancer that announces the host's address, and to host ports
// (docs/services.md), so new connections are to kept ports. What a tenant must not take: datagrams
// to UDP sockets, connections that exist, and all that a host itself begins.
func (g *ground) hostPaths() ([]*Path, error) {
	config, err := g.RestConfig()
	if err != nil {
		return nil, err
	}

	trust, err := rest.TLSConfigFor(config)
	if err != nil {
		return nil, err
	}

	trust = &tls.Config{RootCAs: trust.RootCAs, ServerName: trust.ServerName, InsecureSkipVerify: true} //nolint:gosec // any answer counts, at any address
	node1 := func(port uint16) func(bool) netip.AddrPort {
		return func(v6 bool) netip.AddrPort {
			return netip.AddrPortFrom(choose(v6, g.Node(1).IP4, g.Node(1).IP6), port)
		}
	}
	to := func(v6 bool) netip.AddrPort { return netip.AddrPortFrom(outside(v6), outsidePort) }

	var out []*Path

	for _, p := range g.paths() {
		if p.Name == "host to host" {
			p.Kinds = []string{"udp"}
		}

		out = append(out, p)
	}

	out = append(out,
		&Path{Name: "host to host", Host: true, From: "node2", To: node1(kubeletPort), Kinds: []string{"tcp"}},
		&Path{Name: "outside to host", Host: true, From: "ext", To: node1(hostPort), Kinds: []string{"held"}},
		&Path{Name: "outside to DNS and NTP of host", Host: true, From: "ext", To: node1(dnsPort), Kinds: []string{"udp"}},
		&Path{Name: "outside to DNS and NTP of host", Host: true, From: "ext", To: node1(ntpPort), Kinds: []string{"udp"}},
		&Path{Name: "host to API server", Host: true, From: "node1", Only4: true, Kinds: []string{"https"}, TLS: trust, To: func(bool) netip.AddrPort {
			return netip.AddrPortFrom(netip.MustParseAddr(lab.CentralIP4), apiPort)
		}},
	)
	for _, port := range []uint16{northPort, southPort} {
		out = append(out, &Path{
			Name: fmt.Sprintf("host to OVN's database at port %d", port), Host: true,
			From: "node1", Only4: true, Kinds: []string{"ovsdb"},
			To: func(bool) netip.AddrPort { return netip.AddrPortFrom(netip.MustParseAddr(lab.CentralIP4), port) },
		})
	}

	for _, s := range atLoopback {
		out = append(out, &Path{
			Name: "host to its own server at " + s.at.String(), Host: true,
			From: "node2", Only4: true, Kinds: []string{s.kind}, Server: "node2 ",
			To: func(bool) netip.AddrPort { return s.at },
		})
	}

	for _, port := range []int{ephemeralPort, boundPort, reservedPort} {
		out = append(out, &Path{Name: fmt.Sprintf("host to outside from port %d", port), Host: true, From: "node1", To: to, Kinds: []string{"udp", "held"}, Port: port})
	}

	return out, nil
}
