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

// apiPort is the API server's.
const apiPort = 6443

// socketsKnown is the time after which agents know a new UDP socket of their host
// (docs/services.md). Until then a host port can take its datagrams.
const socketsKnown = 35 * time.Second

// serveHost starts the servers of node1 at which the attacks aim.
func (g *ground) serveHost(ctx context.Context) error {
	for _, port := range []int{kubeletPort, dnsPort, ntpPort} {
		if err := g.serve(ctx, "node1", "node1", port); err != nil {
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
	for _, port := range []int{ephemeralPort, boundPort, reservedPort} {
		out = append(out, &Path{Name: fmt.Sprintf("host to outside from port %d", port), Host: true, From: "node1", To: to, Kinds: []string{"udp", "held"}, Port: port})
	}
	return out, nil
}
