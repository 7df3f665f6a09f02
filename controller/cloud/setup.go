package cloud

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Setup is what a cluster needs in its project before its first node joins: a router with an
// interface in the network of the VMs, subnet pools, and security groups of pods.
//
// Config has the cluster's name and project, and the IDs of objects that the operator has chosen.
// Plan finds the others by name and description, or makes them. So an interrupted setup is
// continued, and a repeated one makes nothing.
//
// The command "ovn-k8s-underlay master-init" executes plans until they have no steps, and then
// prints the IDs of Complete as settings of the controller. The methods for routers, subnet pools,
// security groups, overlapping networks and quotas are in the files setup*.go.
type Setup struct {
	Config

	VMNetwork       string // name or ID of the network of the VMs
	ExternalNetwork string // name or ID of the network of the router's external gateway; "": none

	// Prefix and Prefix6 are the addresses of pods. A subnet pool that Config names must have
	// them. Prefix may be invalid if Config has a SubnetPool. If Prefix6 is invalid, and Config
	// has no SubnetPool6, pods have IPv4 addresses only.
	Prefix, Prefix6 netip.Prefix

	ServiceCIDRs []netip.Prefix // addresses of Services, which no other network may have
}

// SetupObservation is what was observed of a project for a Setup. In Observation, it has the
// networks that the credentials may see, the subnets of the project and of the VMs' network, the
// ports of this network and of the router, and the quotas.
type SetupObservation struct {
	Observation
	Extensions     []string // aliases of Neutron's extensions
	Routers        []Router
	SubnetPools    []SubnetPool
	SecurityGroups []SecurityGroup
}

// After returns the state after a step that succeeded with this result.
func (s SetupObservation) After(step Step, r Result) SetupObservation {
	switch step := step.(type) {
	case CreateRouter:
		s.Routers = append(slices.Clip(s.Routers), r.Router)
		s.Quotas.Routers.Used++
	case SetGateway:
		s.Routers = slices.Clone(s.Routers)
		for i := range s.Routers {
			if s.Routers[i].ID == step.Router {
				s.Routers[i].External = step.Network
			}
		}
	case CreateSubnetPool:
		s.SubnetPools = append(slices.Clip(s.SubnetPools), r.SubnetPool)
		s.Quotas.SubnetPools.Used++
	case CreateSecurityGroup:
		s.SecurityGroups = append(slices.Clip(s.SecurityGroups), r.SecurityGroup)
		s.Quotas.SecurityGroups.Used++
		s.Quotas.Rules.Used += len(r.SecurityGroup.Open)
	case CreateRule:
		s.SecurityGroups = slices.Clone(s.SecurityGroups)
		for i, g := range s.SecurityGroups {
			if g.ID == step.Group {
				s.SecurityGroups[i].Open = append(slices.Clip(g.Open), step.Rule)
			}
		}

		s.Quotas.Rules.Used++
	default:
		s.Observation = s.Observation.After(step, r)
	}

	return s
}

// Plan returns the steps from what was seen to the setup that are possible now. If it returns
// problems, nothing must be made. It returns neither when the setup is complete.
func (s Setup) Plan(seen SetupObservation) Plan {
	b := &builder{seen: seen.Observation}
	if missing := MissingExtensions(seen.Extensions); len(missing) > 0 {
		b.report(problem(MissingExtension, "the cloud's Neutron lacks the extension %s, which "+
			"underlay mode needs: ask the operator of the cloud to enable it",
			strings.Join(missing, ", ")))

		return b.Plan
	}

	st := s.inspect(b, seen)
	s.checkOverlaps(b, seen, st)

	needs := s.planRouter(b, st)
	needs.add(s.planSubnetPools(b, st))
	needs.add(s.planSecurityGroup(b, st))

	if !s.hasPools(seen) {
		needs.add(s.smallestPool())
	}

	needs.check(b, seen.Quotas)

	if len(b.Problems) > 0 {
		b.Steps = nil
	}

	return b.Plan
}

// MissingExtensions returns the aliases of those extensions of Neutron that underlay mode needs
// and that are not in the list.
func MissingExtensions(aliases []string) []string {
	needed := []string{"quotas", "router", "security-group", "subnet_allocation", "trunk"}
	return without(needed, func(alias string) bool { return slices.Contains(aliases, alias) })
}

// Complete returns the configuration of the cluster's pools, with the IDs of all objects. It must
// not be called before Plan has returned neither steps nor problems.
func (s Setup) Complete(seen SetupObservation) Config {
	st := s.inspect(&builder{}, seen)
	c := s.Config
	c.Router, c.SubnetPool, c.SubnetPool6 = st.router.ID, st.subnetPool.ID, st.subnetPool6.ID

	if len(c.Groups) == 0 {
		c.Groups = []string{st.group.ID}
	}

	return c
}

// Inventory returns a line for each object of the setup that there is, such as
// "router k8s (c0ffee00-…)".
func (s Setup) Inventory(seen SetupObservation) []string {
	st := s.inspect(&builder{}, seen)

	var lines []string

	add := func(kind, name, id string) {
		if id != "" {
			lines = append(lines, fmt.Sprintf("%s %s (%s)", kind, name, id))
		}
	}

	add("network of the VMs", st.vms.Name, st.vms.ID)
	add("router", st.router.Name, st.router.ID)

	if st.router.External != "" {
		lines = append(lines, "external gateway of the router in network "+networkLabel(seen,
			st.router.External))
	}

	for _, n := range st.subnets {
		if st.router.ID != "" && hasInterface(seen.Ports, n, st.router.ID) {
			lines = append(lines, fmt.Sprintf("interface of the router in subnet %s (%s)",
				n.Prefix, n.ID))
		}
	}

	add("subnet pool", st.subnetPool.Name, st.subnetPool.ID)
	add("subnet pool", st.subnetPool6.Name, st.subnetPool6.ID)

	for _, g := range st.chosen {
		add("security group", g.Name, g.ID)
	}

	add("security group", st.group.Name, st.group.ID)

	for _, r := range allowAll {
		if slices.Contains(st.group.Open, r) {
			lines = append(lines, fmt.Sprintf("rule of the security group: %s, all packets", r))
		}
	}

	return lines
}

// The names and descriptions of the objects that a setup makes. Names need not be unique in
// Neutron, so only an object that has both is the cluster's.
func (s Setup) routerDescription() string     { return "ovn-ebpf router of cluster " + s.Cluster }
func (s Setup) subnetPoolDescription() string { return "ovn-ebpf pods of cluster " + s.Cluster }
func (s Setup) groupDescription() string      { return "ovn-ebpf pods of cluster " + s.Cluster }
func (s Setup) subnetPool6Name() string       { return s.Cluster + "-6" }

// hasIPv6 reports whether pods have IPv6 addresses, too.
func (s Setup) hasIPv6() bool { return s.SubnetPool6 != "" || s.Prefix6.IsValid() }

// hasPools reports whether the cluster has the pool of a node already.
func (s Setup) hasPools(seen SetupObservation) bool {
	return slices.ContainsFunc(seen.Networks, func(n Network) bool {
		node, isPool := strings.CutPrefix(n.Name, poolName(s.Cluster, ""))
		return isPool && n.Project == s.Project && n.Description == description(s.Cluster, node)
	})
}

// setupState has the observed objects of a Setup, by their purpose. Objects that do not exist yet
// have no ID.
type setupState struct {
	vms, external           Network
	subnets                 []Subnet // of vms, in which the router needs an interface
	router                  Router
	refusedRouter           bool // the router that was found cannot be used
	subnetPool, subnetPool6 SubnetPool
	chosen                  []SecurityGroup // those of Config
	group                   SecurityGroup   // that of the setup, if Config has none
}

// inspect finds the objects of the setup, and reports those that cannot be used.
func (s Setup) inspect(b *builder, seen SetupObservation) setupState {
	var st setupState

	st.vms = s.findVMNetwork(b, seen)
	if s.ExternalNetwork != "" {
		st.external = s.findExternalNetwork(b, seen)
	}

	st.subnets = only(seen.Subnets, func(n Subnet) bool {
		return n.Network == st.vms.ID && (n.Prefix.Addr().Is4() || s.hasIPv6())
	})

	slices.SortFunc(st.subnets, func(a, b Subnet) int { return a.Prefix.Compare(b.Prefix) })

	var trouble *Problem

	st.router, trouble = s.findRouter(seen, st.vms)
	if trouble != nil {
		st.refusedRouter = true

		b.report(trouble)
	}

	st.subnetPool = s.findSubnetPool(b, seen, s.ipv4Pool())
	if s.hasIPv6() {
		st.subnetPool6 = s.findSubnetPool(b, seen, s.ipv6Pool())
	}

	s.findSecurityGroups(b, seen, &st)

	return st
}

// findVMNetwork returns the network of the VMs, and reports why it cannot be used.
func (s Setup) findVMNetwork(b *builder, seen SetupObservation) Network {
	isForeign := func(n Network) bool { return n.External && n.Project != s.Project }

	n, ok := findNetwork(b, "--vm-network", s.VMNetwork, without(seen.Networks, isForeign))
	if !ok {
		return n
	}

	has4 := slices.ContainsFunc(seen.Subnets, func(sub Subnet) bool {
		return sub.Network == n.ID && sub.Prefix.Addr().Is4()
	})
	if !has4 {
		b.report(problem(InvalidNetwork, "network %s has no IPv4 subnet, so it is not that of "+
			"the VMs: name another one by --vm-network", n.label()))
	}

	return n
}

// findExternalNetwork returns the network of the router's external gateway, and reports why it
// cannot be used.
func (s Setup) findExternalNetwork(b *builder, seen SetupObservation) Network {
	isNamed := func(n Network) bool { return n.ID == s.ExternalNetwork || n.Name == s.ExternalNetwork }

	external := only(seen.Networks, func(n Network) bool { return n.External })
	if !slices.ContainsFunc(external, isNamed) && slices.ContainsFunc(seen.Networks, isNamed) {
		b.report(problem(InvalidNetwork, "network %s is not external, so a router cannot have "+
			"its external gateway in it: name an external one by --external-network (%s), or "+
			"omit the flag",
			s.ExternalNetwork, networkNames(external)))

		return Network{}
	}

	n, _ := findNetwork(b, "--external-network", s.ExternalNetwork, external)

	return n
}

// findNetwork returns the network with the wanted ID or name. It reports why it returns false, with
// the flag that names the network.
func findNetwork(b *builder, flag, wanted string, all []Network) (n Network, ok bool) {
	if i := slices.IndexFunc(all, func(n Network) bool { return n.ID == wanted }); i >= 0 {
		return all[i], true
	}

	named := only(all, func(n Network) bool { return n.Name == wanted })
	switch len(named) {
	case 1:
		return named[0], true
	case 0:
		b.report(problem(UnknownObject, "the project has no network %q: name one of these by %s: %s",
			wanted, flag, networkNames(all)))
	default:
		b.report(problem(AmbiguousObject, "%d networks have the name %q: choose one by its ID: %s %s",
			len(named), wanted, flag, strings.Join(ids(named, func(n Network) string { return n.ID }), " or ")))
	}

	return Network{}, false
}

// networkNames returns the names of the networks for a message.
func networkNames(all []Network) string {
	names := ids(all, func(n Network) string {
		if n.Name == "" {
			return n.ID
		}

		return n.Name
	})
	if len(names) == 0 {
		return "there is none"
	}

	const limit = 10

	return enumerate(slices.Compact(names), limit)
}

// ids returns an ID or name of each object, sorted.
func ids[T any](all []T, id func(T) string) []string {
	var out []string
	for _, o := range all {
		out = append(out, id(o))
	}

	slices.Sort(out)

	return out
}

// label returns the name and ID of an object, for messages.
func label(name, id string) string {
	if name == "" || name == id {
		return id
	}

	return name + " (" + id + ")"
}

// networkLabel returns the name and ID of a network, or its ID if the credentials may not see the
// network.
func networkLabel(seen SetupObservation, id string) string {
	for _, n := range seen.Networks {
		if n.ID == id {
			return n.label()
		}
	}

	return id
}

func (n Network) label() string    { return label(n.Name, n.ID) }
func (r Router) label() string     { return label(r.Name, r.ID) }
func (p SubnetPool) label() string { return label(p.Name, p.ID) }
