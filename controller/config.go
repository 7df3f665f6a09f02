package controller

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"k8s.io/client-go/rest"

	"github.com/ovn-ebpf/ovn-ebpf/cluster"
	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
	"github.com/ovn-ebpf/ovn-ebpf/controller/ipam"
	"github.com/ovn-ebpf/ovn-ebpf/controller/nb"
	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
	"github.com/ovn-ebpf/ovn-ebpf/metric/endpoint"
	"github.com/ovn-ebpf/ovn-ebpf/service"
)

// defaultMTU is the MTU of pods if Config does not set it: 1500 of most networks, less Geneve's
// headers.
const defaultMTU = 1400

// ClusterSubnet is a range of pod addresses. Each node gets a subnet of it.
type ClusterSubnet struct {
	Prefix  netip.Prefix
	HostLen int // prefix length of a node's subnet
}

// Config is what Run needs. RestConfig, NBAddress, ClusterSubnets, JoinSubnets and SNATPorts must
// be set. Validate checks all fields.
type Config struct {
	// Servers.
	RestConfig           *rest.Config // of the API server
	NBAddress, SBAddress string       // endpoints, separated by commas; see nb.Parse. SBAddress may be ""
	NBTLS, SBTLS         nb.TLS       // of ssl: endpoints
	Databases            []string     // addresses of OVN's databases, whose ports no Service gets

	// The network.
	ClusterSubnets []ClusterSubnet
	ServiceCIDRs   []netip.Prefix
	JoinSubnets    []netip.Prefix    // exactly one for each family of ClusterSubnets; other families are ignored
	ExternalIPs    []netip.Prefix    // allowed ranges of Services' external IPs; nil: none are allowed
	PodTunnels     []netip.Prefix    // networks besides pods where pods may send Geneve packets; never to nodes
	Hosts          annotation.Trust  // which addresses Nodes may claim for their hosts
	ChassisOfNode  bool              // the chassis of a node has the Node's name
	TrustSlices    bool              // only the control plane can write EndpointSlices with its label
	Shares         service.Shares    // budgets of Services and host ports
	SNATPorts      cluster.PortRange // of nodes whose annotation has no range
	MTU            int               // of pods; 0: defaultMTU
	BFD            bool              // watch gateway routers' next hops
	ACLLogRate     int               // messages per second and ACL; 0: plan.DefaultACLLogRate

	// The election.
	LeaderElect    bool          // false: leads until another controller claims its database, then ends
	Identity       string        // in the election; "": host name and process ID
	LeaseNamespace string        // required with LeaderElect
	Lease          time.Duration // how long a silent leader keeps the others waiting; 0: 15 s

	// How it works.
	FirstAnnotation bool         // annotate pods as ovn-kubernetes' first generation did, too
	WaitForAgent    bool         // give a node a subnet only after its agent has written its annotations
	ChassisRemover  bool         // another process removes the chassis of deleted nodes (sb.RemoveStale)
	MetricsAddr     string       // where to serve HTTP, as host:port; "": nowhere
	MetricsTLS      endpoint.TLS // the zero value: plain HTTP

	// Begun, if not nil, is called once when Run starts to work. missing returns why the controller is
	// not ready, or "" if it is.
	Begun func(missing func() string) `json:"-"`

	// Clock is the clock of the lease; nil: the time since the machine's boot. It must never go
	// back, and must continue while the process is stopped or the machine is suspended.
	Clock func() time.Duration `json:"-"`

	// Busy, if not nil, is called with true when more than a few changes begin to wait, and with false
	// when that ends. Pace returns such a function.
	Busy func(busy bool) `json:"-"`
}

// Validate returns all errors of the configuration, joined.
func (c Config) Validate() error {
	errs := []error{
		c.validateAddresses(),
		c.validateSubnets(),
		c.validateJoin(),
		c.validateOverlap(),
		c.Shares.Validate(),
	}
	if !c.SNATPorts.IsValid() {
		errs = append(errs, fmt.Errorf("SNAT port range %s is empty", c.SNATPorts))
	}

	if c.ACLLogRate < 0 {
		errs = append(errs, fmt.Errorf("ACL logging rate %d is negative", c.ACLLogRate))
	}

	if c.MTU != 0 {
		hasIPv6 := c.hasFamily(false)
		errs = append(errs, annotation.CheckPodMTU(c.MTU, hasIPv6))
	}

	return errors.Join(errs...)
}

// validateAddresses checks the addresses of servers, and what belongs to them.
func (c Config) validateAddresses() error {
	var errs []error
	if c.RestConfig == nil {
		errs = append(errs, errors.New("no API server"))
	}

	if err := checkDatabase(c.NBAddress, c.NBTLS); err != nil {
		errs = append(errs, fmt.Errorf("northbound: %w", err))
	}

	if c.SBAddress != "" {
		if err := checkDatabase(c.SBAddress, c.SBTLS); err != nil {
			errs = append(errs, fmt.Errorf("southbound: %w", err))
		}
	}

	if c.LeaderElect && c.LeaseNamespace == "" {
		errs = append(errs, errors.New("leader election without a namespace for its lease"))
	}

	errs = append(errs, c.MetricsTLS.Validate())
	if c.MetricsAddr != "" {
		if _, _, err := net.SplitHostPort(c.MetricsAddr); err != nil {
			errs = append(errs, fmt.Errorf("metrics address: %w", err))
		}
	}

	return errors.Join(errs...)
}

// checkDatabase checks the endpoints of a database and the files for them.
func checkDatabase(address string, files nb.TLS) error {
	endpoints, err := nb.Parse(address)
	if err != nil {
		return err
	}

	return files.Check(endpoints)
}

// validateSubnets checks ClusterSubnets and ServiceCIDRs.
func (c Config) validateSubnets() error {
	if len(c.ClusterSubnets) == 0 {
		return errors.New("no cluster subnet")
	}

	var errs []error

	for _, s := range c.ClusterSubnets {
		// A node's subnet has at least 8 addresses: for the router, the management port and a few pods.
		longest := 29
		if s.Prefix.Addr().Is6() {
			longest = 125
		}

		switch {
		case !s.Prefix.IsValid() || s.Prefix != s.Prefix.Masked():
			errs = append(errs, fmt.Errorf("cluster subnet %s is not a network, its network is %s",
				s.Prefix, s.Prefix.Masked()))
		case s.HostLen < s.Prefix.Bits() || s.HostLen > longest:
			errs = append(errs, fmt.Errorf("cluster subnet %s: host prefix length %d is not %d..%d",
				s.Prefix, s.HostLen, s.Prefix.Bits(), longest))
		}
	}

	for _, p := range c.ServiceCIDRs {
		if !p.IsValid() || p != p.Masked() {
			errs = append(errs, fmt.Errorf("service CIDR %s is not a network, its network is %s",
				p, p.Masked()))
		}
	}

	return errors.Join(errs...)
}

// validateJoin checks that each family of the pods has exactly one join subnet.
func (c Config) validateJoin() error {
	var errs []error

	for _, is4 := range []bool{true, false} {
		if !c.hasFamily(is4) {
			continue
		}

		found := 0

		for _, j := range c.JoinSubnets {
			if j.IsValid() && j.Addr().Is4() == is4 {
				found++
			}
		}

		if found != 1 {
			errs = append(errs, fmt.Errorf("%d join subnets of %s, want 1", found, service.FamilyName(is4)))
		}
	}

	return errors.Join(errs...)
}

// hasFamily reports whether pods have addresses of the family.
func (c Config) hasFamily(is4 bool) bool {
	for _, s := range c.ClusterSubnets {
		if s.Prefix.Addr().Is4() == is4 {
			return true
		}
	}

	return false
}

// validateOverlap checks that no network of the cluster overlaps another.
func (c Config) validateOverlap() error {
	type network struct {
		kind   string
		prefix netip.Prefix
	}

	var all []network
	for _, s := range c.ClusterSubnets {
		all = append(all, network{"cluster subnet", s.Prefix})
	}

	for _, p := range c.ServiceCIDRs {
		all = append(all, network{"service CIDR", p})
	}

	for _, p := range c.JoinSubnets {
		all = append(all, network{"join subnet", p})
	}

	var errs []error

	for i, a := range all {
		for _, b := range all[i+1:] {
			if a.prefix.Overlaps(b.prefix) {
				errs = append(errs, fmt.Errorf("%s %s overlaps %s %s", a.kind, a.prefix, b.kind, b.prefix))
			}
		}
	}

	return errors.Join(errs...)
}

// plan returns the settings of package plan.
func (c Config) plan() plan.Config {
	p := plan.Config{
		ServiceCIDRs:  c.ServiceCIDRs,
		ExternalIPs:   c.ExternalIPs,
		TrustSlices:   c.TrustSlices,
		PodTunnels:    c.PodTunnels,
		Hosts:         c.Hosts,
		ChassisOfNode: c.ChassisOfNode,
		Shares:        c.Shares,
		SNATPorts:     c.SNATPorts,
		MTU:           c.MTU,
		BFD:           c.BFD,
		ACLLogRate:    c.ACLLogRate,
	}
	if p.MTU == 0 {
		p.MTU = defaultMTU
	}

	for _, s := range c.ClusterSubnets {
		p.ClusterCIDRs = append(p.ClusterCIDRs, s.Prefix)
	}

	for _, j := range c.JoinSubnets {
		if c.hasFamily(j.Addr().Is4()) {
			p.JoinSubnets = append(p.JoinSubnets, j)
		}
	}

	return p
}

// subnets returns ClusterSubnets for the allocator.
func (c Config) subnets() []ipam.Subnet {
	var out []ipam.Subnet
	for _, s := range c.ClusterSubnets {
		out = append(out, ipam.Subnet(s))
	}

	return out
}
