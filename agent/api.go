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

// API returns the client configuration for the agent's own connections to the API server. The eBPF
// programs that translate Services for the host's sockets leave these connections as they are.
// Otherwise an entry for the API server's address, in the pinned tables of the programs, could cut
// off all agents. An agent without a connection cannot learn that the entry must be removed.
//
// Connections to a cluster IP are translated nevertheless, because nothing else serves it. The API
// server allocates cluster IPs, so a tenant cannot take the cluster IP of another Service.
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

// socketExemption excludes sockets from the translation of Services.
type socketExemption struct {
	pinDir   string         // of the programs and their tables
	services []netip.Prefix // networks of cluster IPs
	log      *slog.Logger
}

// control is the Control of net.Dialer, which calls it before a socket connects. A failed exemption
// is only logged, because the connection is still likely to succeed.
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
