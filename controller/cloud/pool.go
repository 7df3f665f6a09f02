package cloud

import (
	"slices"
	"strconv"
)

// This file plans a pool: Pool.Plan is its entry. The objects of a pool need each other in this
// order:
//
//	network ─▶ subnets ─▶ router interfaces ─▶ ports ─┬─▶ subports
//	                                trunk on the VIF ─┘
//
// A plan has the steps for the missing objects whose needs exist. So an empty project needs several
// plans, each after the steps of the one before. Surplus and changed objects are removed on the
// way. See state for the addresses and tags of ports.

// Plan has the steps that can be done for a pool, or for a Setup, now.
type Plan struct {
	Steps    []Step // in order; no step refers to an object that another one makes
	Problems []Problem
}

// builder collects a plan.
type builder struct {
	Plan
	seen   Observation
	quotas Quotas // with planned objects as used
}

func (b *builder) add(s Step)        { b.Steps = append(b.Steps, s) }
func (b *builder) report(p *Problem) { b.Problems = append(b.Problems, *p) }

// reserve returns how many of the wanted objects the quota allows, and counts these as used. It
// reports a problem if they are fewer.
func (b *builder) reserve(resource string, q *Quota, wanted int) int {
	allowed := wanted
	if q.Limit >= 0 {
		allowed = min(wanted, max(0, q.Limit-q.Used))
	}

	if allowed < wanted {
		b.report(problem(QuotaExceeded, "quota of %ss: limit %d, used %d, wanted %d: raise the "+
			"project's quota", resource, q.Limit, q.Used, wanted))
	}

	q.Used += allowed

	return allowed
}

// Plan returns the steps from the observed state to the wanted pool. It returns no step when the
// pool is complete, or when problems prevent all remaining steps. A pool grows when less than a
// tenth of it is free, and never shrinks.
func (p Pool) Plan(s Observation) Plan {
	b := builder{seen: s, quotas: s.Quotas}

	vif, trouble := p.findVIF(s)
	if trouble != nil {
		b.report(trouble)
		return b.Plan
	}

	st := inspect(p.Cluster, p.Node, p.Length, s)
	if trouble := p.checkVIF(vif, st, s); trouble != nil {
		b.report(trouble)
		return b.Plan
	}

	hasNetwork := p.planNetwork(&b, &st)
	trunk := p.planTrunks(&b, &st, vif)

	if hasNetwork {
		p.planPorts(&b, &st, trunk)
	}

	// Grow only a pool that is complete, except for ports whose address or tag is in use elsewhere.
	isIncomplete := slices.ContainsFunc(b.Problems, func(p Problem) bool { return !p.Partial() })
	if len(b.Steps) == 0 && !isIncomplete {
		p.planGrowth(&b, &st, trunk)
	}

	return b.Plan
}

// checkVIF returns why nothing is made or repaired for the VIF now, or nil.
func (p Pool) checkVIF(vif Port, st state, s Observation) *Problem {
	switch {
	case vif.Device == "":
		return problem(VIFWithoutVM, "plan pool of node %s: port %s has no VM (its device_id is "+
			"empty): nothing is made or repaired for it; attach it to the node's VM, or delete the "+
			"Node", p.Node, vif.ID)
	case p.Server != "" && vif.Device != p.Server:
		return problem(ForeignVIF,
			"plan pool of node %s: port %s is of VM %s, but the Node's providerID names %s",
			p.Node, vif.ID, vif.Device, p.Server)
	}

	for _, t := range s.Trunks {
		if node, ok := nodeOf(p.Cluster, t.Description); ok && t.Port == vif.ID && node != p.Node {
			return problem(VIFTaken, "plan pool of node %s: port %s is the VIF of node %s, which has "+
				"trunk %s on it: delete the Node that is wrong", p.Node, vif.ID, node, t.ID)
		}
	}

	return p.checkMTU(st.network, s.VIFMTU)
}

// checkMTU returns a problem if the node's NIC cannot carry the packets of its pods' network.
// Before that network is made, its MTU is expected to be that of the VIF's network.
func (p Pool) checkMTU(network Network, vifMTU int) *Problem {
	mtu, source := network.MTU, "its pods' network"
	if network.ID == "" {
		mtu, source = vifMTU, "its VIF's network"
	}

	if p.VIF.MTU >= mtu {
		return nil
	}

	return problem(MTUTooSmall,
		"plan pool of node %s: MTU %d of its NIC is below %d of %s: raise the MTU of the NIC",
		p.Node, p.VIF.MTU, mtu, source)
}

// findVIF returns the node's VIF. The port must have the announced address, which NodePool has
// compared with the node's InternalIPs, so that a node cannot take the VIF of another one.
func (p Pool) findVIF(s Observation) (Port, *Problem) {
	found := only(s.VIFs, func(v Port) bool {
		if p.VIF.ID != "" {
			return v.ID == p.VIF.ID
		}

		return v.MAC == p.VIF.MAC.String() && v.has(p.VIF.Address)
	})

	switch {
	case len(found) == 0 && p.VIF.ID != "":
		return Port{}, problem(UnknownVIF, "find VIF of node %s: the project has no port %s",
			p.Node, p.VIF.ID)
	case len(found) == 0:
		return Port{}, problem(UnknownVIF,
			"find VIF of node %s: the project has no port with MAC %s and address %s",
			p.Node, p.VIF.MAC, p.VIF.Address)
	case len(found) > 1:
		return Port{}, problem(UnknownVIF,
			"find VIF of node %s: %d ports have MAC %s and address %s: name one",
			p.Node, len(found), p.VIF.MAC, p.VIF.Address)
	}

	v := found[0]
	switch {
	case v.Project != p.Project:
		return Port{}, problem(ForeignVIF, "find VIF of node %s: port %s is of project %s",
			p.Node, v.ID, v.Project)
	case !v.has(p.VIF.Address):
		return Port{}, problem(ForeignVIF, "find VIF of node %s: port %s does not have address %s",
			p.Node, v.ID, p.VIF.Address)
	case v.Owner == ownerSubport:
		return Port{}, problem(NestedVIF, "find VIF of node %s: port %s is a subport of another trunk",
			p.Node, v.ID)
	}

	return v, nil
}

// planTrunks returns the trunk on the VIF, also if another program made it, or plans a new one and
// returns the zero Trunk. It removes the pool's ports from all other trunks, which are those of an
// earlier VM of the node.
func (p Pool) planTrunks(b *builder, st *state, vif Port) Trunk {
	var trunk Trunk

	for _, t := range b.seen.Trunks {
		if t.Port == vif.ID {
			trunk = t
			continue
		}

		b.releaseTrunk(st, t, p.Description())
	}

	if trunk.ID == "" && b.reserve("trunk", &b.quotas.Trunks, 1) == 1 {
		b.add(CreateTrunk{p.Name(), p.Description(), vif.ID})
	}

	return trunk
}

// releaseTrunk removes the pool's ports from a trunk. It deletes the trunk if the pool made it
// and it has no other ports.
func (b *builder) releaseTrunk(st *state, t Trunk, description string) {
	owned := st.ownedSubports(b.seen, t)
	b.removeSubports(t, owned)

	if t.Name == st.name && t.Description == description && len(t.Subports) == len(owned) {
		b.add(DeleteTrunk{t.ID})
	}
}

// ownedSubports returns the pool's ports in the trunk, in the order of their tags.
func (st *state) ownedSubports(s Observation, t Trunk) []Subport {
	own := map[string]bool{}
	for _, port := range s.Ports {
		_, own[port.ID] = st.owned(port)
	}

	subports := without(t.Subports, func(p Subport) bool { return !own[p.Port] })
	slices.SortFunc(subports, func(a, b Subport) int { return a.Tag - b.Tag })

	return subports
}

// removeSubports plans the removal of ports from a trunk.
func (b *builder) removeSubports(t Trunk, subports []Subport) {
	for batch := range slices.Chunk(subports, Batch) {
		step := RemoveSubports{Trunk: t.ID}
		for _, p := range batch {
			step.Ports = append(step.Ports, p.Port)
		}

		b.add(step)
	}
}

// planNetwork plans network, subnets and router interfaces. It reports whether they are complete,
// so that ports can be made.
func (p Pool) planNetwork(b *builder, st *state) bool {
	if st.network.ID == "" {
		if b.reserve("network", &b.quotas.Networks, 1) == 1 {
			b.add(CreateNetwork{p.Name(), p.Description()})
		}

		return false
	}

	// Delete the other networks of the pool, with their ports.
	for _, n := range st.copies {
		for _, t := range b.seen.Trunks {
			isElsewhere := func(s Subport) bool { return !b.inNetwork(s.Port, n) }
			b.removeSubports(t, without(st.ownedSubports(b.seen, t), isElsewhere))
		}

		b.releasePorts(st, n)
		b.releaseNetwork(n, p.Router)
	}

	// Delete subnets that a repeated request has made.
	for _, n := range st.surplus {
		if b.hasInterface(n, p.Router) {
			b.add(RemoveInterface{p.Router, n.ID})
		}

		b.add(DeleteSubnet{n.ID})
	}

	return p.planSubnets(b, st)
}

// planSubnets plans the missing subnets and their router interfaces. It reports whether all exist.
func (p Pool) planSubnets(b *builder, st *state) bool {
	if len(st.subnets) == 0 {
		st.subnets = []Subnet{{}} // the first one is missing
	}

	ready := true
	for i, n := range st.subnets {
		ready = p.planSubnet(b, n, CreateSubnet{
			Network: st.network.ID, Name: subnetName(p.Name(), i), SubnetPool: p.SubnetPool, Length: p.Length,
		}) && ready
	}

	if p.SubnetPool6 != "" {
		ready = p.planSubnet(b, st.subnet6, CreateSubnet{
			Network:    st.network.ID,
			Name:       subnet6Name(p.Name()),
			SubnetPool: p.SubnetPool6,
			Length:     64,
			IPv6:       true,
		}) && ready
	}

	return ready
}

// planSubnet plans the subnet, or the router's interface in it. It reports whether both exist.
func (p Pool) planSubnet(b *builder, n Subnet, create CreateSubnet) bool {
	switch {
	case n.ID == "":
		if b.reserve("subnet", &b.quotas.Subnets, 1) == 1 {
			b.add(create)
		}

		return false
	case !b.hasInterface(n, p.Router):
		if b.reserve("port", &b.quotas.Ports, 1) == 1 { // the router's port counts, too
			b.add(AddInterface{p.Router, n.ID})
		}

		return false
	}

	return true
}

// hasInterface reports whether the router has an interface in the subnet.
func (b *builder) hasInterface(n Subnet, router string) bool {
	return hasInterface(b.seen.Ports, n, router)
}

// hasInterface reports whether the router has one of the ports in the subnet.
func hasInterface(ports []Port, n Subnet, router string) bool {
	return slices.ContainsFunc(ports, func(p Port) bool {
		return p.isRouter() && p.Device == router && p.in(n.ID)
	})
}

// planPorts makes each slot have its port, in the pool's trunk with the slot's tag:
//
//   - Ports that another program has changed (strays) are deleted, so that a later plan makes them
//     again.
//   - A slot stays empty while a port that is not the pool's has its address or its tag.
//   - A port with another tag is removed from the trunk, so that a later plan adds it with its tag.
//   - A port that is in no trunk is added to the pool's trunk, once no port has to be removed.
//   - A missing port is made, up to MaxPorts and the quota.
func (p Pool) planPorts(b *builder, st *state, trunk Trunk) {
	tags := trunk.tags()
	p.planStrays(b, st, trunk, tags)
	foreign := foreignTags(st, b.seen, trunk)
	p.reportTaken(b, st, foreign)

	inOtherTrunk := b.subportsOutside(trunk)

	var (
		retag, attach []Subport
		missing       []Port
	)

	existing := count(st.slots, func(sl slot) bool { return sl.port.ID != "" })

	for _, sl := range st.slots {
		switch tag, inTrunk := tags[sl.port.ID]; {
		case sl.blocked || foreign[sl.tag] != "": // reportTaken has reported it, if it is a problem
		case sl.port.ID == "":
			if !st.hasStray(sl) && (p.MaxPorts == 0 || existing+len(missing) < p.MaxPorts) {
				missing = append(missing, p.port(st, sl, b.seen.Published))
			}
		case inTrunk && tag != sl.tag:
			retag = append(retag, Subport{sl.port.ID, tag})
		case !inTrunk && !inOtherTrunk[sl.port.ID]:
			attach = append(attach, Subport{sl.port.ID, sl.tag})
		}
	}

	b.removeSubports(trunk, retag)

	// A port that is removed above may have the tag of a port that is added here, so removals are a
	// plan of their own.
	if trunk.ID != "" && len(retag) == 0 {
		for batch := range slices.Chunk(attach, Batch) {
			b.add(AddSubports{trunk.ID, batch})
		}
	}

	missing = missing[:b.reserve("port", &b.quotas.Ports, len(missing))]
	for batch := range slices.Chunk(missing, Batch) {
		b.add(CreatePorts{batch})
	}
}

// subportsOutside returns the IDs of ports that are in another trunk.
func (b *builder) subportsOutside(trunk Trunk) map[string]bool {
	out := map[string]bool{}

	for _, t := range b.seen.Trunks {
		if t.ID != trunk.ID {
			for _, s := range t.Subports {
				out[s.Port] = true
			}
		}
	}

	return out
}

// planStrays deletes ports whose address or MAC was changed. Later plans make their slots' ports
// again.
func (p Pool) planStrays(b *builder, st *state, trunk Trunk, tags map[string]int) {
	var subports []Subport

	for _, port := range st.strays {
		if tag, inTrunk := tags[port.ID]; inTrunk {
			subports = append(subports, Subport{port.ID, tag})
		}
	}

	b.removeSubports(trunk, subports)

	for _, port := range st.strays {
		b.add(DeletePort{port.ID})
	}
}

// hasStray reports whether a port with the slot's name must be deleted first.
func (st *state) hasStray(sl slot) bool {
	name := portName(st.name, sl.fixed[0].Address)
	return slices.ContainsFunc(st.strays, func(p Port) bool { return p.Name == name })
}

// foreignTags returns the IDs of the ports in the trunk that are not the pool's, by tag.
func foreignTags(st *state, s Observation, trunk Trunk) map[int]string {
	own := st.ownedSubports(s, trunk)
	foreign := map[int]string{}

	for _, t := range trunk.Subports {
		if !slices.Contains(own, t) {
			foreign[t.Tag] = t.Port
		}
	}

	return foreign
}

// reportTaken reports the slots of the pool whose address or tag other ports have, with those
// ports. The pool has no port for these slots.
func (p Pool) reportTaken(b *builder, st *state, foreign map[int]string) {
	var addresses, tags []string

	for _, sl := range st.slots {
		if sl.blocker != "" {
			addresses = append(addresses, sl.fixed[0].Address.String()+" by port "+sl.blocker)
		}

		if port := foreign[sl.tag]; port != "" {
			tags = append(tags, strconv.Itoa(sl.tag)+" by port "+port)
		}
	}

	if len(addresses) > 0 {
		b.report(problem(AddressTaken, "make ports of node %s: addresses in use: %s: delete these "+
			"ports, which are not the pool's", p.Node, enumerate(addresses, maxListed)))
	}

	if len(tags) > 0 {
		b.report(problem(TagTaken, "make ports of node %s: VLAN tags in use: %s: take these ports, "+
			"which are not the pool's, out of the trunk", p.Node, enumerate(tags, maxListed)))
	}
}

// port returns the request for the slot's port. A repaired port gets the published MAC and
// groups, even if it had no groups, so a pod keeps its connections and the repair does not open
// it to others. If its groups are unknown, the port gets those of a new port.
func (p Pool) port(st *state, sl slot, published []Line) Port {
	port := Port{
		Name: portName(st.name, sl.fixed[0].Address), Description: p.Description(),
		Network: st.network.ID, FixedIPs: sl.fixed, Groups: p.Groups,
	}
	if l, ok := publishedFor(published, sl.fixed[0].Address); ok {
		port.MAC = l.MAC
		if l.Groups != nil {
			port.Groups = l.Groups
		}
	}

	return port
}

// planGrowth adds a subnet to a complete pool of which less than a tenth is free.
func (p Pool) planGrowth(b *builder, st *state, trunk Trunk) {
	tags := trunk.tags()
	ports := count(st.slots, func(sl slot) bool {
		_, inTrunk := tags[sl.port.ID]
		return inTrunk
	})

	size := 0 // addresses of all IPv4 subnets, each of which has a tag
	for _, n := range st.subnets {
		size += 1 << (32 - n.Prefix.Bits())
	}

	free := ports - p.Pods
	if ports == 0 || free*10 >= ports {
		return
	}

	isOutOfTags := size+firstSlot > lastTag // for the first slot of another subnet
	if isOutOfTags || p.MaxPorts > 0 && ports >= p.MaxPorts {
		if free <= 0 {
			b.report(problem(PortsExhausted, "grow pool of node %s: %d of %d ports used, and it is at "+
				"its maximum", p.Node, min(p.Pods, ports), ports))
		}

		return
	}

	if b.reserve("subnet", &b.quotas.Subnets, 1) == 1 {
		b.add(CreateSubnet{
			Network:    st.network.ID,
			Name:       subnetName(p.Name(), len(st.subnets)),
			SubnetPool: p.SubnetPool,
			Length:     p.Length,
		})
	}
}
