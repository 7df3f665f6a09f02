package reconcile

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/record"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
	"github.com/ovn-ebpf/ovn-ebpf/controller/nb/nbtest"
	"github.com/ovn-ebpf/ovn-ebpf/controller/reconcile/churntest"
)

// scriptedCluster is a property's cluster without chance: what happens is the test's.
type scriptedCluster struct {
	*property

	mu     sync.Mutex // guards events
	events []string   // object, reason and message
}

func newScriptedCluster(t *testing.T) *scriptedCluster {
	t.Helper()

	s := &scriptedCluster{}
	broadcaster := record.NewBroadcaster()
	t.Cleanup(broadcaster.Shutdown)
	broadcaster.StartEventWatcher(func(e *corev1.Event) {
		s.mu.Lock()
		defer s.mu.Unlock()

		s.events = append(s.events, strings.ToLower(e.InvolvedObject.Kind)+" "+e.InvolvedObject.Name+" "+e.Reason+" "+e.Message)
	})

	s.property = newProperty(t, 1, 1)
	s.now.stop()
	s.api.faults = nil
	s.property.events = broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "test"})
	s.now = s.lead(s.now, s.path.endpoint)

	return s
}

// eventsWith returns the events that have the text.
func (s *scriptedCluster) eventsWith(text string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()

	return slices.DeleteFunc(slices.Clone(s.events), func(e string) bool { return !strings.Contains(e, text) })
}

func (s *scriptedCluster) eventually(what string, holds func() bool) {
	s.t.Helper()
	nbtest.Eventually(s.t, what, func() bool {
		for _, name := range standinNames() {
			s.now.deliver(name, 1<<30)
		}

		return holds()
	})
}

func (s *scriptedCluster) waitForEvent(event string) {
	s.t.Helper()
	s.eventually("event "+event, func() bool { return len(s.eventsWith(event)) > 0 })
}

func (s *scriptedCluster) node(name, subnets string) {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{}}}
	if subnets != "" {
		n.Annotations[annotation.NodeSubnets] = `{"default":[` + subnets + `]}`
	}

	s.api.Put(n)
}

func (s *scriptedCluster) pod(name, node, request string) {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, Annotations: map[string]string{}},
		Spec:       corev1.PodSpec{NodeName: node},
	}
	if request != "" {
		p.Annotations[annotation.DefaultNetwork] = request
	}

	s.api.Put(p)
}

// network is the pod's, as its annotation says.
func (s *scriptedCluster) network(name string) (out annotation.Pod) {
	churntest.Edit(s.api, churntest.Pods, "ns/"+name, func(p *corev1.Pod) { out, _ = annotation.ParsePod(p.Annotations) })
	return out
}

func (s *scriptedCluster) subnets(node string) (out []netip.Prefix) {
	churntest.Edit(s.api, churntest.Nodes, node, func(n *corev1.Node) { out, _ = annotation.ParseNodeSubnets(n.Annotations) })
	return out
}

func (s *scriptedCluster) has(name, address string) bool {
	return slices.ContainsFunc(s.network(name).Addresses, func(a netip.Prefix) bool { return a.Addr().String() == address })
}

// A pod may ask for addresses; what it cannot have is an event on it, once, and
// heals as soon as it can.
func TestStaticAddresses(t *testing.T) {
	s := newScriptedCluster(t)
	s.node("node1", "")
	s.eventually("the node has subnets", func() bool { return s.subnets("node1") != nil })
	s.pod("fixed", "node1", `{"name":"default","ips":["10.128.0.20","fd00:10:128::20"],"mac":"02:00:00:00:00:20"}`)
	s.eventually("the pod has what it asked for", func() bool {
		return s.has("fixed", "10.128.0.20") && s.has("fixed", "fd00:10:128::20") && s.network("fixed").MAC.String() == "02:00:00:00:00:20"
	})
	s.eventually("and a port", func() bool {
		return strings.Contains(strings.Join(s.server.Normal(), "\n"), "addresses 02:00:00:00:00:20 10.128.0.20 fd00:10:128::20")
	})

	for i, tt := range []struct{ request, event string }{
		{`{"ips":["10.128.0.20"]}`, "10.128.0.20 for pod ns/wrong0: taken by pod ns/fixed"},
		{`{"mac":"02:00:00:00:00:20"}`, "02:00:00:00:00:20 for pod ns/wrong1: taken by pod ns/fixed"},
		{`{"ips":["10.128.9.9"]}`, "10.128.9.9 is outside of the node's subnets"},
		{`{"ips":["192.0.2.1"]}`, "192.0.2.1 is outside of the node's subnets"},
		{`{"ips":["10.128.0.1"]}`, "10.128.0.1 of 10.128.0.0/27 is not for pods"},
		{`{"ips":["10.128.0.31"]}`, "10.128.0.31 of 10.128.0.0/27 is not for pods"},
		{`{"mac":"01:00:5e:00:00:01"}`, "multicast"},
		{`{"mac":"0a:58:0a:80:00:01"}`, "the node's own"},
		{`{"ips":`, "parse annotation v1.multus-cni.io/default-network"},
	} {
		name := fmt.Sprint("wrong", i)
		s.pod(name, "node1", tt.request)
		s.waitForEvent("pod " + name + " CannotAllocate")

		if len(s.eventsWith(tt.event)) == 0 {
			t.Errorf("request %s: %v, want %q", tt.request, s.eventsWith("pod "+name), tt.event)
		}
	}

	s.eventually("none of them keeps the rest from being ready", func() bool { return s.now.loop.Ready() == nil })

	churntest.Edit(s.api, churntest.Pods, "ns/wrong2", func(p *corev1.Pod) { p.Annotations[annotation.DefaultNetwork] = `{"ips":["10.128.0.21"]}` })
	s.eventually("a corrected request is served", func() bool { return s.has("wrong2", "10.128.0.21") })
	s.api.Remove(churntest.Pods, "ns/fixed")
	s.eventually("an address that is free again is given to who waited for it", func() bool { return s.has("wrong0", "10.128.0.20") })
	s.eventually("so is a MAC address", func() bool { return s.network("wrong1").MAC.String() == "02:00:00:00:00:20" })

	for _, e := range s.eventsWith("wrong3 CannotAllocate") {
		if n := len(s.eventsWith(e)); n > 1 {
			t.Errorf("event said %d times: %s", n, e)
		}
	}
}

// Nodes keep what they have; of two that claim the same, the older does.
func TestClaimedSubnets(t *testing.T) {
	s := newScriptedCluster(t)
	s.node("older", `"10.128.0.64/27","fd00:10:128:9::/64"`)
	s.eventually("the annotation is taken as it is", func() bool {
		return s.server.Nbctl("--bare", "--columns=name", "find", "logical_switch", "name=older") != ""
	})
	s.node("younger", `"10.128.0.64/27","fd00:10:128:9::/64"`)
	s.waitForEvent("node younger Reallocated")
	s.eventually("the younger gets another", func() bool {
		return len(s.subnets("younger")) == 2 && s.subnets("younger")[0].String() == "10.128.0.0/27"
	})

	if got := s.subnets("older")[0].String(); got != "10.128.0.64/27" {
		t.Errorf("the older has %s", got)
	}

	s.pod("a", "older", "")
	s.eventually("a pod there", func() bool { return len(s.network("a").Addresses) == 2 })
	before := s.network("a")
	churntest.Edit(s.api, churntest.Nodes, "older", func(n *corev1.Node) { n.Annotations[annotation.NodeSubnets] = `{"default":["10.128.0.128/27"]}` })
	s.eventually("a node's annotation is put right", func() bool { return len(s.subnets("older")) == 2 && s.subnets("older")[0].String() == "10.128.0.64/27" })
	churntest.Edit(s.api, churntest.Pods, "ns/a", func(p *corev1.Pod) {
		p.Annotations[annotation.PodNetworks] = annotation.FormatPod(annotation.Pod{
			Addresses: []netip.Prefix{netip.MustParsePrefix("10.128.0.90/27")}, MAC: net.HardwareAddr{2, 0, 0, 0, 0, 1},
		})
	})
	s.eventually("so is a pod's", func() bool { return slices.Equal(s.network("a").Addresses, before.Addresses) })

	s.node("foreign", `"192.168.7.0/24"`)
	s.waitForEvent("node foreign CannotAllocate invalid: subnet 192.168.7.0/24")
	s.pod("stranded", "foreign", "")
	s.waitForEvent("pod stranded CannotAllocate")
	s.eventually("it does not keep the rest from being ready", func() bool { return s.now.loop.Ready() == nil })

	if lines := strings.Join(s.now.loop.Failing(), "\n"); !strings.Contains(lines, "node/foreign: ") || !strings.Contains(lines, "pod/ns/stranded: ") {
		t.Errorf("failing owners: %s", lines)
	}

	churntest.Edit(s.api, churntest.Nodes, "foreign", func(n *corev1.Node) { delete(n.Annotations, annotation.NodeSubnets) })
	s.eventually("without the annotation it gets one, and its pods addresses", func() bool {
		return len(s.subnets("foreign")) == 2 && len(s.network("stranded").Addresses) == 2
	})
	s.eventually("no key fails", func() bool { return len(s.now.loop.Failing()) == 0 })
}

// Rows that others wrote stay as they are, and what collides with them is an event.
func TestForeignRows(t *testing.T) {
	s := newScriptedCluster(t)
	s.server.Nbctl("ls-add", "theirs", "--", "lsp-add", "theirs", "ns_clash", "--", "lr-add", "their-router",
		"--", "set", "logical_switch_port", "ns_clash", "external_ids:whose=theirs")

	theirs := func() []string {
		return slices.DeleteFunc(s.server.Normal(), func(line string) bool { return !strings.Contains(line, "their") })
	}
	before := theirs()

	s.node("node1", "")
	s.pod("clash", "node1", "")
	s.pod("fine", "node1", "")
	s.waitForEvent("pod clash CannotWrite")
	s.eventually("its neighbour has a port", func() bool {
		return s.server.Nbctl("--bare", "--columns=name", "find", "logical_switch_port", "name=ns_fine") != ""
	})
	s.eventually("ready", func() bool { return s.now.loop.Ready() == nil })

	if diff := difference(before, theirs()); diff != "" {
		t.Errorf("rows of others (-before +after):\n%s", diff)
	}

	s.server.Nbctl("lsp-del", "ns_clash")
	s.eventually("it heals when the other row is gone", func() bool {
		return s.server.Nbctl("--bare", "--columns=name", "find", "logical_switch_port", "name=ns_clash") != ""
	})
}

// TestNamesThatMeet: a node may be called like a switch of ours, and a pod's port like a node's.
func TestNamesThatMeet(t *testing.T) {
	s := newScriptedCluster(t)
	count := func(table, name string) int {
		return len(strings.Fields(s.server.Nbctl("--bare", "--columns=_uuid", "find", table, "name="+name)))
	}

	s.node("join", "")
	s.pod("on-join", "join", "")
	s.eventually("a node called join has a switch of its own, and its pod a port", func() bool {
		return count("logical_switch", "node_join") == 1 && count("logical_switch_port", "ns_on-join") == 1
	})

	if n := count("logical_switch", "join"); n != 1 {
		t.Errorf("%d switches join", n)
	}

	s.pod("node1", "join", "") // before the node
	s.eventually("the pod has a port", func() bool { return count("logical_switch_port", "ns_node1") == 1 })
	s.node("node1", "")
	s.eventually("the node has subnets", func() bool { return s.subnets("node1") != nil })
	churntest.Edit(s.api, churntest.Nodes, "node1", func(n *corev1.Node) {
		n.Annotations[annotation.ChassisID] = "c"
		n.Annotations[annotation.GatewayConfig] = annotation.FormatGateway(annotation.Gateway{
			Mode: "shared", InterfaceID: "ns_node1", MAC: "02:00:00:00:00:01", Addresses: []netip.Prefix{netip.MustParsePrefix("192.0.2.1/24")},
		})
	})
	s.eventually("the name is the node's", func() bool {
		return s.server.Nbctl("--bare", "--columns=type", "find", "logical_switch_port", "name=ns_node1") == "localnet"
	})
	s.waitForEvent("pod node1 NotServed")
	s.api.Remove(churntest.Nodes, "node1")
	s.eventually("the pod has its port again", func() bool {
		return s.server.Nbctl("--bare", "--columns=type,options", "find", "logical_switch_port", "name=ns_node1") != "localnet" && count("logical_switch_port", "ns_node1") == 1 && len(s.now.loop.Failing()) == 0
	})
}
