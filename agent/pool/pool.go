package pool

import (
	"bytes"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
)

// PortState is the state of a port in a Pool.
type PortState string

// The states of a port. A port has exactly one.
const (
	Free    PortState = "free"    // can be taken
	Resting PortState = "resting" // was released a short time ago, is taken only if no port is free
	Used    PortState = "used"    // a pod has it
	Held    PortState = "held"    // none may take it: it is PoolPort.Held, or a pod has its address
	Missing PortState = "missing" // a pod has it, but it left the ConfigMap or was replaced there
)

// Owner is the interface of a pod that has a port.
type Owner struct {
	ContainerID string // the sandbox
	Interface   string // name in the pod
	Pod         string // namespace/name
	UID         string // of the Pod
}

// Claim is a port that a pod has, as it was given to the pod.
type Claim struct {
	Tag   int
	Owner Owner
	Port  annotation.PoolPort
}

// Status is a port of the node and its state.
type Status struct {
	Port  annotation.PoolPort
	State PortState
	Owner Owner         // of a used or missing port
	Rest  time.Duration // left until a resting port is free
}

// NoPortError reports that a pod cannot have a port because the node's pool has no free one.
type NoPortError struct {
	Node              string
	Ports, Used, Held int // Ports is the sum of the other two
}

// Error returns the numbers of ports, so that the reader sees why none is free.
func (e *NoPortError) Error() string {
	if e.Ports == 0 {
		return fmt.Sprintf("no free port on node %s: the controller has published no ports", e.Node)
	}

	text := fmt.Sprintf("no free port on node %s: %d of %d used", e.Node, e.Used, e.Ports)
	if e.Held > 0 {
		text += fmt.Sprintf(", %d held", e.Held)
	}

	return text
}

// podInterface identifies an interface of a container.
type podInterface struct{ container, iface string }

// Pool holds the ports of a node and the pods that have them: the claims. A port that the ConfigMap
// has, without a claim, can be taken unless it is held. A Pool must not be used concurrently.
// Slices in arguments and results share memory with the Pool and must not be changed.
type Pool struct {
	node string
	rest time.Duration

	ports     map[int]annotation.PoolPort // the ConfigMap's, by tag
	claims    map[int]Claim               // by tag
	tags      map[podInterface]int        // of claims
	addresses map[netip.Addr]bool         // of claims
	released  map[int]time.Time           // the last release of each unclaimed tag
}

// New returns the pool of a node without ports. A released port rests for the given time, so that
// load balancers and the neighbour caches of peers forget the pod that had its address.
func New(node string, rest time.Duration) *Pool {
	return &Pool{
		node: node, rest: rest,
		ports: map[int]annotation.PoolPort{}, claims: map[int]Claim{}, tags: map[podInterface]int{},
		addresses: map[netip.Addr]bool{}, released: map[int]time.Time{},
	}
}

// Restore adds the claims of pods to a new Pool, and the times at which tags were released. Claims
// must be sorted by age, the oldest first. If two claims have the same tag, address or
// interface, the newer one wins. Restore returns the claims that lost, in the same order.
//
// A release lies in the future if the clock was set back. Such a port rests from now on.
func (p *Pool) Restore(claims []Claim, released map[int]time.Time, now time.Time) (lost []Claim) {
	for _, c := range slices.Backward(claims) {
		_, tagTaken := p.claims[c.Tag]
		_, interfaceTaken := p.tags[c.Owner.key()]

		if tagTaken || interfaceTaken || p.hasAddressOf(c.Port) {
			lost = append(lost, c)
			continue
		}

		p.claim(c)
	}

	for tag, at := range released {
		if _, used := p.claims[tag]; used {
			continue
		}

		if at.After(now) {
			at = now
		}

		p.released[tag] = at
	}

	slices.Reverse(lost)

	return lost
}

// SetPorts replaces the ports of the ConfigMap. Their tags must be unique. A pod keeps its port. If
// the ConfigMap has the tag with the same MAC and addresses, the pod's port gets the new UUID,
// groups and Held. Otherwise the port stays as it was given to the pod until the pod releases it.
func (p *Pool) SetPorts(ports []annotation.PoolPort) {
	clear(p.ports)

	for _, port := range ports {
		p.ports[port.Tag] = port
		p.refreshClaim(port.Tag)
	}
}

// Take returns the port that the owner gets. The same container and interface get the same port
// again. Ports that were never used are taken first, then the port that was released the longest
// time ago. Ties are broken by the lowest tag. early reports that the port has not rested long
// enough, but no other port is free. The error is a *NoPortError.
func (p *Pool) Take(o Owner, now time.Time) (port annotation.PoolPort, early bool, err error) {
	if port, ok := p.Port(o.ContainerID, o.Interface); ok {
		return port, false, nil
	}

	var chosen Status

	noPort := &NoPortError{Node: p.node}

	for tag := range p.ports {
		s := p.status(tag, now)
		noPort.Ports++

		switch s.State {
		case Used, Missing:
			noPort.Used++
		case Held:
			noPort.Held++
		case Free, Resting:
			if chosen.State == "" || p.prefers(tag, chosen.Port.Tag) {
				chosen = s
			}
		}
	}

	if chosen.State == "" {
		return annotation.PoolPort{}, false, noPort
	}

	p.claim(Claim{Tag: chosen.Port.Tag, Owner: o, Port: chosen.Port})

	return chosen.Port, chosen.State == Resting, nil
}

// prefers reports whether Take prefers the first of two unclaimed tags.
func (p *Pool) prefers(a, b int) bool {
	order := p.released[a].Compare(p.released[b]) // the zero time, of a port that was never used, is first

	return order < 0 || order == 0 && a < b
}

// Release ends the claim of the container's interface and returns its tag. It reports false if the
// interface has no port. A late DEL of a removed sandbox therefore never releases the port of the
// pod that has the tag now.
func (p *Pool) Release(containerID, iface string, now time.Time) (tag int, released bool) {
	key := podInterface{containerID, iface}
	tag, claimed := p.tags[key]

	if !claimed {
		return 0, false
	}

	for _, a := range p.claims[tag].Port.Addresses {
		delete(p.addresses, a)
	}

	delete(p.claims, tag)
	delete(p.tags, key)
	p.released[tag] = now

	return tag, true
}

// Port returns the port that the container's interface has.
func (p *Pool) Port(containerID, iface string) (annotation.PoolPort, bool) {
	tag, claimed := p.tags[podInterface{containerID, iface}]
	return p.claims[tag].Port, claimed
}

// Owners returns the interfaces that have ports, sorted by tag.
func (p *Pool) Owners() []Owner {
	var out []Owner
	for _, tag := range slices.Sorted(maps.Keys(p.claims)) {
		out = append(out, p.claims[tag].Owner)
	}

	return out
}

// Ports returns the ports of the ConfigMap and of pods, sorted by tag. If the ConfigMap and a pod
// have different ports with the same tag, Ports returns the pod's.
func (p *Pool) Ports(now time.Time) []Status {
	tags := slices.AppendSeq(slices.Collect(maps.Keys(p.ports)), maps.Keys(p.claims))
	slices.Sort(tags)
	tags = slices.Compact(tags)

	out := make([]Status, 0, len(tags))
	for _, tag := range tags {
		out = append(out, p.status(tag, now))
	}

	return out
}

// Counts returns the number of ports in each state. All states are present.
func (p *Pool) Counts(now time.Time) map[PortState]int { return count(p.Ports(now)) }

// count returns the number of ports in each state.
func count(ports []Status) map[PortState]int {
	counts := map[PortState]int{Free: 0, Resting: 0, Used: 0, Held: 0, Missing: 0}
	for _, s := range ports {
		counts[s.State]++
	}

	return counts
}

// Released returns the times of releases by tag, without the tags that no longer rest. The agent's
// state file keeps these times.
func (p *Pool) Released(now time.Time) map[int]time.Time {
	out := map[int]time.Time{}

	for tag, at := range p.released {
		if p.restLeft(tag, now) > 0 {
			out[tag] = at
		}
	}

	return out
}

// status returns the state of a tag that the ConfigMap or a claim has.
func (p *Pool) status(tag int, now time.Time) Status {
	port, published := p.ports[tag]
	claim, claimed := p.claims[tag]

	switch rest := p.restLeft(tag, now); {
	case claimed && published && sameIdentity(port, claim.Port):
		return Status{Port: claim.Port, State: Used, Owner: claim.Owner}
	case claimed:
		return Status{Port: claim.Port, State: Missing, Owner: claim.Owner}
	case port.Held || p.hasAddressOf(port):
		return Status{Port: port, State: Held}
	case rest > 0:
		return Status{Port: port, State: Resting, Rest: rest}
	default:
		return Status{Port: port, State: Free}
	}
}

// hasAddressOf reports whether a pod has one of the port's addresses. That pod may have another
// tag, if the node's subnets were made anew while the pod was running.
func (p *Pool) hasAddressOf(port annotation.PoolPort) bool {
	return slices.ContainsFunc(port.Addresses, func(a netip.Addr) bool { return p.addresses[a] })
}

// restLeft returns for how long the port of a tag still rests.
func (p *Pool) restLeft(tag int, now time.Time) time.Duration {
	at, ok := p.released[tag]
	if !ok {
		return 0
	}

	return max(0, p.rest-now.Sub(at))
}

// claim gives the tag to the owner of a claim.
func (p *Pool) claim(c Claim) {
	p.claims[c.Tag] = c

	p.tags[c.Owner.key()] = c.Tag
	for _, a := range c.Port.Addresses {
		p.addresses[a] = true
	}

	delete(p.released, c.Tag)
	p.refreshClaim(c.Tag)
}

// refreshClaim gives the tag's claim the current UUID, groups and Held of its port.
func (p *Pool) refreshClaim(tag int) {
	c, claimed := p.claims[tag]
	port, published := p.ports[tag]

	if claimed && published && sameIdentity(port, c.Port) {
		c.Port = port
		p.claims[tag] = c
	}
}

// sameIdentity reports whether two ports of a tag are the same port, or one is the repaired other.
func sameIdentity(a, b annotation.PoolPort) bool {
	return bytes.Equal(a.MAC, b.MAC) && slices.Equal(a.Addresses, b.Addresses)
}

// key returns the interface without its pod.
func (o Owner) key() podInterface { return podInterface{o.ContainerID, o.Interface} }
