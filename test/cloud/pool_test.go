package cloud_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
	"github.com/ovn-ebpf/ovn-ebpf/controller/cloud"
	"github.com/ovn-ebpf/ovn-ebpf/controller/openstack"
	testcloud "github.com/ovn-ebpf/ovn-ebpf/test/cloud"
	"github.com/ovn-ebpf/ovn-ebpf/test/randomtest"
)

// TestPoolJoinsGrowsAndLeaves: a node's pool is made at a real Neutron in both families, grows,
// and is removed without a trace.
func TestPoolJoinsGrowsAndLeaves(t *testing.T) {
	p := newProject(t)
	node := p.vm("10.0.0.11")
	pool := p.pool(node, 0)
	clear(p.calls)

	start := time.Now()

	r, problems := p.settle(pool, nil)
	if len(problems) > 0 || len(r.Lines) != 13 || len(r.Gateways) != 2 || r.MTU != 1442 {
		t.Fatalf("record %v, problems %v", r, problems)
	}

	requests := 0
	for _, n := range p.calls {
		requests += n
	}

	t.Logf("joined with 13 ports in %.1f s by %d requests: %v", time.Since(start).Seconds(), requests, p.calls)

	for i, l := range r.Lines {
		if l.Tag != i+2 || len(l.Addresses) != 2 || !l.Addresses[0].Is4() || !slices.Equal(l.Groups, p.config.Groups) {
			t.Errorf("line %v: want tag %d, two addresses, the cluster's group", l, i+2)
		}
	}

	p.same(pool, r)

	pool = p.pool(node, 12)

	grown, problems := p.settle(pool, r.Lines)
	if len(problems) > 0 || len(grown.Lines) != 26 || grown.Lines[13].Tag != 18 {
		t.Fatalf("record %v, problems %v", grown, problems)
	}

	p.same(pool, grown)
	p.release(pool)
}

// TestPoolIsRepaired: ports that somebody deletes, retags or readdresses are what they were before,
// with address, MAC and tag.
func TestPoolIsRepaired(t *testing.T) {
	p := newProject(t)
	p.config.SubnetPool6 = ""
	pool := p.pool(p.vm("10.0.0.12"), 0)
	r, _ := p.settle(pool, nil)
	remove := func(l cloud.Line) {
		t.Helper()

		if err := p.client.RemoveSubports(t.Context(), r.Trunk, []string{l.Port}); err != nil {
			t.Fatal(err)
		}
	}

	deleted, retagged, readdressed, associated := r.Lines[0], r.Lines[1], r.Lines[2], r.Lines[3]
	if err := p.client.SetGroups(t.Context(), deleted.Port, []string{}); err != nil {
		t.Fatal(err)
	}

	r = pool.Record(p.observe(pool, r.Lines)) // published with it

	remove(deleted)

	if err := p.client.DeletePort(t.Context(), deleted.Port); err != nil {
		t.Fatal(err)
	}

	remove(retagged)

	if err := p.client.AddSubports(t.Context(), r.Trunk, []cloud.Subport{{Port: retagged.Port, Tag: 999}}); err != nil {
		t.Fatal(err)
	}

	p.update(lab.Tenant, "ports/"+readdressed.Port, testcloud.Object{"port": testcloud.Object{
		"fixed_ips": []testcloud.Object{{"ip_address": deleted.Addresses[0].String()}},
	}})

	profile := p.make("security_group", testcloud.Object{"name": "profile"})
	if err := p.client.SetGroups(t.Context(), associated.Port, []string{profile}); err != nil {
		t.Fatal(err)
	}

	var held []int

	for _, l := range pool.Record(p.observe(pool, r.Lines)).Lines {
		if l.Held {
			held = append(held, l.Tag)
		}
	}

	if want := []int{2, 3, 4}; !slices.Equal(held, want) {
		t.Errorf("tags %v are held, want %v", held, want)
	}

	after, problems := p.settle(pool, r.Lines)
	if len(problems) > 0 {
		t.Errorf("problems %v", problems)
	}

	for i, l := range after.Lines {
		was := r.Lines[i]
		if l.Held || l.Tag != was.Tag || l.MAC != was.MAC || !slices.Equal(l.Addresses, was.Addresses) {
			t.Errorf("line %v, want that of %v", l, was)
		}
	}

	if got := after.Lines[0].Groups; got == nil || len(got) > 0 {
		t.Errorf("the port without groups was made again with groups %#v", got)
	}

	if !slices.Equal(after.Lines[3].Groups, []string{profile}) {
		t.Errorf("groups %v, want %s", after.Lines[3].Groups, profile)
	}

	p.same(pool, after)
	p.release(pool)
}

// TestVIFReplaced: the ports of a node whose VM was made anew move to the new VIF's trunk.
func TestVIFReplaced(t *testing.T) {
	p := newProject(t)
	p.config.SubnetPool6 = ""
	old := p.pool(p.vm("10.0.0.13"), 0)
	before, _ := p.settle(old, nil)
	replaced := p.pool(p.vm("10.0.0.14"), 0)

	after, problems := p.settle(replaced, before.Lines)
	if len(problems) > 0 || after.VIF != replaced.VIF.ID || after.Trunk == before.Trunk ||
		fmt.Sprint(after.Lines) != fmt.Sprint(before.Lines) {
		t.Errorf("record %v, problems %v; before %v", after, problems, before)
	}

	p.same(replaced, after)
	p.release(replaced)
}

// TestForeignTrunkStays: a trunk that is on the VIF is used, with the other subports in it, and
// stays at the release.
func TestForeignTrunkStays(t *testing.T) {
	p := newProject(t)
	p.config.SubnetPool6 = ""
	node := p.vm("10.0.0.15")
	pool := p.pool(node, 0)

	trunk, err := p.client.CreateTrunk(t.Context(), cloud.CreateTrunk{Name: "another's", Port: pool.VIF.ID})
	if err != nil {
		t.Fatal(err)
	}

	other := p.make("port", testcloud.Object{"network_id": p.vms, "name": "another's"})
	if err := p.client.AddSubports(t.Context(), trunk.ID, []cloud.Subport{{Port: other, Tag: 5}}); err != nil {
		t.Fatal(err)
	}

	r, problems := p.settle(pool, nil)
	if len(r.Lines) != 12 || slices.ContainsFunc(r.Lines, func(l cloud.Line) bool { return l.Tag == 5 }) {
		t.Errorf("record %v: want the 12 ports but that of tag 5", r)
	}

	if len(problems) != 1 || problems[0].Reason != cloud.TagTaken || !strings.Contains(problems[0].Text, other) {
		t.Errorf("problems %v: want TagTaken with port %s", problems, other)
	}

	p.release(pool)

	left, err := p.client.Trunks(t.Context(), openstack.TrunkFilter{Port: pool.VIF.ID})
	if err != nil || len(left) != 1 || len(left[0].Subports) != 1 || left[0].Subports[0].Port != other {
		t.Errorf("trunks %v, %v: want the one with the other subport", left, err)
	}

	if err := p.client.DeleteTrunk(t.Context(), trunk.ID); err != nil {
		t.Error(err)
	}
}

// TestKilledAnywhere: a controller that dies or loses a response at any step, and repeats it, comes
// to the same pool, and the release leaves nothing.
func TestKilledAnywhere(t *testing.T) {
	p := newProject(t)
	p.config.SubnetPool6 = ""
	random := rand.New(rand.NewPCG(randomtest.Seed(t), 0))
	pool := p.pool(p.vm("10.0.0.16"), 0)
	kills, refused := 0, 0
	walk := func(plan func(cloud.Observation) cloud.Plan) {
		s := p.observe(pool, nil)
		for range 1000 {
			steps := plan(s).Steps
			if len(steps) == 0 {
				return
			}

			step := steps[0]

			r, err := p.client.Do(t.Context(), step)
			if err != nil {
				t.Fatal(err)
			}

			switch random.IntN(3) {
			case 0:
				s = s.After(step, r)
			case 1: // the response was lost, and a proxy or the controller repeats the request
				if _, err := p.client.Do(t.Context(), step); err != nil {
					refused++

					if k := openstack.KindOf(err); k != openstack.Conflict && k != openstack.Gone && k != openstack.Refused {
						t.Errorf("repeat %s: %v", step, err)
					}
				}

				fallthrough
			case 2: // the controller dies, another one looks
				kills++
				s = p.observe(pool, nil)
			}
		}

		t.Fatal("the plan has no end")
	}
	walk(pool.Plan)
	s := p.observe(pool, nil)

	const ports = 13 + 2 // also the router's, and that of OVN's metadata
	if n := len(pool.Record(s).Lines); n != 13 || len(s.Networks) != 1 || len(s.Subnets) != 1 || len(s.Trunks) != 1 || len(s.Ports) != ports {
		t.Errorf("%d lines, %d networks, %d subnets, %d trunks, %d ports", n, len(s.Networks), len(s.Subnets), len(s.Trunks), len(s.Ports))
	}

	walk(func(s cloud.Observation) cloud.Plan { return cloud.Release(p.config, pool.Node, s) })

	if left := p.named(pool.Name()); len(left) > 0 {
		t.Errorf("left: %v", left)
	}

	t.Logf("%d times looked anew, %d repeated requests refused", kills, refused)
}

// TestVIFByMAC: an agent that does not know the ID of its VIF announces MAC and address.
func TestVIFByMAC(t *testing.T) {
	p := newProject(t)
	node := p.vm("10.0.0.17")

	vif, err := annotation.ParseUnderlay(node.Annotations)
	if err != nil {
		t.Fatal(err)
	}

	id := vif.ID
	vif.ID = ""
	node.Annotations[annotation.Underlay] = annotation.FormatUnderlay(vif)

	s, err := p.client.Observe(t.Context(), p.pool(node, 0).Name(), &openstack.PortFilter{MAC: vif.MAC.String()})
	if err != nil {
		t.Fatal(err)
	}

	if r := p.pool(node, 0).Record(s); r.VIF != id {
		t.Errorf("VIF %s, want %s", r.VIF, id)
	}
}
