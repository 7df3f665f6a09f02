package agent

import (
	"log/slog"
	"net/netip"
	"slices"
	"syscall"

	"k8s.io/client-go/rest"

	"github.com/ovn-ebpf/ovn-ebpf/agent/cluster"
	"github.com/ovn-ebpf/ovn-ebpf/bpf"
)

// API returns the client configuration for the agent's own connections to the API server. The
// programs for the host's sockets do not translate these connections. If they did, an entry in
// their pinned tables for the API server's address could cut off all agents, and an agent that has
// no connection cannot learn that the entry must be removed.
//
// Cluster IPs are translated: the API server allocates them, so no tenant can have that of another
// Service, and nothing else serves them.
//
// The result is nil if c has no configuration for the API server.
func (c Config) API(log *slog.Logger) *rest.Config {
	if c.RestConfig == nil {
		return nil
	}

	config := rest.CopyConfig(c.RestConfig)
	if config.Dial == nil {
		config.Dial = cluster.Dial(socketExemption{c.PinDir, c.ServiceCIDRs, log}.control)
	}

	return config
}

// socketExemption excludes sockets from the translation by the programs for the host's sockets.
type socketExemption struct {
	pinDir   string
	services []netip.Prefix
	log      *slog.Logger
}

// control is net.Dialer.Control. It does not fail: without the exemption the connection is still
// likely to succeed.
func (e socketExemption) control(_, address string, conn syscall.RawConn) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil || e.isClusterIP(to.Addr().Unmap()) {
		return nil
	}

	var exemptErr error

	if err := conn.Control(func(fd uintptr) { exemptErr = bpf.ExemptSocket(e.pinDir, fd) }); err != nil {
		return err
	}

	if exemptErr != nil {
		e.log.Warn("connection to the API server may be translated", "to", to, "error", exemptErr)
	}

	return nil
}

func (e socketExemption) isClusterIP(a netip.Addr) bool {
	return slices.ContainsFunc(e.services, func(p netip.Prefix) bool { return p.Contains(a) })
}
