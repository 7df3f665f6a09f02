package cloud

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
)

// Bounds of a pool.
const (
	ShortestPrefix = 20 // of an IPv4 subnet: 4,093 ports
	LongestPrefix  = 28 // of an IPv4 subnet: 13 ports
	fewestPorts    = 13 // in a subnet of LongestPrefix
	lastTag        = annotation.MaxTag
	// longestName bounds a pool's name, in characters. Neutron's names have at most 255, and those
	// of subnets and ports are longer by an address.
	longestName = 200
)

// Config is what all pools of a cluster have in common.
type Config struct {
	Cluster      string   // its name in Neutron
	Project      string   // ID of the OpenStack project
	Router       string   // ID of the cluster's router
	SubnetPool   string   // ID of the IPv4 subnet pool of pods
	SubnetPool6  string   // the same for IPv6; "" where pods have IPv4 alone
	Groups       []string // UUIDs of the security groups of pods without a profile, sorted
	PrefixLength int      // of nodes' subnets; 0: as each node's capacity needs
	MaxPorts     int      // per node; 0: no bound but the trunk's tags
}

// Pool is the wanted pool of a node.
type Pool struct {
	Config
	Node   string
	VIF    annotation.VIF
	Server string // ID of the VM, from the Node's providerID; "" if that has none
	Length int    // of the prefix of each new IPv4 subnet
	Pods   int    // pods that use ports of the pool now
}

// Name returns the name of the pool's network and trunk.
func (p Pool) Name() string { return poolName(p.Cluster, p.Node) }

func poolName(cluster, node string) string { return cluster + "-" + node }

// Description returns the mark of the pool's objects. Neutron allows equal names, so a network or
// trunk belongs to the pool only if it has this mark too.
func (p Pool) Description() string { return description(p.Cluster, p.Node) }

func description(cluster, node string) string {
	return "ovn-ebpf pool of node " + node + " of cluster " + cluster
}

// nodeOf returns the node that a description names, or false if it is not the description of a pool
// of the cluster.
func nodeOf(cluster, text string) (node string, ok bool) {
	const placeholder = "\x00" // in no name

	before, after, _ := strings.Cut(description(cluster, placeholder), placeholder)
	if text, ok = strings.CutPrefix(text, before); !ok {
		return "", false
	}

	return strings.CutSuffix(text, after)
}

// NodePool returns the wanted pool of the node. pods is the number of its pods on the pod
// network. The error is a *Problem, or annotation.ErrNotSet (wrapped) while the agent has not
// announced the node's VIF, or while the Node has no InternalIP.
func NodePool(c Config, n *corev1.Node, pods int) (Pool, error) {
	vif, err := annotation.ParseUnderlay(n.Annotations)
	if err != nil {
		if errors.Is(err, annotation.ErrNotSet) {
			return Pool{}, err
		}

		return Pool{}, problem(InvalidNode, "plan pool of node %s: %v", n.Name, err)
	}

	if name := poolName(c.Cluster, n.Name); utf8.RuneCountInString(name) > longestName {
		return Pool{}, problem(InvalidNode, "plan pool of node %s: the name %s of its network has %d "+
			"characters, want at most %d: shorten the name of the node, or --cluster-name",
			n.Name, name, utf8.RuneCountInString(name), longestName)
	}

	if !slices.ContainsFunc(n.Status.Addresses, isInternalIP) {
		return Pool{}, fmt.Errorf("plan pool of node %s: InternalIP: %w", n.Name, annotation.ErrNotSet)
	}

	if !hasInternalIP(n, vif.Address) {
		return Pool{}, problem(ForeignVIF,
			"plan pool of node %s: VIF's address %s is not an InternalIP of the node",
			n.Name, vif.Address)
	}

	// The operator's annotation comes before the cluster's setting, and that before the node's
	// capacity.
	length, err := annotation.ParseUnderlayPrefixLength(n.Annotations)
	switch {
	case err == nil:
	case !errors.Is(err, annotation.ErrNotSet):
		return Pool{}, problem(InvalidNode, "plan pool of node %s: %v", n.Name, err)
	case c.PrefixLength != 0:
		length = c.PrefixLength
	default:
		length = prefixLength(wantedPorts(n, vif.Ports))
	}

	if length < ShortestPrefix || length > LongestPrefix {
		return Pool{}, problem(InvalidNode, "plan pool of node %s: prefix length %d: want %d to %d",
			n.Name, length, ShortestPrefix, LongestPrefix)
	}

	pool := Pool{
		Config: c,
		Node:   n.Name,
		VIF:    vif,
		Server: server(n.Spec.ProviderID),
		Length: length,
		Pods:   pods,
	}

	return pool, nil
}

// server returns the ID of the VM in a providerID of OpenStack's cloud controller manager, which
// is openstack:///ID or openstack://REGION/ID. It returns "" for other providers.
func server(providerID string) string {
	rest, ok := strings.CutPrefix(providerID, "openstack://")
	if !ok {
		return ""
	}

	return rest[strings.LastIndexByte(rest, '/')+1:]
}

func isInternalIP(a corev1.NodeAddress) bool { return a.Type == corev1.NodeInternalIP }

// hasInternalIP reports whether the address is one of the Node's InternalIPs.
func hasInternalIP(n *corev1.Node, a netip.Addr) bool {
	for _, address := range n.Status.Addresses {
		ip, err := netip.ParseAddr(address.Address)
		if isInternalIP(address) && err == nil && ip.Unmap() == a {
			return true
		}
	}

	return false
}

// wantedPorts returns the number of ports of a new pool: the number that the node requests, or else
// the smallest of its pod capacity, 10 per CPU and 4 per GiB of memory. It is at least fewestPorts.
func wantedPorts(n *corev1.Node, requested int) int {
	if requested > 0 {
		return max(requested, fewestPorts)
	}

	c := n.Status.Capacity

	const unknown = 1 << 32 // more than any capacity

	ports := int64(unknown)
	if pods, ok := c[corev1.ResourcePods]; ok {
		ports = min(ports, pods.Value())
	}

	if cpu, ok := c[corev1.ResourceCPU]; ok {
		ports = min(ports, cpu.MilliValue()/100) // 10 per CPU
	}

	if memory, ok := c[corev1.ResourceMemory]; ok {
		ports = min(ports, memory.Value()>>28) // 4 per GiB
	}

	if ports == unknown {
		return fewestPorts // the Node has no capacity yet
	}

	return max(int(ports), fewestPorts)
}

// prefixLength returns the length of the smallest subnet that holds the ports, within bounds.
func prefixLength(ports int) int {
	for length := LongestPrefix; length > ShortestPrefix; length-- {
		if capacity(length) >= ports {
			return length
		}
	}

	return ShortestPrefix
}

// capacity returns the number of ports of a subnet: all addresses except network, router and
// broadcast.
func capacity(length int) int { return 1<<(32-length) - 3 }

// portName returns the name of the pool's port that has the address.
func portName(pool string, a netip.Addr) string { return pool + "-" + a.String() }
