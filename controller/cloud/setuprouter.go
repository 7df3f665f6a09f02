package cloud

import (
	"slices"
	"strings"
)

// findRouter returns the router of the setup: that of Config, else that of the VMs' network, else
// that of an earlier setup. It has no ID if it does not exist yet.
func (s Setup) findRouter(seen SetupObservation, vms Network) (Router, *Problem) {
	id, trouble := s.chooseRouter(seen, vms)
	if id == "" {
		return Router{}, trouble
	}

	i := slices.IndexFunc(seen.Routers, func(r Router) bool { return r.ID == id })

	origin := "--router-id"
	if s.Router == "" {
		origin = "network " + vms.label() + " has an interface of it"
	}

	switch {
	case i < 0:
		return Router{}, problem(UnknownObject, "the project has no router %s (%s), or the "+
			"credentials may not see it: 'openstack router list' lists the routers of the project",
			id, origin)
	case seen.Routers[i].Project != s.Project:
		return Router{}, problem(ForeignObject, "router %s (%s) is of project %s, and not of "+
			"project %s, which the credentials are for: use a router of this project",
			seen.Routers[i].label(), origin, seen.Routers[i].Project, s.Project)
	}

	return seen.Routers[i], nil
}

// RouterCandidates returns the IDs of routers outside of the project's own list that Plan may need:
// that of Config, and those with an interface in the VMs' network.
func (s Setup) RouterCandidates(seen SetupObservation) []string {
	all := attachedRouters(seen, s.vmNetwork(seen))
	if s.Router != "" && !slices.Contains(all, s.Router) {
		all = append(all, s.Router)
	}

	return all
}

// RouterID returns the ID of the setup's router, or "" if there is none yet, or none that can be
// used.
func (s Setup) RouterID(seen SetupObservation) string {
	r, _ := s.findRouter(seen, s.vmNetwork(seen))
	return r.ID
}

// vmNetwork returns the network of the VMs, without an ID if there is none, or more than one.
func (s Setup) vmNetwork(seen SetupObservation) Network {
	return s.findVMNetwork(&builder{}, seen)
}

// chooseRouter returns the ID of the router, or "" if none exists yet, or if the problem prevents a
// choice. Candidates are the routers with an interface in the VMs' network (attached), and those
// that an earlier setup has made (own). If Config names a router, it must be attached, unless none
// is. Otherwise chooseRouter takes the only router that is own and attached, or else the only
// attached one, or else the only own one.
func (s Setup) chooseRouter(seen SetupObservation, vms Network) (string, *Problem) {
	attached := attachedRouters(seen, vms)
	if s.Router != "" {
		if len(attached) > 0 && !slices.Contains(attached, s.Router) {
			return "", problem(ConflictingRouter, "network %s has an interface of router %s, and "+
				"--router-id names router %s: give --router-id %s, or omit the flag",
				vms.label(), strings.Join(attached, " and "), s.Router, attached[0])
		}

		return s.Router, nil
	}

	var own []string

	for _, r := range seen.Routers {
		if r.Name == s.Cluster && r.Description == s.routerDescription() && r.Project == s.Project {
			own = append(own, r.ID)
		}
	}

	slices.Sort(own)
	ownAttached := without(own, func(id string) bool { return !slices.Contains(attached, id) })

	switch {
	case len(ownAttached) == 1:
		return ownAttached[0], nil
	case len(attached) == 1:
		return attached[0], nil
	case len(attached) > 1:
		return "", problem(AmbiguousObject, "network %s has interfaces of %d routers: choose one "+
			"by --router-id %s", vms.label(), len(attached), strings.Join(attached, " or "))
	case len(own) > 1:
		return "", problem(AmbiguousObject, "the project has %d routers of cluster %s: choose "+
			"one by --router-id %s, or delete the unused ones",
			len(own), s.Cluster, strings.Join(own, " or "))
	case len(own) == 1:
		return own[0], nil
	}

	return "", nil
}

// attachedRouters returns the IDs of routers with an interface in the network, sorted.
func attachedRouters(seen SetupObservation, n Network) []string {
	var out []string

	for _, p := range seen.Ports {
		if n.ID != "" && p.Network == n.ID && p.isRouter() {
			out = append(out, p.Device)
		}
	}

	slices.Sort(out)

	return slices.Compact(out)
}

// planRouter plans the router, or what it lacks: the external gateway that the operator wants, and
// an interface in each subnet of the VMs. It returns the quotas that they need.
func (s Setup) planRouter(b *builder, st setupState) quotaNeeds {
	var n quotaNeeds
	if st.refusedRouter {
		return n
	}

	switch {
	case st.router.ID == "":
		n.routers++

		b.add(CreateRouter{s.Cluster, s.routerDescription(), st.external.ID})
	case st.external.ID == "" || st.router.External == st.external.ID:
	case st.router.External == "":
		b.add(SetGateway{st.router.ID, st.external.ID})
	default:
		b.report(problem(ConflictingRouter, "router %s has its external gateway in network %s, "+
			"and --external-network names %s: omit the flag, or change the gateway with "+
			"'openstack router set'",
			st.router.label(), st.router.External, st.external.label()))
	}

	for _, subnet := range st.subnets {
		if st.router.ID != "" && b.hasInterface(subnet, st.router.ID) {
			continue
		}

		b.checkGateway(s.Project, st.vms, subnet)

		n.ports++

		if st.router.ID != "" {
			b.add(AddInterface{st.router.ID, subnet.ID})
		}
	}

	return n
}

// checkGateway reports why a router cannot have an interface in the subnet: the network must be the
// project's, and the gateway address of the subnet must be free.
func (b *builder) checkGateway(project string, vms Network, n Subnet) {
	switch {
	case vms.Project != project:
		b.report(problem(ForeignObject, "network %s is of project %s, so the router gets no "+
			"interface in it: use a network of the project for the VMs, or ask the owner for an "+
			"interface of the router, and name the router by --router-id",
			vms.label(), vms.Project))

		return
	case !n.Gateway.IsValid():
		b.report(problem(InvalidNetwork, "subnet %s (%s) of network %s has no gateway address "+
			"for the router: set one with 'openstack subnet set --gateway ADDRESS %s'",
			n.Prefix, n.ID, vms.label(), n.ID))

		return
	}

	for _, p := range b.seen.Ports {
		if p.Network == n.Network && p.has(n.Gateway) {
			owner := p.Owner
			if p.Device != "" {
				owner = strings.TrimSpace(owner + " " + p.Device)
			}

			b.report(problem(ConflictingRouter, "gateway address %s of subnet %s is in use by "+
				"port %s (%s), so the router cannot have it: free it, or change the gateway with "+
				"'openstack subnet set'",
				n.Gateway, n.ID, p.ID, owner))
		}
	}
}
