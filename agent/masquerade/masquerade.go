package masquerade

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/agent/service"
	"github.com/ovn-ebpf/ovn-ebpf/cluster"
	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// Table is the name of the nftables table, of family inet.
const Table = "ovn_ebpf"

// Config selects the packets to translate.
type Config struct {
	Port     string         // the management port, ovn-k8s-mp0
	Uplinks  []string       // devices through which pod traffic leaves and replies return
	Pods     []netip.Prefix // subnets of the node's pods, which are masqueraded
	Cluster  []netip.Prefix // destinations without masquerading: pods of all nodes, and services
	Routable []netip.Prefix // those of Pods with routable addresses, which are not masqueraded
	// Ports is the range of source ports of masqueraded connections, reserved for pods. Otherwise a
	// pod that binds port 22 would leave from port 22 of the host, and a peer's next connection to
	// that port would be taken for a reply to the pod.
	Ports cluster.PortRange
	// Tunnels are the networks to which pods may send Geneve packets, except to Hosts, which are
	// addresses of other nodes.
	Tunnels []netip.Prefix
	Hosts   []netip.Addr
	// Redirects maps frontends of Services to the destinations of their traffic.
	Redirects map[verdict.ServiceKey]service.Redirect
}

// Validate returns an error for a missing or invalid field.
func (c Config) Validate() error {
	for _, d := range append([]string{c.Port}, c.Uplinks...) {
		if d == "" || len(d) > 15 || strings.ContainsAny(d, "\"\\/ \n") {
			return fmt.Errorf("device name %q", d)
		}
	}

	if len(c.Pods) == 0 {
		return errors.New("no pod subnet")
	}

	if !c.Ports.IsValid() {
		return fmt.Errorf("port range %s", c.Ports)
	}

	for _, p := range slices.Concat(c.Pods, c.Cluster, c.Routable, c.Tunnels) {
		if !p.IsValid() {
			return fmt.Errorf("prefix %s", p)
		}
	}

	for _, a := range c.Hosts {
		if !a.IsValid() {
			return fmt.Errorf("host address %s", a)
		}
	}

	return nil
}

// Script returns the transaction that replaces the table by the one for c. Existing connections
// keep their address. TestScript has a whole table. The rules of the chain postrouting are, in
// their order, with an example of their addresses:
//
//	oifname { "lo", "ovn-k8s-mp0" } return                          # stays on the node
//	ip saddr { 10.244.1.128/25 } return                             # Routable
//	ip saddr { 10.244.1.0/24 } ip daddr { 10.244.0.0/16 } return    # to pods and services
//	ip saddr { 10.244.1.0/24 } meta l4proto { tcp, udp, sctp } masquerade to :49152-65535
//	ip saddr { 10.244.1.0/24 } masquerade                           # other protocols, such as ICMP
func Script(c Config) string {
	var b strings.Builder

	// The first line makes the second one succeed without a table.
	fmt.Fprintf(&b, "table inet %s\ndelete table inet %[1]s\ntable inet %[1]s {\n", Table)
	b.WriteString("\tchain postrouting {\n\t\ttype nat hook postrouting priority srcnat; policy accept;\n")
	fmt.Fprintf(&b, "\t\toifname { \"lo\", %q } return\n", c.Port)

	for _, family := range families {
		pods := set(c.Pods, family.is)
		if pods == "" {
			continue
		}

		if s := set(c.Routable, family.is); s != "" {
			fmt.Fprintf(&b, "\t\t%s saddr { %s } return\n", family.ip, s)
		}

		if s := set(slices.Concat(c.Cluster, c.Pods), family.is); s != "" {
			fmt.Fprintf(&b, "\t\t%s saddr { %s } %[1]s daddr { %[3]s } return\n", family.ip, pods, s)
		}

		fmt.Fprintf(&b, "\t\t%s saddr { %s } meta l4proto { tcp, udp, sctp } masquerade to :%d-%d\n",
			family.ip, pods, c.Ports.First, c.Ports.Last)
		fmt.Fprintf(&b, "\t\t%s saddr { %s } masquerade\n", family.ip, pods)
	}

	b.WriteString("\t}\n" + tunnels(c) + probes(c) + redirects(c.Redirects) + "}\n")

	return b.String()
}

// family is an address family.
type family struct {
	ip     string     // nft's name: ip or ip6
	name   string     // for people
	target netip.Addr // of probes, which never leave the node
}

// families are both families. The targets are addresses in the Internet that no firewall treats in
// a special way: those of a.root-servers.net.
var families = []family{
	{"ip", "IPv4", netip.MustParseAddr("198.41.0.4")},
	{"ip6", "IPv6", netip.MustParseAddr("2001:503:ba3e::2:30")},
}

// is reports whether an address is of the family.
func (f family) is(a netip.Addr) bool { return a.Is4() == (f.ip == "ip") }

// set returns the prefixes of one family as elements of an nftables set: sorted, and without nested
// prefixes, which nft rejects.
func set(list []netip.Prefix, isFamily func(netip.Addr) bool) string {
	var ofFamily []netip.Prefix

	for _, p := range list {
		if isFamily(p.Addr()) {
			ofFamily = append(ofFamily, p.Masked())
		}
	}

	// The shortest prefixes first, so that a nested prefix finds the prefix around it.
	slices.SortFunc(ofFamily, func(a, b netip.Prefix) int { return a.Bits() - b.Bits() })

	var kept []netip.Prefix

	for _, p := range ofFamily {
		if !slices.ContainsFunc(kept, func(k netip.Prefix) bool { return k.Overlaps(p) }) {
			kept = append(kept, p)
		}
	}

	slices.SortFunc(kept, func(a, b netip.Prefix) int { return a.Addr().Compare(b.Addr()) })

	var out []string
	for _, p := range kept {
		out = append(out, p.String())
	}

	return strings.Join(out, ", ")
}

// Sync writes the table for c in one transaction, and enables forwarding between management port
// and uplinks. It is idempotent; an unchanged table costs one transaction.
func Sync(ctx context.Context, c Config) error {
	if err := c.Validate(); err != nil {
		return fmt.Errorf("check masquerade config: %w", err)
	}

	if err := enableForwarding(c); err != nil {
		return err
	}

	if err := nft(ctx, Script(c)); err != nil {
		return fmt.Errorf("write table inet %s: %w", Table, err)
	}

	return nil
}

// Remove deletes the table, if it exists. Forwarding stays enabled, as other software may rely on
// it.
func Remove(ctx context.Context) error {
	if err := nft(ctx, fmt.Sprintf("table inet %s\ndelete table inet %[1]s\n", Table)); err != nil {
		return fmt.Errorf("delete table inet %s: %w", Table, err)
	}

	return nil
}

// enableForwarding enables forwarding between the devices. IPv4 has a setting per input device.
// IPv6 only has a global one, which ends router advertisements on devices that accept them only
// while not forwarding, and deletes default routes learned there.
func enableForwarding(c Config) error {
	v4 := slices.ContainsFunc(c.Pods, func(p netip.Prefix) bool { return p.Addr().Is4() })
	v6 := slices.ContainsFunc(c.Pods, func(p netip.Prefix) bool { return p.Addr().Is6() })

	if v4 {
		for _, d := range append([]string{c.Port}, c.Uplinks...) {
			if err := link.WriteSysctl("net/ipv4/conf/"+d+"/forwarding", "1"); err != nil {
				return err
			}
		}
	}

	if !v6 {
		return nil
	}

	if err := keepAdvertisements(c); err != nil {
		return err
	}

	err := link.WriteSysctl("net/ipv6/conf/all/forwarding", "1")
	if errors.Is(err, os.ErrNotExist) { // a kernel without IPv6
		return nil
	}

	return err
}

// keepAdvertisements makes devices that accept router advertisements accept them while forwarding,
// too: the host may be reachable through another device than the uplink.
func keepAdvertisements(c Config) error {
	// Values of accept_ra: accept advertisements only while not forwarding, or always.
	const onlyHosts, always = "1", "2"

	devices, err := net.Interfaces()
	if err != nil {
		return fmt.Errorf("list devices: %w", err)
	}

	for _, d := range devices {
		key := "net/ipv6/conf/" + d.Name + "/accept_ra"

		v, err := link.ReadSysctl(key) // it fails for a device without IPv6, or a removed one
		if err != nil || v != onlyHosts || d.Name == c.Port || d.Flags&net.FlagLoopback != 0 {
			continue
		}

		// A device that forwards already accepts none now. Uplinks have to accept them in any case.
		forwards, err := link.ReadSysctl("net/ipv6/conf/" + d.Name + "/forwarding")
		if !slices.Contains(c.Uplinks, d.Name) && (err != nil || forwards != "0") {
			continue
		}

		if err := link.WriteSysctl(key, always); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}

	return nil
}

// nft runs a script.
func nft(ctx context.Context, script string) error {
	_, err := runNFT(ctx, script, "-f", "-")
	return err
}

// runNFT runs the program nft with this input, and returns its output. An error has its stderr.
func runNFT(ctx context.Context, input string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "nft", args...)
	cmd.Stdin = strings.NewReader(input)

	var out, stderr bytes.Buffer

	cmd.Stdout, cmd.Stderr = &out, &stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("nft: %w: %s", err, bytes.TrimSpace(stderr.Bytes()))
	}

	return out.Bytes(), nil
}
