package ovnd

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// TLS names the PEM files of a daemon. The daemons read them again when they change.
type TLS struct{ Key, Cert, CA string }

// options are the daemons' own flags for these files.
func (t TLS) options() []string {
	return []string{"--private-key=" + t.Key, "--certificate=" + t.Cert, "--ca-cert=" + t.CA}
}

// Central are OVN's two databases with northd, on each of one to several members.
type Central struct {
	Members []netip.Addr // of all members; the first one creates the databases
	Address netip.Addr   // of this member
	Dir     string       // of the databases
	RunDir  string       // of sockets and pid files
	TLS     TLS
}

// Validate returns what is wrong with the members.
func (c Central) Validate() error {
	if len(c.Members) == 0 {
		return fmt.Errorf("start OVN central: no members")
	}

	if !slices.Contains(c.Members, c.Address) {
		return fmt.Errorf("start OVN central: this node's address %s is none of the members %s",
			c.Address, join(c.Members))
	}

	return nil
}

// ParseMembers parses addresses separated by commas, each with or without the name of its node:
// NODE=ADDRESS.
func ParseMembers(text string) ([]netip.Addr, error) {
	var out []netip.Addr

	for part := range strings.SplitSeq(text, ",") {
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
	file   string // of the data, socket and control socket, without extension
	schema string
	port   uint16 // for clients over TLS
	raft   uint16 // between members
	// readOnly says that clients over TLS may not write. All clients of the unix socket may, which
	// is in the member's pod.
	readOnly bool
}

// NodePort is the port of the Southbound database for nodes (Central.Relay).
const NodePort = 6642

// relayName is the name of the relay's files.
const relayName = "ovnsb_relay"

// Databases returns both, the Northbound one first.
func Databases() [2]Database {
	return [2]Database{
		{"OVN_Northbound", "ovnnb_db", "ovn-nb.ovsschema", 6641, 6643, false},
		{"OVN_Southbound", "ovnsb_db", "ovn-sb.ovsschema", 6645, 6644, true},
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

func remote(a netip.Addr, port uint16) string { return "ssl:" + netip.AddrPortFrom(a, port).String() }

// others returns the other members.
func (c Central) others() []netip.Addr {
	return slices.DeleteFunc(slices.Clone(c.Members), func(m netip.Addr) bool { return m == c.Address })
}

// socket returns the remote of this member's own server, by which a client has no role.
func (c Central) socket(d Database) string { return "unix:" + c.path(d, ".sock") }

func (c Central) path(d Database, extension string) string {
	return c.RunDir + "/" + d.file + extension
}

func join(all []netip.Addr) string {
	var out []string
	for _, a := range all {
		out = append(out, a.String())
	}

	return strings.Join(out, ",")
}
