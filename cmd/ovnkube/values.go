package main

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/ovn-ebpf/ovn-ebpf/controller/nb"
)

// The types below are flag.Values. Each parses one kind of argument and describes its mistakes.

// prefixes is a comma-separated list of CIDRs.
type prefixes []netip.Prefix

func (p *prefixes) String() string { return joined(*p) }

func (p *prefixes) Set(s string) error { return setList(p, s, parseCIDR) }

// optionalPrefixes are prefixes; "" is an empty list.
type optionalPrefixes struct{ *prefixes }

func (p optionalPrefixes) String() string {
	if p.prefixes == nil {
		return ""
	}

	return p.prefixes.String()
}

func (p optionalPrefixes) Set(s string) error {
	if s == "" {
		*p.prefixes = nil
		return nil
	}

	return p.prefixes.Set(s)
}

// tunnelRanges are optional prefixes, at most maxTunnelRanges of a family.
type tunnelRanges struct{ optionalPrefixes }

// maxTunnelRanges is the number of prefixes for which the configuration of the eBPF programs has
// room (MAX_PREFIXES in bpf/types.h).
const maxTunnelRanges = 4

func (r tunnelRanges) Set(s string) error {
	var list prefixes
	if err := (optionalPrefixes{&list}).Set(s); err != nil {
		return err
	}

	count4, count6 := 0, 0

	for _, p := range list {
		if p.Addr().Is4() {
			count4++
		} else {
			count6++
		}
	}

	if max(count4, count6) > maxTunnelRanges {
		return fmt.Errorf("%d IPv4 and %d IPv6 networks: at most %d of a family",
			count4, count6, maxTunnelRanges)
	}

	*r.prefixes = list

	return nil
}

// parseCIDR parses a network. It refuses addresses inside of a network, such as 10.0.0.1/8, because
// they are usually typos.
func parseCIDR(s string) (netip.Prefix, error) {
	prefix, err := netip.ParsePrefix(s)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("%q is no CIDR", s)
	}

	if prefix.Masked() != prefix {
		return netip.Prefix{}, fmt.Errorf("%q has bits set behind its mask, %s has not", s, prefix.Masked())
	}

	return prefix, nil
}

// clusterSubnet is a pod network of the cluster, and the prefix length of each node's part of it.
type clusterSubnet struct {
	prefix  netip.Prefix
	hostLen int
}

func (c clusterSubnet) String() string { return fmt.Sprintf("%s/%d", c.prefix, c.hostLen) }

// clusterSubnets is a comma-separated list of CIDR[/HOSTLEN]. The default host prefix length is 24
// for IPv4 and 64 for IPv6.
type clusterSubnets []clusterSubnet

func (c *clusterSubnets) String() string { return joined(*c) }

func (c *clusterSubnets) Set(s string) error { return setList(c, s, parseClusterSubnet) }

func parseClusterSubnet(s string) (clusterSubnet, error) {
	cidr, hostLen := s, ""
	if strings.Count(s, "/") == 2 {
		i := strings.LastIndex(s, "/")
		cidr, hostLen = s[:i], s[i+1:]
	}

	prefix, err := parseCIDR(cidr)
	if err != nil {
		return clusterSubnet{}, err
	}

	subnet := clusterSubnet{prefix: prefix, hostLen: 24}
	if prefix.Addr().Is6() {
		subnet.hostLen = 64
	}

	if hostLen != "" {
		if subnet.hostLen, err = strconv.Atoi(hostLen); err != nil {
			return clusterSubnet{}, fmt.Errorf("host prefix length %q of %q is no number", hostLen, s)
		}
	}

	// A part with fewer than four addresses is too small for a node.
	if subnet.hostLen < prefix.Bits() || subnet.hostLen > prefix.Addr().BitLen()-2 {
		return clusterSubnet{}, fmt.Errorf("host prefix length %d does not fit in %s", subnet.hostLen, prefix)
	}

	return subnet, nil
}

func (c *clusterSubnets) prefixes() []netip.Prefix {
	list := []netip.Prefix{}
	for _, s := range *c {
		list = append(list, s.prefix)
	}

	return list
}

// addresses is a comma-separated list of IP addresses.
type addresses []netip.Addr

func (a *addresses) String() string { return joined(*a) }

func (a *addresses) Set(s string) error {
	return setList(a, s, func(part string) (netip.Addr, error) {
		addr, err := netip.ParseAddr(part)
		if err != nil {
			return addr, fmt.Errorf("%q is no IP address", part)
		}

		return addr, nil
	})
}

// optionalAddress is an IP address; "" is none.
type optionalAddress struct{ addr netip.Addr }

func (o *optionalAddress) String() string {
	if !o.addr.IsValid() {
		return ""
	}

	return o.addr.String()
}

func (o *optionalAddress) Set(s string) error {
	if s == "" {
		o.addr = netip.Addr{}
		return nil
	}

	addr, err := netip.ParseAddr(s)
	if err != nil {
		return fmt.Errorf("%q is not one address", s)
	}

	o.addr = addr

	return nil
}

// oneNetwork is one network of a given IP family.
type oneNetwork struct {
	*prefixes
	isV4 bool
}

func (n oneNetwork) String() string {
	if n.prefixes == nil {
		return ""
	}

	return n.prefixes.String()
}

func (n oneNetwork) Set(s string) error {
	var list prefixes
	if err := list.Set(s); err != nil {
		return err
	}

	if len(list) != 1 || list[0].Addr().Is4() != n.isV4 {
		return fmt.Errorf("%q is not one %s network", s, map[bool]string{true: "IPv4", false: "IPv6"}[n.isV4])
	}

	*n.prefixes = list

	return nil
}

// setList parses the parts of a comma-separated list. After an error, the list is unchanged.
func setList[L ~[]T, T any](list *L, s string, parse func(part string) (T, error)) error {
	out := L{}

	for part := range strings.SplitSeq(s, ",") {
		v, err := parse(strings.TrimSpace(part))
		if err != nil {
			return err
		}

		out = append(out, v)
	}

	*list = out

	return nil
}

// joined returns the list separated by commas.
func joined[T fmt.Stringer](list []T) string {
	parts := []string{}
	for _, v := range list {
		parts = append(parts, v.String())
	}

	return strings.Join(parts, ",")
}

// The functions below check settings that remain strings.

// optional returns check for a setting that may be empty.
func optional(check func(string) error) func(string) error {
	return func(s string) error {
		if s == "" {
			return nil
		}

		return check(s)
	}
}

func checkHostPort(s string) error {
	_, port, err := net.SplitHostPort(s)
	if err != nil {
		return fmt.Errorf("%q is not an address with a port like 0.0.0.0:9410", s)
	}

	return checkPort(port, s)
}

// checkPort checks the port of an address.
func checkPort(port, address string) error {
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return fmt.Errorf("port %q of %q is not 1..65535", port, address)
	}

	return nil
}

func checkAbsolute(s string) error {
	if filepath.IsAbs(s) {
		return nil
	}

	return fmt.Errorf("%q is not an absolute path", s)
}

// checkDatabaseAddresses checks the addresses of an OVN database.
func checkDatabaseAddresses(s string) error {
	_, err := nb.Parse(s)
	return err
}

// serverURL is the URL of an API server. HOST:PORT is plain HTTP, as in ovn-kubernetes' first
// releases.
type serverURL struct{ p *string }

func (u serverURL) String() string {
	if u.p == nil {
		return ""
	}

	return *u.p
}

func (u serverURL) Set(s string) error {
	if s == "" || strings.Contains(s, "://") {
		parsed, err := url.Parse(s)
		if s != "" &&
			(err != nil || parsed.Scheme != "http" && parsed.Scheme != "https" || parsed.Host == "") {
			return fmt.Errorf("%q is no URL like https://192.0.2.1:6443", s)
		}

		*u.p = s

		return nil
	}

	host, port, err := net.SplitHostPort(s)
	if err != nil || host == "" || strings.ContainsAny(s, "/?#@ ") {
		return fmt.Errorf("%q is neither a URL like https://192.0.2.1:6443 nor HOST:PORT like 127.0.0.1:8080 or [::1]:8080, which is plain HTTP",
			s)
	}

	if err := checkPort(port, s); err != nil {
		return err
	}

	*u.p = "http://" + s

	return nil
}
