package e2e

import (
	"encoding/json"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/ovn-ebpf/ovn-ebpf/test/lab"
	"github.com/ovn-ebpf/ovn-ebpf/test/lab/traffic"
)

// TestFromOVNKubernetes: a node of ovn-kubernetes is taken over and handed back as in
// docs/takeover.md. No existing connection loses data at either moment: those of the host, those of
// pods through the old or the new gateway, and idle ones in which the remote sends first
// afterwards. In the end the node has its original state.
func TestFromOVNKubernetes(t *testing.T) {
	if testing.Short() {
		t.Skip(inFull)
	}

	o := labOptions(t, lab.Options{Kube: true, Hosts: true})
	o.AgentArgs = []string{"--gateway-layout=bridged", "--gateway-interface=" + oldBridge}

	silence := 60 * time.Second // emulated
	if !lab.KernelDatapath() {
		o.AgentArgs, silence = append(o.AgentArgs, toOpenFlow), 12*time.Second
	}

	l, err := lab.Up(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}

	downAfter(t, l, o)
	c := &Cluster{Lab: l, Pods: map[string]*lab.Pod{}, Services: map[string]*corev1.Service{}, dir: o.Dir, bin: o.BinDir, wiring: wiringOf(o)}
	c.tool = trafficTool(c)
	p := standinOVNKubernetes(t, c)
	p.populateOld(t)
	before := p.left(t)
	load := c.holdAll(t)
	p.types(t, 0, 3)
	first := c.silent(t, "the remote speaks first, taken over", silence)

	if err := c.StartAgent(t.Context(), 1); err != nil {
		t.Fatal(err)
	}

	if err := c.AwaitAgent(t.Context(), 1); err != nil {
		t.Fatal(err)
	}

	notYet(t, first)

	if out := c.execute(t, "node1", "bash", "-c", "ovs-ofctl dump-flows "+oldBridge+" | grep -c "+oldCookie+" || true"); strings.TrimSpace(out) != "0" {
		t.Errorf("%s old flows remain beside ours", strings.TrimSpace(out))
	}

	if out, err := c.Exec(t.Context(), "node1", c.Binary("ovnkube"), "status", "--run-dir", c.Node(1).RunDir); err != nil {
		t.Errorf("status: %v: %s", err, out)
	}

	c.leavesFrom(t, 49152, 65535)
	c.reachable(t, c.oldWays()...)
	load = append(load, c.holdAll(t)...)
	awaitAll(t, first)
	second := c.silent(t, "the remote speaks first, given back", silence)

	if err := c.StopAgent(1, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}

	began := time.Now()

	if err := c.CleanUpAgent(t.Context(), 1); err != nil {
		t.Fatal(err)
	}

	t.Logf("given back from %s to %s; %s", began.UTC(), time.Now().UTC(), strings.Join(strings.Fields(c.execute(t, "node1", "ovs-appctl", "dpctl/show")), " "))
	notYet(t, second)
	p.types(t, 6, 2)

	if diff := cmp.Diff(before, p.left(t)); diff != "" {
		t.Errorf("the node before and after (-before +after):\n%s", diff)
	}

	c.reachable(t, c.oldWays()...)
	awaitAll(t, second)

	for _, b := range load {
		b.stop(t)
	}

	for _, b := range load {
		if strings.Contains(b.name, "UDP") && c.Datapath() == "system" {
			b.went(t)
		} else {
			b.held(t)
		}
	}
}

// went is held for datagrams. When ovs-vswitchd in an emulated machine revalidates every connection
// at once, some datagrams are lost, but the connection survives.
func (b *background) went(t *testing.T) {
	t.Helper()

	var report traffic.HoldReport

	out := b.wait(t)
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatalf("%s: %v: %s", b.name, err, out)
	}

	if report.Received == 0 || report.Lost > report.Sent/20 || report.Error != "" {
		t.Errorf("%s: %+v", b.name, report)
	}

	t.Logf("%s: %d of %d lost", b.name, report.Lost, report.Sent)
}

// populateOld creates a pod with the old plugin, a Service, and servers.
func (p *predecessor) populateOld(t *testing.T) {
	t.Helper()

	pod, err := p.AddPod(t.Context(), lab.PodSpec{Namespace: "default", Name: "a", Node: "node1", Wire: p.plug})
	if err != nil {
		t.Fatal(err)
	}

	p.Pods["a"] = pod
	for _, s := range []struct {
		host string
		port uint16
	}{{"node1", sshPort}, {"ext", outsidePort}} {
		if err := p.serve(t.Context(), s.host, s.host, s.port); err != nil {
			t.Fatal(err)
		}
	}

	if err := p.serve(t.Context(), host("a"), "a", podPort); err != nil {
		t.Fatal(err)
	}

	if err := p.addService(t.Context(), lab.ServiceSpec{
		Name: "web", Type: corev1.ServiceTypeNodePort, Pods: []*lab.Pod{pod}, Ports: servicePorts(podPort, nodePort),
	}); err != nil {
		t.Fatal(err)
	}

	p.reachable(t, p.oldWays()...)

	if err := p.StopController(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}

	p.types(t, 6, 2) // its NAT has no range and keeps pods' source ports, outside of ours
	p.leavesFrom(t, 32768, 40959)
}

// types runs a code block of the document about OVN's database. The block must have this number of
// lines.
func (p *predecessor) types(t *testing.T, block, lines int) {
	t.Helper()

	blocks := codeBlocks(t, "../../docs/takeover.md")
	if len(blocks) <= block || len(blocks[block]) != lines || !strings.Contains(blocks[block][lines-1], "ovn-nbctl") {
		t.Fatalf("docs/takeover.md: code block %d of %q is not the one", block, blocks)
	}

	p.execute(t, "central", "bash", "-c", "set -e\nNODE=node1\n"+strings.Join(blocks[block], "\n"))
}

// oldWays lists the ways without another node.
func (c *Cluster) oldWays() []way {
	return []way{
		{name: "outside to host", from: "ext", to: c.node(1), port: sshPort},
		{name: "host to outside", from: "node1", to: outside, port: outsidePort},
		{name: "pod to outside", from: host("a"), to: outside, port: outsidePort},
		{name: "outside to NodePort", from: "ext", to: c.node(1), port: nodePort},
		{name: "host to pod", from: "node1", to: c.pod("a"), port: podPort},
	}
}

// holdAll opens a connection for each way, and one by UDP from the pod.
func (c *Cluster) holdAll(t *testing.T) []*background {
	t.Helper()

	var out []*background

	hold := func(name, from string, to netip.AddrPort, more ...string) {
		out = append(out, c.hold(t, name, from, to, time.Hour, append(more, "-interval", "100ms", "-timeout", "1m")...))
	}

	for _, v6 := range []bool{false, true} {
		for _, w := range c.oldWays() {
			hold(w.name+" "+Result{V6: v6}.Family(), w.from, port(w.to(v6), w.port))
		}

		hold("pod to outside, UDP "+Result{V6: v6}.Family(), host("a"), port(outside(v6), outsidePort), "-udp")
	}

	time.Sleep(2 * time.Second) // time to establish them

	for _, b := range out {
		if b.ended() {
			t.Errorf("%s: ended: %v: %s%s", b.name, b.failed, b.out.String(), b.err.String())
		}
	}

	return out
}

// silent opens connections of the pod that stay idle for this time, until the remote sends.
func (c *Cluster) silent(t *testing.T, name string, quiet time.Duration) []*background {
	t.Helper()

	var out []*background
	for _, v6 := range []bool{false, true} {
		out = append(out, c.run(t, name+" "+Result{V6: v6}.Family(), host("a"),
			c.traffic("later", port(outside(v6), outsidePort).String(), "-duration", quiet.String(), "-timeout", "1m")...))
	}

	time.Sleep(time.Second) // time to establish them

	return out
}

// notYet fails the test if the remote of a connection has already sent, which would invalidate the
// check.
func notYet(t *testing.T, list []*background) {
	t.Helper()

	for _, b := range list {
		if b.ended() {
			t.Errorf("%s: ended too early: %v: %s%s", b.name, b.failed, b.out.String(), b.err.String())
		}
	}
}

func awaitAll(t *testing.T, list []*background) {
	t.Helper()

	for _, b := range list {
		if out := b.wait(t); !strings.HasPrefix(out, "ext ") {
			t.Errorf("%s: %q", b.name, out)
		}
	}
}
