package ovs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ovn-ebpf/ovn-ebpf/agent/testnode"
)

// Flows of OVN 25.03: a flow that learns an endpoint of a router, and one of a switch.
const (
	routerLearns = "table=18,priority=100,ct_state=+new+trk,udp,reg2=0x758f/0xffff,reg4=0xac1e000b,reg9=0/0x40,metadata=0x6,nw_dst=10.244.1.3,tp_dst=8000"
	switchLearns = "table=22,priority=100,ct_state=+new+trk,tcp6,reg2=0x50/0xffff,reg4=0xfd000010,reg5=0x960000,reg6=0,reg7=0xcbfd,reg9=0/0x40,metadata=0x5,ipv6_dst=fd00:10:244:1::3,tp_dst=8000"

	learnsUDP = "learn(table=78,idle_timeout=3,delete_learned,cookie=0x1c02b480,OXM_OF_METADATA[],eth_type=0x800,NXM_OF_IP_SRC[],ip_dst=172.30.0.11,nw_proto=17,udp_dst=30095,load:0x1->NXM_NX_REG10[14],load:0xaf40103->NXM_NX_REG4[],load:0x1f40->NXM_NX_REG2[0..15])"
	learnsTCP = "learn(table=78,idle_timeout=3,delete_learned,cookie=0x8c9ae492,OXM_OF_METADATA[],eth_type=0x86dd,NXM_NX_IPV6_SRC[],ipv6_dst=fd00:10:96::cbfd,nw_proto=6,tcp_dst=80,load:0x1->NXM_NX_REG10[14],load:0xfd000010024400010000000000000003->NXM_NX_XXREG1[],load:0x1f40->NXM_NX_REG2[0..15])"
)

// event returns the line of ovs-ofctl monitor for a change of a flow.
func event(kind, flow, actions string) string {
	table, match, _ := strings.Cut(flow, ",priority=100,")
	return fmt.Sprintf("event=%s %s cookie=0x1c02b480 %s actions=%s", kind, table, match, actions)
}

// The agent's flows follow the first and the last flow with which OVN learns in a table of a
// logical switch or router.
func TestLearners_event(t *testing.T) {
	var l learners

	other := strings.Replace(routerLearns, "nw_dst=10.244.1.3", "nw_dst=10.244.0.3", 1)

	passesOn := learnsUDP + ",resubmit(,19)"
	for i, step := range []struct {
		event   string
		changes bool
		stages  []string // tables
	}{
		{event("ADDED", routerLearns, learnsUDP), true, []string{"18"}},
		{event("ADDED", routerLearns, learnsUDP), false, []string{"18"}},
		{event("ADDED", other, learnsUDP), false, []string{"18"}},
		{event("ADDED", switchLearns, learnsTCP), true, []string{"18", "22"}},
		{event("MODIFIED", other, strings.Replace(learnsUDP, "=3,", "=9,", 1)), false, []string{"18", "22"}},
		{event("DELETED reason=delete", routerLearns, learnsUDP), false, []string{"18", "22"}},
		{event("DELETED reason=delete", routerLearns, learnsUDP), false, []string{"18", "22"}},
		{event("ADDED", routerLearns, "resubmit(,19)"), false, []string{"18", "22"}},
		{event("DELETED reason=delete", switchLearns, learnsTCP), true, []string{"18"}},
		{event("MODIFIED", other, passesOn), true, nil},
		{event("MODIFIED", other, learnsUDP), true, []string{"18"}},
		{event("MODIFIED", other, "drop"), true, nil},
		{event("ADDED", other, "learn(table=69,delete_learned,cookie=0x1,OXM_OF_METADATA[])"), false, nil}, // no timeout: a hairpin
		{event("ADDED", strings.Replace(other, "table=18", "table=78", 1), learnsUDP), false, nil},
	} {
		if got := l.event(step.event); got != step.changes {
			t.Errorf("event %d: changes %t", i, got)
		}

		var tables []string

		for _, flow := range l.wanted() {
			if table, found := strings.CutPrefix(flow, "table="); found && strings.Contains(flow, ",priority=101,") {
				tables = append(tables, strings.Split(table, ",")[0])
			}
		}

		if !slices.Equal(tables, step.stages) {
			t.Errorf("event %d: flows in tables %v, want %v", i, tables, step.stages)
		}
	}
}

func TestLearnedAffinity(t *testing.T) {
	for line, want := range map[string]bool{
		"event=ADDED table=78 idle_timeout=3 cookie=0xc69272ff tcp,metadata=0x5,nw_src=10.244.0.4,nw_dst=10.96.150.121,tp_dst=80 actions=load:0x1->NXM_NX_REG10[14]": true,
		"event=DELETED reason=idle table=78 idle_timeout=3 cookie=0xc69272ff tcp,metadata=0x5 actions=load:0x1->NXM_NX_REG10[14]":                                    true,
		"event=ADDED table=78 cookie=0x6f766e65627066 reg15=0 actions=drop":                                                                                          false,
		"event=ADDED table=66 idle_timeout=3 cookie=0x1 ip actions=drop":                                                                                             false,
	} {
		if got := learnedAffinity(line); got != want {
			t.Errorf("%s: %t", line, got)
		}
	}
}

// integration is a real br-int, whose flows a test writes in the place of OVN.
type integration struct {
	t *testing.T
	*testnode.Switch
	client *Client
}

func startIntegration(t *testing.T) integration {
	t.Helper()
	sw := testnode.StartSwitch(t, true)

	i := integration{t, sw, dial(t, sw)}
	if err := i.client.SyncBridge(t.Context(), Bridge{Name: IntegrationBridge, DatapathType: DatapathNetdev}); err != nil {
		t.Fatal(err)
	}

	i.awaitBridge()

	return i
}

// awaitBridge waits until ovs-vswitchd answers for the bridge.
func (i integration) awaitBridge() {
	i.t.Helper()
	testnode.Eventually(i.t, "the bridge", func() error {
		_, err := ofctl(i.t.Context(), nil, "dump-flows", i.target())
		return err
	})
}

func (i integration) target() string { return bridgeTarget(i.Dir, IntegrationBridge) }

func (i integration) ofctl(command string, args ...string) string {
	i.t.Helper()

	out, err := ofctl(i.t.Context(), nil, append([]string{command, i.target()}, args...)...)
	if err != nil {
		i.t.Fatalf("%s %v: %v", command, args, err)
	}

	return string(out)
}

// own returns the agent's flows, sorted.
func (i integration) own() []string {
	i.t.Helper()
	s := FlowSync{RunDir: i.Dir, Bridge: IntegrationBridge, OnlyOwn: true}

	have, err := s.read(i.t.Context())
	if err != nil {
		i.t.Fatal(err)
	}

	var flows []string
	for key, actions := range have.ours {
		flows = append(flows, key+" actions="+actions)
	}

	slices.Sort(flows)

	return flows
}

func (i integration) awaits(what string, want ...string) {
	i.t.Helper()
	slices.Sort(want)
	testnode.Eventually(i.t, what, func() error {
		if diff := cmp.Diff(want, i.own()); diff != "" {
			return errors.New(diff)
		}

		return nil
	})
}

// run runs the keeper of the flows until stop is called.
func (i integration) run(changed func()) (a *AffinityFlows, stop func()) {
	a = NewAffinityFlows(i.Dir, IntegrationBridge, changed)
	return a, testnode.Background(i.t, a.Run)
}

func wantedFor(flows map[string]string) []string {
	var l learners
	for flow, actions := range flows {
		l.event(event("ADDED", flow, actions))
	}

	return l.wanted()
}

// The flows follow OVN's on a real bridge: also when ovn-controller removes all flows, and across
// restarts of the agent and of ovs-vswitchd. Nothing is written while OVN's flows do not change.
func TestAffinityFlows(t *testing.T) {
	i := startIntegration(t)

	const next = "table=19,priority=0 actions=output:NXM_NX_REG0[]"

	_, stop := i.run(func() { t.Error("fault") })
	i.awaits("no flows")

	router := wantedFor(map[string]string{routerLearns: learnsUDP})
	both := wantedFor(map[string]string{routerLearns: learnsUDP, switchLearns: learnsTCP})

	i.ofctl("add-flow", next)
	i.ofctl("add-flow", routerLearns+",actions="+learnsUDP)
	i.awaits("flows of a router", router...)
	i.ofctl("add-flow", switchLearns+",actions="+learnsTCP)
	i.awaits("flows of both", both...)

	i.ofctl("del-flows")
	i.ofctl("add-flow", routerLearns+",actions="+learnsUDP)
	i.awaits("flows after ovn-controller has removed all", router...)

	stop()

	before := i.ofctl("dump-flows", "cookie="+Cookie+"/"+CookieMask)
	if n := len(i.own()); n != len(router) {
		t.Fatalf("without the agent there are %d flows, want %d", n, len(router))
	}

	i.ofctl("add-flow", switchLearns+",actions="+learnsTCP) // the next agent sees its own flow's absence, and writes
	_, stop = i.run(func() { t.Error("fault") })
	i.awaits("flows of the next agent", both...)

	if age(i.ofctl("dump-flows", "cookie="+Cookie+"/"+CookieMask)) < age(before) {
		t.Error("the next agent has written flows that it found")
	}

	i.ofctl("del-flows", "ct_state=+new+trk")
	i.awaits("no flows without those of OVN")

	i.ofctl("add-flow", routerLearns+",actions="+learnsUDP)
	i.awaits("flows again", router...)
	stop()

	if err := RemoveAffinityFlows(t.Context(), i.Dir); err != nil {
		t.Error(err)
	}

	if own, all := i.own(), i.ofctl("dump-flows"); len(own) > 0 || !strings.Contains(all, "learn(") {
		t.Errorf("after the removal: %q of %s", own, all)
	}
}

// age returns the greatest age of the flows in a dump.
func age(dump string) (oldest float64) {
	for _, part := range strings.Split(dump, "duration=")[1:] {
		var seconds float64
		if _, err := fmt.Sscanf(part, "%fs", &seconds); err == nil {
			oldest = max(oldest, seconds)
		}
	}

	return oldest
}

// A packet that OVN learns from is delivered once, and so is every other packet.
func TestAffinityFlows_packets(t *testing.T) {
	i := startIntegration(t)
	i.ofctl("add-flow", routerLearns+",actions="+learnsUDP)
	i.ofctl("add-flow", "table=18,priority=0,metadata=0x6,actions=resubmit(,19)")
	i.ofctl("add-flow", "table=19,priority=0,actions=in_port")
	i.ofctl("add-flow", "table=0,priority=0,actions=load:0x758f->NXM_NX_REG2[0..15],load:0xac1e000b->NXM_NX_REG4[],load:0x6->OXM_OF_METADATA[],resubmit(,18)")
	i.run(func() { t.Error("fault") })
	i.awaits("the flows", wantedFor(map[string]string{routerLearns: learnsUDP})...)

	for flow, learned := range map[string]bool{
		"ct_state=new|trk,udp,nw_src=192.0.2.1,nw_dst=10.244.1.3,udp_src=1000,udp_dst=8000": true,
		"ct_state=new|trk,udp,nw_src=192.0.2.1,nw_dst=10.244.1.4,udp_src=1000,udp_dst=8000": false,
		"ct_state=est|trk,udp,nw_src=192.0.2.1,nw_dst=10.244.1.3,udp_src=1000,udp_dst=8000": false,
	} {
		out := testnode.Run(t, "ovs-appctl", "-t", i.Dir+"/vswitchd.ctl", "ofproto/trace", IntegrationBridge, "in_port=LOCAL,"+flow)

		_, megaflow, _ := strings.Cut(out, "Megaflow:")
		if strings.Contains(megaflow, "drop") || strings.Count(out, "\n19. ") != 1 || strings.Contains(out, "learn(") != learned {
			t.Errorf("%s: learned is not %t, or the packet is not delivered once: %s", flow, learned, out)
		}

		if strings.Contains(megaflow, "tp_src=1000") != learned {
			t.Errorf("%s: the datapath flow is %s", flow, megaflow)
		}
	}
}

// A bridge whose flows cannot be written is a fault, until they can be. No ovs-vswitchd is none.
func TestAffinityFlows_Fault(t *testing.T) {
	i := startIntegration(t)
	i.ofctl("add-flow", routerLearns+",actions="+learnsUDP)

	var changes atomic.Int64

	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "ovs-ofctl"), []byte("#!/bin/sh\necho refused >&2\nexit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}

	path := os.Getenv("PATH")
	t.Setenv("PATH", dir+":"+path)

	a, _ := i.run(func() { changes.Add(1) })

	testnode.Eventually(t, "a fault", func() error {
		if err := a.Fault(); err == nil || !strings.Contains(err.Error(), "refused") || changes.Load() != 1 {
			return fmt.Errorf("fault %w, %d changes", err, changes.Load())
		}

		return nil
	})
	t.Setenv("PATH", path)
	testnode.Eventually(t, "its end", func() error {
		if err := a.Fault(); err != nil || changes.Load() != 2 {
			return fmt.Errorf("fault %w, %d changes", err, changes.Load())
		}

		return nil
	})

	none := NewAffinityFlows(t.TempDir(), IntegrationBridge, func() { t.Error("a fault without ovs-vswitchd") })

	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()

	if err := none.Run(ctx); err != nil {
		t.Error(err)
	}
}
