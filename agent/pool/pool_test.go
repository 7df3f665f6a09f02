package pool_test

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/agent/pool"
	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
)

const rest = time.Minute

// epoch is the time of the tests. Times are arguments, so no test depends on the clock.
var epoch = time.Date(2026, 11, 28, 10, 0, 0, 0, time.UTC)

// port returns the port that the controller made first for the tag.
func port(tag int) annotation.PoolPort {
	return annotation.PoolPort{
		ID:  fmt.Sprintf("00000000-0000-4000-8000-%012d", tag),
		Tag: tag,
		MAC: net.HardwareAddr{0xfa, 0x16, 0x3e, 0, byte(tag >> 8), byte(tag)},
		Addresses: []netip.Addr{
			netip.AddrFrom4([4]byte{10, 1, byte(tag >> 8), byte(tag)}),
			netip.AddrFrom16([16]byte{0: 0xfd, 14: byte(tag >> 8), 15: byte(tag)}),
		},
		Groups: []string{"99999999-0000-4000-8000-000000000001"},
	}
}

func portsOf(tags ...int) []annotation.PoolPort {
	var out []annotation.PoolPort
	for _, tag := range tags {
		out = append(out, port(tag))
	}

	return out
}

func owner(container string) pool.Owner {
	return pool.Owner{
		ContainerID: container, Interface: "eth0",
		Pod: "default/" + container, UID: "uid-" + container,
	}
}

func mustTake(t *testing.T, p *pool.Pool, container string, now time.Time) annotation.PoolPort {
	t.Helper()

	got, _, err := p.Take(owner(container), now)
	if err != nil {
		t.Fatal(err)
	}

	return got
}

// statusOf returns the status of a tag; its State is "" if the pool does not have the tag.
func statusOf(p *pool.Pool, tag int, now time.Time) pool.Status {
	for _, s := range p.Ports(now) {
		if s.Port.Tag == tag {
			return s
		}
	}

	return pool.Status{}
}

func TestPool_takesPortThatRestedLongest(t *testing.T) {
	type tags = []int

	type ago = map[int]time.Duration // since the release, by tag

	for _, tt := range []struct {
		name       string
		ports      tags // in the ConfigMap
		used, held tags
		ago        ago
		want       int
		early      bool
	}{
		{name: "lowest tag of a new pool", ports: tags{4, 2, 3}, want: 2},
		{name: "next tag", ports: tags{4, 2, 3}, used: tags{2}, want: 3},
		{name: "never used before rested", ports: tags{2, 3, 4}, ago: ago{2: 3 * rest, 3: 2 * rest}, want: 4},
		{name: "longest rested", ports: tags{2, 3, 4}, ago: ago{2: rest, 3: 3 * rest, 4: 2 * rest}, want: 3},
		{name: "lowest of equal rests", ports: tags{4, 3, 2}, ago: ago{2: rest, 3: rest, 4: rest}, want: 2},
		{name: "rest ends after a minute", ports: tags{2, 3}, used: tags{2}, ago: ago{3: rest}, want: 3},
		{name: "a nanosecond of rest is left", ports: tags{3}, ago: ago{3: rest - 1}, want: 3, early: true},
		{name: "free before resting", ports: tags{2, 3}, ago: ago{2: rest - 1, 3: rest}, want: 3},
		{name: "longest resting", ports: tags{2, 3, 4}, ago: ago{2: 10, 3: 30, 4: 20}, want: 3, early: true},
		{name: "held is not taken", ports: tags{2, 3}, held: tags{2}, want: 3},
		{name: "resting before held", ports: tags{2, 3}, held: tags{2}, ago: ago{3: 0}, want: 3, early: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := pool.New("vm1", rest)

			ports := portsOf(tt.ports...)
			for i := range ports {
				ports[i].Held = slices.Contains(tt.held, ports[i].Tag)
			}

			p.SetPorts(ports)

			var claims []pool.Claim
			for _, tag := range tt.used {
				claims = append(claims, pool.Claim{Tag: tag, Owner: owner(fmt.Sprint("c", tag)), Port: port(tag)})
			}

			released := map[int]time.Time{}
			for tag, d := range tt.ago {
				released[tag] = epoch.Add(-d)
			}

			p.Restore(claims, released, epoch)

			got, early, err := p.Take(owner("new"), epoch)
			if err != nil || got.Tag != tt.want || early != tt.early {
				t.Fatalf("took tag %d, early %v, %v; want tag %d, early %v", got.Tag, early, err, tt.want, tt.early)
			}

			if s := statusOf(p, tt.want, epoch); s.State != pool.Used || s.Owner != owner("new") {
				t.Errorf("status %+v, want used by the new container", s)
			}
		})
	}
}

func TestPool_errorSaysWhyNoPortIsFree(t *testing.T) {
	for _, tt := range []struct {
		ports, held int
		missing     bool // a pod has a port that left the ConfigMap
		want        pool.NoPortError
		text        string
	}{
		{13, 0, false, pool.NoPortError{Ports: 13, Used: 13}, "no free port on node vm1: 13 of 13 used"},
		{
			13, 2, false,
			pool.NoPortError{Ports: 13, Used: 11, Held: 2},
			"no free port on node vm1: 11 of 13 used, 2 held",
		},
		{13, 0, true, pool.NoPortError{Ports: 13, Used: 13}, "no free port on node vm1: 13 of 13 used"},
		{0, 0, false, pool.NoPortError{}, "no free port on node vm1: the controller has published no ports"},
		{0, 0, true, pool.NoPortError{}, "no free port on node vm1: the controller has published no ports"},
	} {
		p := pool.New("vm1", rest)
		if tt.missing {
			p.Restore([]pool.Claim{{Tag: 100, Owner: owner("old"), Port: port(100)}}, nil, epoch)
		}

		var ports []annotation.PoolPort
		for tag := 2; tag < 2+tt.ports; tag++ {
			ports = append(ports, port(tag))
		}

		for i := range tt.held {
			ports[i].Held = true
		}

		p.SetPorts(ports)

		for i := range tt.ports - tt.held {
			mustTake(t, p, fmt.Sprint("c", i), epoch)
		}

		_, _, err := p.Take(owner("last"), epoch)

		var none *pool.NoPortError

		tt.want.Node = "vm1"
		if !errors.As(err, &none) || *none != tt.want || err.Error() != tt.text {
			t.Errorf("got %v, want %q", err, tt.text)
		}

		if _, has := p.Port("last", "eth0"); has {
			t.Error("the container has a port after an error")
		}
	}
}

func TestPool_repeatedTakeReturnsTheSamePort(t *testing.T) {
	p := pool.New("vm1", rest)
	p.SetPorts(portsOf(2, 3, 4))
	first := mustTake(t, p, "a", epoch)

	again, early, err := p.Take(owner("a"), epoch.Add(time.Hour))
	if err != nil || early || !reflect.DeepEqual(again, first) {
		t.Errorf("took %v, early %v, %v; want %v again", again, early, err, first)
	}

	second := owner("a")

	second.Interface = "net1"
	if other, _, err := p.Take(second, epoch); err != nil || other.Tag != 3 {
		t.Errorf("another interface took tag %d, %v; want 3", other.Tag, err)
	}

	if other := mustTake(t, p, "b", epoch); other.Tag != 4 {
		t.Errorf("another container took tag %d, want 4", other.Tag)
	}

	// The pool is exhausted, but a repeated ADD needs no further port.
	if again := mustTake(t, p, "a", epoch); again.Tag != 2 {
		t.Errorf("took tag %d of an exhausted pool, want 2", again.Tag)
	}
}

// TestPool_lateReleaseKeepsThePortOfTheNextPod repeats the DEL of a sandbox after its port was
// given to the next pod. kubelet does so after a timeout of the runtime.
func TestPool_lateReleaseKeepsThePortOfTheNextPod(t *testing.T) {
	p := pool.New("vm1", rest)
	p.SetPorts(portsOf(2))
	mustTake(t, p, "old", epoch)

	if tag, released := p.Release("old", "net1", epoch); released {
		t.Errorf("tag %d was released for another interface", tag)
	}

	if tag, released := p.Release("old", "eth0", epoch); tag != 2 || !released {
		t.Fatalf("released tag %d, %v; want 2", tag, released)
	}

	if _, early, err := p.Take(owner("new"), epoch.Add(time.Second)); err != nil || !early {
		t.Fatalf("early %v, %v; want an early reuse", early, err)
	}

	if tag, released := p.Release("old", "eth0", epoch.Add(2*time.Second)); released {
		t.Errorf("tag %d was released by a late DEL", tag)
	}

	if s := statusOf(p, 2, epoch); s.State != pool.Used || s.Owner != owner("new") {
		t.Errorf("status %+v, want used by the new container", s)
	}
}

// TestPool_portUnderPod changes the ConfigMap's port of a tag while a pod has it.
func TestPool_portUnderPod(t *testing.T) {
	given := port(2)
	changed := func(change func(*annotation.PoolPort)) []annotation.PoolPort {
		p := port(2)
		change(&p)

		return []annotation.PoolPort{p, port(3)}
	}
	repaired := changed(func(p *annotation.PoolPort) { p.ID = port(77).ID })
	groups := changed(func(p *annotation.PoolPort) { p.Groups = []string{port(78).ID} })
	held := changed(func(p *annotation.PoolPort) { p.Held = true })
	readdressed := changed(func(p *annotation.PoolPort) { p.Addresses = port(79).Addresses })
	otherMAC := changed(func(p *annotation.PoolPort) { p.MAC, p.ID = port(80).MAC, port(80).ID })

	for _, tt := range []struct {
		name  string
		ports []annotation.PoolPort
		pods  annotation.PoolPort // the pod's port afterwards
		state pool.PortState
		after pool.PortState // of the tag after the release; "" if it is gone
	}{
		{"unchanged", changed(func(*annotation.PoolPort) {}), given, pool.Used, pool.Resting},
		{"repaired", repaired, repaired[0], pool.Used, pool.Resting},
		{"other groups", groups, groups[0], pool.Used, pool.Resting},
		{"held", held, held[0], pool.Used, pool.Held},
		{"other addresses", readdressed, given, pool.Missing, pool.Resting},
		{"other MAC", otherMAC, given, pool.Missing, pool.Resting},
		{"removed", portsOf(3), given, pool.Missing, ""},
		{"whole pool removed", nil, given, pool.Missing, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := pool.New("vm1", rest)
			p.SetPorts(portsOf(2, 3))
			mustTake(t, p, "a", epoch)
			p.SetPorts(tt.ports)

			if got, has := p.Port("a", "eth0"); !has || !reflect.DeepEqual(got, tt.pods) {
				t.Errorf("the pod has %v, %v; want %v", got, has, tt.pods)
			}

			s := statusOf(p, 2, epoch)
			if s.State != tt.state || s.Owner != owner("a") || !reflect.DeepEqual(s.Port, tt.pods) {
				t.Errorf("status %+v, want %s with the pod's port", s, tt.state)
			}

			if tag, released := p.Release("a", "eth0", epoch); tag != 2 || !released {
				t.Errorf("released tag %d, %v; want 2", tag, released)
			}

			after := statusOf(p, 2, epoch)
			if after.State != tt.after || after.Owner != (pool.Owner{}) {
				t.Errorf("status %+v after the release, want state %q without owner", after, tt.after)
			}

			if tt.after != "" && !reflect.DeepEqual(after.Port, tt.ports[0]) {
				t.Errorf("port %v after the release, want %v", after.Port, tt.ports[0])
			}
		})
	}
}

func TestPool_removedPortReturns(t *testing.T) {
	p := pool.New("vm1", rest)
	p.SetPorts(portsOf(2))
	mustTake(t, p, "a", epoch)
	p.SetPorts(nil)

	p.SetPorts(portsOf(2))

	if s := statusOf(p, 2, epoch); s.State != pool.Used || s.Owner != owner("a") {
		t.Errorf("status %+v, want used by its pod", s)
	}
}

// TestPool_noTwoPodsHaveOneAddress makes the node's subnets anew while a pod is running, so that
// the address of the pod gets another tag.
func TestPool_noTwoPodsHaveOneAddress(t *testing.T) {
	p := pool.New("vm1", rest)
	p.SetPorts(portsOf(2))
	mustTake(t, p, "a", epoch)

	moved := port(2)
	moved.Tag, moved.MAC = 18, port(18).MAC
	p.SetPorts([]annotation.PoolPort{moved})

	if s := statusOf(p, 18, epoch); s.State != pool.Held {
		t.Errorf("tag 18 is %s, want held while a pod has its address", s.State)
	}

	if got, _, err := p.Take(owner("b"), epoch); err == nil {
		t.Errorf("took %v, the address of another pod", got)
	}

	p.Release("a", "eth0", epoch)

	if got := mustTake(t, p, "b", epoch); got.Tag != 18 {
		t.Errorf("took tag %d, want 18", got.Tag)
	}
}

func TestPool_restoreKeepsTheNewestClaim(t *testing.T) {
	type claims = []pool.Claim

	claim := func(tag int, container string) pool.Claim {
		return pool.Claim{Tag: tag, Owner: owner(container), Port: port(tag)}
	}
	sameAddress := claim(9, "c")
	sameAddress.Port.Addresses = port(2).Addresses

	for _, tt := range []struct {
		name       string
		claims     claims
		kept, lost claims
	}{
		{"all differ", claims{claim(3, "a"), claim(2, "b")}, claims{claim(2, "b"), claim(3, "a")}, nil},
		{
			"one tag",
			claims{claim(2, "a"), claim(2, "b"), claim(2, "c")},
			claims{claim(2, "c")},
			claims{claim(2, "a"), claim(2, "b")},
		},
		{
			"one interface",
			claims{claim(2, "a"), claim(3, "a")},
			claims{claim(3, "a")},
			claims{claim(2, "a")},
		},
		{
			"one address",
			claims{claim(2, "a"), sameAddress},
			claims{sameAddress},
			claims{claim(2, "a")},
		},
		{
			"a claim that lost does not displace others",
			claims{claim(2, "a"), claim(2, "b"), claim(3, "b")},
			claims{claim(2, "a"), claim(3, "b")},
			claims{claim(2, "b")},
		},
	} {
		p := pool.New("vm1", rest)
		if lost := p.Restore(tt.claims, nil, epoch); !reflect.DeepEqual(lost, tt.lost) {
			t.Errorf("%s: lost %v, want %v", tt.name, lost, tt.lost)
		}

		var kept claims
		for _, s := range p.Ports(epoch) {
			kept = append(kept, pool.Claim{Tag: s.Port.Tag, Owner: s.Owner, Port: s.Port})
		}

		if !reflect.DeepEqual(kept, tt.kept) {
			t.Errorf("%s: kept %v, want %v", tt.name, kept, tt.kept)
		}
	}
}

// TestPool_restoreAndConfigMapInEitherOrder starts an agent after the controller has repaired a
// port.
func TestPool_restoreAndConfigMapInEitherOrder(t *testing.T) {
	claims := []pool.Claim{{Tag: 2, Owner: owner("a"), Port: port(2)}}
	repaired := port(2)
	repaired.ID = port(77).ID

	before, after := pool.New("vm1", rest), pool.New("vm1", rest)
	before.Restore(claims, nil, epoch)
	before.SetPorts([]annotation.PoolPort{repaired})
	after.SetPorts([]annotation.PoolPort{repaired})
	after.Restore(claims, nil, epoch)

	for name, p := range map[string]*pool.Pool{"before": before, "after": after} {
		if got, _ := p.Port("a", "eth0"); got.ID != repaired.ID {
			t.Errorf("restored %s the ConfigMap: port %s, want %s", name, got.ID, repaired.ID)
		}
	}
}

func TestPool_restoredRest(t *testing.T) {
	p := pool.New("vm1", rest)
	p.SetPorts(portsOf(2, 3, 4, 5))
	p.Restore([]pool.Claim{{Tag: 5, Owner: owner("a"), Port: port(5)}}, map[int]time.Time{
		2: epoch.Add(-20 * time.Second),
		3: epoch.Add(time.Hour), // the clock was set back
		4: epoch.Add(-rest),
		5: epoch, // its pod started after the file was written
	}, epoch)

	for tag, want := range map[int]time.Duration{2: 40 * time.Second, 3: rest, 4: 0, 5: 0} {
		if got := statusOf(p, tag, epoch).Rest; got != want {
			t.Errorf("tag %d rests for %v, want %v", tag, got, want)
		}
	}

	want := map[int]time.Time{2: epoch.Add(-20 * time.Second), 3: epoch}
	if got := p.Released(epoch); !reflect.DeepEqual(got, want) {
		t.Errorf("released %v, want %v", got, want)
	}

	if got := p.Released(epoch.Add(rest)); len(got) != 0 {
		t.Errorf("released %v a minute later, want none", got)
	}
}

func TestPool_countsHaveAllStates(t *testing.T) {
	p := pool.New("vm1", rest)

	type counts = map[pool.PortState]int

	none := counts{pool.Free: 0, pool.Resting: 0, pool.Used: 0, pool.Held: 0, pool.Missing: 0}
	if got := p.Counts(epoch); !reflect.DeepEqual(got, none) {
		t.Errorf("counts of a new pool %v, want %v", got, none)
	}

	p.SetPorts(portsOf(2, 3, 4))

	for _, container := range []string{"a", "b", "c"} {
		mustTake(t, p, container, epoch)
	}

	p.Release("c", "eth0", epoch) // tag 4

	held := port(5)
	held.Held = true
	p.SetPorts(append(portsOf(3, 4, 6, 7), held)) // without tag 2

	want := counts{pool.Free: 2, pool.Resting: 1, pool.Used: 1, pool.Held: 1, pool.Missing: 1}
	if got := p.Counts(epoch); !reflect.DeepEqual(got, want) {
		t.Errorf("counts %v, want %v", got, want)
	}
}
