package ovnd

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// TLS names the PEM files of a daemon. The daemons read them again when they change.
type TLS struct{ Key, Cert, CA string }

// options returns the flags for these files. All daemons and tools have the same flags.
func (t TLS) options() []string {
	return []string{"--private-key=" + t.Key, "--certificate=" + t.Cert, "--ca-cert=" + t.CA}
}

// Central is OVN's control plane on one member: the servers of both databases, and northd. One or
// several members form the clusters of the databases.
type Central struct {
	Members []netip.Addr // of all members; the first one creates the databases
	Address netip.Addr   // of this member
	Dir     string       // of the databases
	RunDir  string       // of sockets and pid files
	TLS     TLS
}

// Validate returns an error if this member is not one of the members.
func (c Central) Validate() error {
	if len(c.Members) == 0 {
		return fmt.Errorf("start OVN central: no members")
	}

	if !slices.Contains(c.Members, c.Address) {
		return fmt.Errorf("start OVN central: this node's address %s is none of the members %s",
			c.Address, joinAddresses(c.Members))
	}

	return nil
}

// ParseMembers parses addresses separated by commas, each with or without the name of its node:
// NODE=ADDRESS.
func ParseMembers(text string) ([]netip.Addr, error) {
	var out []netip.Addr

	for part := range strings.SplitSeq(text, ",") {
		// Without "=", Index is -1, and the whole part is the address.
		a, err := netip.ParseAddr(strings.TrimSpace(part[strings.Index(part, "=")+1:]))
		if err != nil {
			return nil, fmt.Errorf("parse members %q: %w", text, err)
		}

		if slices.Contains(out, a) {
			return nil, fmt.Errorf("parse members %q: %s is there twice", text, a)
		}

		out = append(out, a)
	}

	return out, nil
}

// Database is one of OVN's two databases.
type Database struct {
	Name   string // in OVSDB
	file   string // name of the data file, the socket and the control socket, without extension
	schema string // name of the installed file
	port   uint16 // for clients over TLS
	raft   uint16 // port between members
	// readOnly forbids clients over TLS to write. Clients of the unix socket, which is in the member's
	// pod, may write.
	readOnly bool
}

// NodePort is the port of the Southbound database for nodes (Central.Relay).
const NodePort = 6642

// relayName is the name of the relay's files, without extension.
const relayName = "ovnsb_relay"

// Databases returns the Northbound and the Southbound database, in this order.
func Databases() [2]Database {
	return [2]Database{
		{
			Name: "OVN_Northbound", file: "ovnnb_db", schema: "ovn-nb.ovsschema",
			port: 6641, raft: 6643,
		},
		{
			Name: "OVN_Southbound", file: "ovnsb_db", schema: "ovn-sb.ovsschema",
			port: 6645, raft: 6644, readOnly: true,
		},
	}
}

// remotes returns the addresses of all members for clients.
func (c Central) remotes(d Database) string {
	var out []string
	for _, m := range c.Members {
		out = append(out, remote(m, d.port))
	}

	return strings.Join(out, ",")
}

// remote returns a member's address for clients, in OVSDB's syntax.
func remote(a netip.Addr, port uint16) string { return "ssl:" + netip.AddrPortFrom(a, port).String() }

// others returns the other members.
func (c Central) others() []netip.Addr {
	return slices.DeleteFunc(slices.Clone(c.Members), func(m netip.Addr) bool { return m == c.Address })
}

// socket returns the remote of this member's server over its unix socket, where no role restricts
// clients.
func (c Central) socket(d Database) string { return "unix:" + c.path(d, ".sock") }

// path returns the path of a database's socket (.sock) or control socket (.ctl).
func (c Central) path(d Database, extension string) string {
	return c.RunDir + "/" + d.file + extension
}

// joinAddresses returns the addresses separated by commas.
func joinAddresses(addresses []netip.Addr) string {
	var out []string
	for _, a := range addresses {
		out = append(out, a.String())
	}

	return strings.Join(out, ",")
}
