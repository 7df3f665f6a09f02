package annotation

import (
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// In underlay mode, each node has a ConfigMap, its pool: the Neutron ports that its pods may have.
// The controller writes it, and the node's agent reads it:
//
//	metadata: {namespace: ovn-ebpf-pools, name: underlay-vm1}
//	data:
//	  node: '{"cluster":"k8s","node":"vm1","vif":"UUID","trunk":"UUID","network":"UUID",…}'
//	  ports: |
//	    2 UUID fa:16:3e:00:00:01 10.244.0.2 UUID
//	    3 UUID fa:16:3e:00:00:02 10.244.0.3 UUID,UUID held
const (
	PoolNamespace = "ovn-ebpf-pools"
	PoolPrefix    = "underlay-" // of the name, before that of the node
	PoolNode      = "node"      // key of the node's description: see Pool and FormatPool
	PoolPorts     = "ports"     // key of the ports: see PoolPort and FormatPoolPorts
)

// MaxTag is the highest VLAN tag of a port. The lowest is 1.
const MaxTag = 4094

// maxPoolBytes limits the value of PoolPorts, because a ConfigMap has at most 1 MiB with its
// metadata.
const maxPoolBytes = 1_000_000

// PoolPort is a Neutron port that a pod of the node may have. Its tag identifies it: a port that
// the controller repairs keeps tag, MAC and addresses, and gets a new UUID.
type PoolPort struct {
	ID        string // UUID
	Tag       int    // VLAN tag in the node's trunk, 1 to 4094
	MAC       net.HardwareAddr
	Addresses []netip.Addr // one or two, of different families
	Groups    []string     // UUIDs of security groups; nil: unknown, []string{}: none
	Held      bool         // no pod may take the port: it is gone from Neutron, or not as published
}

// FormatPoolPorts returns the value of PoolPorts, with a line for each port, sorted by tag:
//
//	TAG UUID MAC ADDRESS[,ADDRESS] GROUP[,GROUP…] [held]
//
// The groups are "-" if the port has none, and "?" if they are unknown.
func FormatPoolPorts(ports []PoolPort) (string, error) {
	byTag := slices.SortedFunc(slices.Values(ports), func(a, b PoolPort) int { return a.Tag - b.Tag })

	var b strings.Builder

	for _, p := range byTag {
		addresses := make([]string, len(p.Addresses))
		for i, a := range p.Addresses {
			addresses[i] = a.String()
		}

		fmt.Fprintf(&b, "%d %s %s %s %s", p.Tag, p.ID, p.MAC, strings.Join(addresses, ","),
			formatGroups(p.Groups))

		if p.Held {
			b.WriteString(" held")
		}

		b.WriteByte('\n')
	}

	if _, err := ParsePoolPorts(b.String()); err != nil {
		return "", fmt.Errorf("format pool: %w", err)
	}

	return b.String(), nil
}

// ParsePoolPorts returns the ports of a pool. No two of them have the same tag, ID or address.
// Errors name the line, counted from 1, and the field.
func ParsePoolPorts(text string) ([]PoolPort, error) {
	var ports []PoolPort

	seen := map[string]bool{}

	err := eachLine(text, func(fields []string) error {
		if len(fields) != 5 && (len(fields) != 6 || fields[5] != "held") {
			return fmt.Errorf("want tag, UUID, MAC, addresses, groups and at most \"held\"")
		}

		p, err := parsePoolPort(fields)
		if err != nil {
			return err
		}

		unique := []string{"tag " + strconv.Itoa(p.Tag), "port " + p.ID}
		for _, a := range p.Addresses {
			unique = append(unique, "address "+a.String())
		}

		for _, key := range unique {
			if seen[key] {
				return fmt.Errorf("%s is there twice", key)
			}

			seen[key] = true
		}

		ports = append(ports, p)

		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("parse %s: %w", PoolPorts, err)
	}

	return ports, nil
}

// parsePoolPort parses the fields of a line. The caller has checked their number.
func parsePoolPort(fields []string) (PoolPort, error) {
	p := PoolPort{ID: fields[1], Held: len(fields) == 6}

	var err error
	if p.Tag, err = strconv.Atoi(fields[0]); err != nil || p.Tag < 1 || p.Tag > MaxTag {
		return p, fmt.Errorf("tag: %q is not 1..%d", fields[0], MaxTag)
	}

	if !isUUID(p.ID) {
		return p, fmt.Errorf("port: %q is not a UUID", p.ID)
	}

	if p.MAC, err = net.ParseMAC(fields[2]); err != nil {
		return p, fmt.Errorf("mac: %w", err)
	}

	if err := CheckMAC(p.MAC); err != nil {
		return p, fmt.Errorf("mac: %w", err)
	}

	for s := range strings.SplitSeq(fields[3], ",") {
		a, err := netip.ParseAddr(s)
		switch {
		case err != nil:
			return p, fmt.Errorf("addresses: %w", err)
		case a.Zone() != "" || a.Is4In6():
			return p, fmt.Errorf("addresses: %s has a zone or is IPv4 in IPv6", a)
		case len(p.Addresses) == 2, len(p.Addresses) == 1 && p.Addresses[0].Is4() == a.Is4():
			return p, fmt.Errorf("addresses: more than one of a family")
		}

		p.Addresses = append(p.Addresses, a)
	}

	p.Groups, err = parseGroups(fields[4])

	return p, err
}

// Pool describes the node to which a pool belongs, and the OpenStack objects that its ports need.
// VIF, Trunk, Network, MTU and Gateways are empty while the cloud lacks the object.
type Pool struct {
	Cluster string `json:"cluster"`
	Node    string `json:"node"`
	VIF     string `json:"vif"`     // UUID of the VM's Neutron port
	Trunk   string `json:"trunk"`   // UUID
	Network string `json:"network"` // UUID
	// Gateways has an entry for each subnet of the network: the router's address there, with the
	// subnet's prefix length, and the router's MAC. A node that has grown has several IPv4 subnets.
	// The subnets do not overlap.
	Gateways map[netip.Prefix]string `json:"gateways"`
	MTU      int                     `json:"mtu"`    // of the network, bytes
	Groups   []string                `json:"groups"` // UUIDs of a new port's security groups, sorted
}

// Gateway returns the router's address and MAC in the subnet that contains a. The address has the
// prefix length of the subnet. Gateway reports false if no subnet of the pool contains a.
func (p Pool) Gateway(a netip.Addr) (netip.Prefix, net.HardwareAddr, bool) {
	for gateway, text := range p.Gateways {
		if !gateway.Contains(a) {
			continue
		}

		mac, err := net.ParseMAC(text)

		return gateway, mac, err == nil
	}

	return netip.Prefix{}, nil, false
}

// FormatPool returns the value of PoolNode.
func FormatPool(p Pool) string { return encode(p) }

// ParsePool parses a value of FormatPool. Node is never empty. All other fields are valid or empty.
func ParsePool(text string) (Pool, error) {
	var p Pool
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		return Pool{}, fmt.Errorf("parse %s: %w", PoolNode, err)
	}

	for _, f := range []struct{ name, id string }{{"vif", p.VIF}, {"trunk", p.Trunk}, {"network", p.Network}} {
		if f.id != "" && !isUUID(f.id) {
			return Pool{}, fmt.Errorf("parse %s: %s: %q is not a UUID", PoolNode, f.name, f.id)
		}
	}

	for _, g := range p.Groups {
		if !isUUID(g) {
			return Pool{}, fmt.Errorf("parse %s: groups: %q is not a UUID", PoolNode, g)
		}
	}

	if p.Node == "" {
		return Pool{}, fmt.Errorf("parse %s: node: empty", PoolNode)
	}

	if p.Network != "" || p.MTU != 0 {
		if err := CheckPodMTU(p.MTU, false); err != nil {
			return Pool{}, fmt.Errorf("parse %s: mtu: %w", PoolNode, err)
		}
	}

	if err := checkGateways(p.Gateways); err != nil {
		return Pool{}, fmt.Errorf("parse %s: gateways: %w", PoolNode, err)
	}

	return p, nil
}

// checkGateways returns an error for invalid gateways, or gateways in overlapping subnets.
func checkGateways(gateways map[netip.Prefix]string) error {
	var checked []netip.Prefix

	for _, g := range slices.SortedFunc(maps.Keys(gateways), netip.Prefix.Compare) {
		mac, err := net.ParseMAC(gateways[g])
		if err == nil {
			err = CheckMAC(mac)
		}

		switch {
		case err != nil:
			return fmt.Errorf("%s: %w", g, err)
		case !g.IsValid() || g.Addr().Is4In6():
			return fmt.Errorf("%s is not an address with a prefix length", g)
		case g == g.Masked() && !g.IsSingleIP():
			return fmt.Errorf("%s is a subnet, want the router's address in it", g)
		}

		if i := slices.IndexFunc(checked, g.Overlaps); i >= 0 {
			return fmt.Errorf("subnets of %s and %s overlap", checked[i], g)
		}

		checked = append(checked, g)
	}

	return nil
}

// eachLine calls line with the fields of each line of text. It returns an error if the text is too
// long for a ConfigMap, or has more lines than a trunk has tags.
func eachLine(text string, line func(fields []string) error) error {
	if len(text) > maxPoolBytes {
		return fmt.Errorf("%d bytes, want at most %d", len(text), maxPoolBytes)
	}

	n := 0
	for l := range strings.Lines(text) {
		n++
		if n > MaxTag {
			return fmt.Errorf("line %d: more than %d ports", n, MaxTag)
		}

		if err := line(strings.Fields(l)); err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
	}

	return nil
}

// Values for the groups of a port in PoolPorts that are not lists of UUIDs.
const (
	noGroups      = "-"
	unknownGroups = "?"
)

// formatGroups returns the groups of a port as a field of a line.
func formatGroups(groups []string) string {
	switch {
	case groups == nil:
		return unknownGroups
	case len(groups) == 0:
		return noGroups
	default:
		return strings.Join(groups, ",")
	}
}

// parseGroups is the inverse of formatGroups.
func parseGroups(s string) ([]string, error) {
	switch s {
	case unknownGroups:
		return nil, nil
	case noGroups:
		return []string{}, nil
	}

	groups := strings.Split(s, ",")
	for _, g := range groups {
		if !isUUID(g) {
			return nil, fmt.Errorf("groups: %q is not a UUID", g)
		}
	}

	return groups, nil
}

// CheckUUID returns an error unless s is a UUID as Neutron writes it: lower case, with dashes.
func CheckUUID(s string) error {
	if !isUUID(s) {
		return fmt.Errorf("%q is not a UUID (lower case, with dashes)", s)
	}

	return nil
}

// isUUID reports whether s is a UUID as Neutron writes it: lower case, with dashes.
func isUUID(s string) bool {
	if len(s) != 36 {
		return false
	}

	for i, c := range []byte(s) {
		atDash := i == 8 || i == 13 || i == 18 || i == 23
		if atDash && c != '-' || !atDash && !strings.ContainsRune("0123456789abcdef", rune(c)) {
			return false
		}
	}

	return true
}
