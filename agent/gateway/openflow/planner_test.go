package openflow_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ovn-ebpf/ovn-ebpf/agent/gateway/openflow"
	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
	"github.com/ovn-ebpf/ovn-ebpf/agent/testnode"
	"github.com/ovn-ebpf/ovn-ebpf/verdict"
	"github.com/ovn-ebpf/ovn-ebpf/verdict/corpus"
)

// After any change of the input, the difference leads from one plan to the next.
func TestPlannerFollowsFlows(t *testing.T) {
	const seed = 1

	random := rand.New(rand.NewPCG(seed, seed))
	n := plainNode(50)
	ports := openflow.Ports{Uplink: 1, Patch: 2}

	var p openflow.Planner

	installed := map[string]string{} // match → flow

	for step := range 300 {
		shake(random, n, &ports)
		in := (&rig{ports: ports}).input(n)

		c := p.Flows(in)
		for _, flow := range c.Gone {
			if installed[openflow.Match(flow)] != flow {
				t.Errorf("step %d: %s is deleted, but there is %q", step, flow, installed[openflow.Match(flow)])
			}

			delete(installed, openflow.Match(flow))
		}

		for _, flow := range c.Write {
			have := installed[openflow.Match(flow)]
			if have != "" && (have == flow || number(have) != number(flow)) {
				t.Errorf("step %d: %s is written, and there is %s", step, flow, have)
			}

			installed[openflow.Match(flow)] = flow
		}

		got := slices.Sorted(maps.Values(installed))
		if diff := cmp.Diff(openflow.Flows(in), got); diff != "" {
			t.Fatalf("step %d (seed %d): the flows are not those planned (-want +got):\n%s", step, seed, diff)
		}

		if !slices.Equal(got, p.All()) {
			t.Fatalf("step %d: All is not what there is", step)
		}
	}

	if c := p.Static(openflow.StaticInput{}); len(c.Gone) < 100 || !slices.Equal(p.All(), openflow.Static(openflow.StaticInput{})) {
		t.Errorf("another backend's plan: %d gone, flows %v", len(c.Gone), p.All())
	}
}

// number is what a flow counts as.
func number(flow string) string {
	_, n, _ := strings.Cut(flow, " #")
	return n
}

// shake changes something of a node.
func shake(random *rand.Rand, n *corpus.Node, ports *openflow.Ports) {
	vip := netip.AddrFrom4([4]byte{198, 51, 100, byte(random.IntN(4))})
	switch random.IntN(9) {
	case 0:
		ports.Patch = []uint32{0, 2, 3}[random.IntN(3)]
	case 1:
		n.Config.Local = !n.Config.Local
	case 2:
		n.Addrs[vip] = verdict.AddrKind(1 + random.IntN(4))
	case 3:
		delete(n.Addrs, vip)
	case 4:
		n.Config.RoutablePods = nil
		if random.IntN(2) == 0 {
			n.Config.RoutablePods = []netip.Prefix{netip.PrefixFrom(vip, 31)}
		}
	case 5:
		n.Config.VLAN = uint16(random.IntN(2)) * 7
	case 6:
		for k := range n.Services {
			delete(n.Services, k)
			break
		}
	default:
		k := verdict.ServiceKey{Addr: vip, Proto: corpus.ProtoUDP, Port: uint16(6080 + random.IntN(3))}
		n.Services[k] = verdict.ServiceOwner(1 + random.IntN(2))
	}
}

// A change of one Service in ten thousand costs only its own flows, and reads nothing.
func TestPlannerCountsFlowMods(t *testing.T) {
	r := newRig(t)
	n := plainNode(10000)

	var p openflow.Planner

	c := p.Flows(r.input(n))
	sync := ovs.FlowSync{RunDir: r.Dir, Bridge: bridge}

	all, err := sync.All(t.Context(), p.All())
	if err != nil || all != len(c.Write) || all < 40000 {
		t.Fatalf("%d messages for %d flows: %v", all, len(c.Write), err)
	}

	if c := p.Flows(r.input(n)); !c.Empty() {
		t.Errorf("nothing has changed: %+v", c)
	}

	for _, what := range []string{"gone", "back"} {
		for _, k := range serviceKeys(4711) {
			if what == "gone" {
				delete(n.Services, k)
			} else {
				n.Services[k] = verdict.ServiceHost
			}
		}

		c := p.Flows(r.input(n))

		messages, err := sync.Update(t.Context(), c.Write, c.Gone)
		if want := len(serviceKeys(4711)); err != nil || messages != want {
			t.Errorf("%s: %d messages, want %d: %v", what, messages, want, err)
		}
	}

	if left, err := sync.All(t.Context(), p.All()); err != nil || left != 0 {
		t.Errorf("afterwards %d flows were not as planned: %v", left, err)
	}

	testnode.Run(t, "ovs-ofctl", "add-flow", "unix:"+r.Dir+"/"+bridge+".mgmt", "cookie=0x99,table=3,priority=800,tcp,nw_dst=192.0.2.1,tp_dst=1,actions=drop")

	if _, err := sync.All(t.Context(), p.All()); err != nil {
		t.Fatal(err)
	}

	if _, err := sync.Update(t.Context(), []string{"table=3,priority=800,tcp,nw_dst=192.0.2.1,tp_dst=1 actions=LOCAL"}, nil); err == nil {
		t.Error("foreign flow was replaced")
	}
}

func BenchmarkPlannerOneService(b *testing.B) {
	for _, services := range []int{10, 10000} {
		b.Run(fmt.Sprint(services), func(b *testing.B) {
			n := plainNode(services)
			in := (&rig{ports: openflow.Ports{Uplink: 1, Patch: 2}}).input(n)

			var p openflow.Planner
			p.Flows(in)

			owner := verdict.ServiceHost

			b.ReportAllocs()

			for b.Loop() {
				in.Tables.Services[serviceKeys(7)[0]] = owner
				if len(p.Flows(in).Write) != 1 {
					b.Fatal("not one flow")
				}

				owner = verdict.ServiceHost + verdict.ServiceOVN - owner
			}
		})
	}
}
