package pool_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/agent/pool"
	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
	"github.com/ovn-ebpf/ovn-ebpf/test/randomtest"
)

// node is a Pool under random events, and what the events so far say about it.
type node struct {
	t      *testing.T
	random *rand.Rand
	now    time.Time
	pool   *pool.Pool

	ports    []annotation.PoolPort          // of the ConfigMap
	claims   []pool.Claim                   // of running pods, the oldest first
	deleted  []pool.Owner                   // of sandboxes that were released
	released map[int]time.Time              // by tag
	given    map[string]annotation.PoolPort // by container, as Take returned it
	last     int                            // container
	seen     map[string]int                 // outcomes of events
}

// TestPool_randomEvents adds and deletes pods, changes the ConfigMap and restarts the agent at
// random.
func TestPool_randomEvents(t *testing.T) {
	seed := randomtest.Seed(t)
	seen := map[string]int{}

	for round := range uint64(20) {
		n := &node{
			t: t, random: rand.New(rand.NewPCG(seed, round)), now: epoch, pool: pool.New("vm1", rest),
			released: map[int]time.Time{}, given: map[string]annotation.PoolPort{}, seen: seen,
		}
		for range 500 {
			n.now = n.now.Add(time.Duration(n.random.IntN(20)) * time.Second)
			n.step()
			n.check()

			if t.Failed() {
				return
			}
		}
	}

	t.Logf("outcomes %v", seen)

	for _, outcome := range []string{
		"taken", "taken early", "repeated", "no port", "released", "released late",
		"repaired", "readdressed", "removed under a pod", "restarted",
	} {
		if seen[outcome] == 0 {
			t.Errorf("no event had the outcome %q", outcome)
		}
	}
}

func (n *node) step() {
	switch n.random.IntN(16) {
	case 0, 1, 2, 3, 4, 5:
		n.take()
	case 6:
		n.repeatTake()
	case 7, 8, 9, 10:
		n.release()
	case 11:
		n.releaseLate()
	case 12, 13, 14:
		n.publish()
	case 15:
		n.restart()
	}
}

// takeable returns the tags that a new pod may have, in the order of preference.
func (n *node) takeable() []int {
	var tags []int

	for _, p := range n.ports {
		taken := slices.ContainsFunc(n.claims, func(c pool.Claim) bool { return c.Tag == p.Tag })
		if !p.Held && !taken {
			tags = append(tags, p.Tag)
		}
	}

	slices.SortFunc(tags, func(a, b int) int {
		if order := n.released[a].Compare(n.released[b]); order != 0 {
			return order
		}

		return a - b
	})

	return tags
}

func (n *node) take() {
	n.t.Helper()
	n.last++
	o := owner(fmt.Sprint(n.last))
	want := n.takeable()
	got, early, err := n.pool.Take(o, n.now)

	if len(want) == 0 {
		n.seen["no port"]++

		var none *pool.NoPortError
		if !errors.As(err, &none) || none.Ports != len(n.ports) || none.Used+none.Held != none.Ports {
			n.t.Errorf("took %v, %v; want no port", got, err)
		}

		return
	}

	at, wasReleased := n.released[want[0]]

	wantEarly := wasReleased && n.now.Sub(at) < rest
	if err != nil || got.Tag != want[0] || early != wantEarly || got.Held {
		n.t.Errorf("took %v, early %v, %v; want tag %d, early %v", got, early, err, want[0], wantEarly)
	}

	n.seen["taken"]++
	if early {
		n.seen["taken early"]++
	}

	n.claims = append(n.claims, pool.Claim{Tag: got.Tag, Owner: o, Port: got})
	n.given[o.ContainerID] = got
	delete(n.released, got.Tag)
}

func (n *node) repeatTake() {
	n.t.Helper()

	if len(n.claims) == 0 {
		return
	}

	c := n.claims[n.random.IntN(len(n.claims))]

	got, early, err := n.pool.Take(c.Owner, n.now)
	if err != nil || early || got.Tag != c.Tag {
		n.t.Errorf("repeated Take of %v: %v, early %v, %v", c, got, early, err)
	}

	n.seen["repeated"]++
}

func (n *node) release() {
	n.t.Helper()

	if len(n.claims) == 0 {
		return
	}

	i := n.random.IntN(len(n.claims))
	c := n.claims[i]

	tag, released := n.pool.Release(c.Owner.ContainerID, c.Owner.Interface, n.now)
	if !released || tag != c.Tag {
		n.t.Errorf("released tag %d, %v; want %d", tag, released, c.Tag)
	}

	n.seen["released"]++

	n.claims = slices.Delete(n.claims, i, i+1)
	n.deleted = append(n.deleted, c.Owner)
	n.released[c.Tag] = n.now
}

// releaseLate repeats the release of an earlier sandbox.
func (n *node) releaseLate() {
	n.t.Helper()

	if len(n.deleted) == 0 {
		return
	}

	o := n.deleted[n.random.IntN(len(n.deleted))]

	before := n.pool.Ports(n.now)
	if tag, released := n.pool.Release(o.ContainerID, o.Interface, n.now); released {
		n.t.Errorf("tag %d was released by the late release of %v", tag, o)
	}

	if after := n.pool.Ports(n.now); !reflect.DeepEqual(before, after) {
		n.t.Errorf("a late release changed %v to %v", before, after)
	}

	n.seen["released late"]++
}

// publish changes the ConfigMap: it grows, and ports are removed, held, repaired or replaced.
func (n *node) publish() {
	used := map[int]bool{}
	for _, c := range n.claims {
		used[c.Tag] = true
	}

	var ports []annotation.PoolPort
	for tag := 2; tag < 15; tag++ {
		i := slices.IndexFunc(n.ports, func(p annotation.PoolPort) bool { return p.Tag == tag })

		event := n.random.IntN(12)
		switch {
		case i < 0 && event < 8:
			ports = append(ports, port(tag))
			continue
		case i < 0:
			continue
		case event == 0:
			if used[tag] {
				n.seen["removed under a pod"]++
			}

			continue
		}

		p := n.ports[i]

		switch event {
		case 1, 2:
			p.Held = !p.Held
		case 3:
			p.ID = port(100 + n.random.IntN(900)).ID
			n.seen["repaired"]++
		case 4:
			p.Addresses = port(tag + 1000 + 100*n.random.IntN(9)).Addresses
			n.seen["readdressed"]++
		}

		ports = append(ports, p)
	}

	n.ports = ports
	n.random.Shuffle(len(ports), func(i, j int) { ports[i], ports[j] = ports[j], ports[i] })
	n.pool.SetPorts(slices.Clone(ports))
}

// restart makes a new Pool from the records and the state file.
func (n *node) restart() {
	n.t.Helper()
	before := n.pool.Ports(n.now)
	n.released = n.pool.Released(n.now)

	claims := slices.Clone(n.claims)
	for i, c := range claims {
		claims[i].Port = n.given[c.Owner.ContainerID] // the UUID may have changed since
	}

	n.pool = pool.New("vm1", rest)
	lost := n.pool.Restore(claims, n.released, n.now)
	n.pool.SetPorts(n.ports)

	after := n.pool.Ports(n.now)
	if len(lost) > 0 || len(before) != len(after) {
		n.t.Errorf("lost %v; ports %v, then %v", lost, before, after)
		return
	}

	for i, b := range before {
		a := after[i]
		if a.State != b.State || a.Owner != b.Owner || a.Rest != b.Rest || a.Port.Tag != b.Port.Tag {
			n.t.Errorf("status %+v, after the restart %+v", b, a)
		}
	}

	n.seen["restarted"]++
}

// check compares the Pool with the events so far.
func (n *node) check() {
	n.t.Helper()

	statuses := n.pool.Ports(n.now)
	if !slices.IsSortedFunc(statuses, func(a, b pool.Status) int { return a.Port.Tag - b.Port.Tag }) {
		n.t.Errorf("ports are not sorted: %v", statuses)
	}

	tags, addresses := map[int]bool{}, map[string]bool{}

	for _, c := range n.claims {
		got, has := n.pool.Port(c.Owner.ContainerID, c.Owner.Interface)
		given := n.given[c.Owner.ContainerID]

		same := bytes.Equal(got.MAC, given.MAC) && slices.Equal(got.Addresses, given.Addresses)
		if !has || got.Tag != given.Tag || !same {
			n.t.Errorf("%v has %v, %v; was given %v", c.Owner, got, has, given)
		}

		if tags[got.Tag] {
			n.t.Errorf("two pods have tag %d", got.Tag)
		}

		tags[got.Tag] = true
		for _, a := range got.Addresses {
			if addresses[a.String()] {
				n.t.Errorf("two pods have address %s", a)
			}

			addresses[a.String()] = true
		}
	}

	published := map[int]annotation.PoolPort{}
	for _, p := range n.ports {
		published[p.Tag] = p
		tags[p.Tag] = true
	}

	if len(statuses) != len(tags) {
		n.t.Errorf("%d ports, want %d: %v", len(statuses), len(tags), statuses)
	}

	for _, s := range statuses {
		if want := n.state(s.Port.Tag, published); s.State != want {
			n.t.Errorf("tag %d is %s, want %s", s.Port.Tag, s.State, want)
		}

		if p := published[s.Port.Tag]; s.State != pool.Missing && !reflect.DeepEqual(s.Port, p) {
			n.t.Errorf("tag %d has port %v, the ConfigMap has %v", s.Port.Tag, s.Port, p)
		}
	}

	resting := map[int]time.Time{}

	for tag, at := range n.released {
		if n.now.Sub(at) < rest {
			resting[tag] = at
		}
	}

	if got := n.pool.Released(n.now); !reflect.DeepEqual(got, resting) {
		n.t.Errorf("released %v, want %v", got, resting)
	}

	total := 0
	for _, count := range n.pool.Counts(n.now) {
		total += count
	}

	if total != len(statuses) {
		n.t.Errorf("counts sum up to %d, want %d", total, len(statuses))
	}
}

// state returns the state that the events so far give the tag.
func (n *node) state(tag int, published map[int]annotation.PoolPort) pool.PortState {
	p, isPublished := published[tag]
	i := slices.IndexFunc(n.claims, func(c pool.Claim) bool { return c.Tag == tag })
	at, wasReleased := n.released[tag]

	switch {
	case i >= 0 && isPublished && slices.Equal(p.Addresses, n.claims[i].Port.Addresses):
		return pool.Used
	case i >= 0:
		return pool.Missing
	case p.Held:
		return pool.Held
	case wasReleased && n.now.Sub(at) < rest:
		return pool.Resting
	default:
		return pool.Free
	}
}
