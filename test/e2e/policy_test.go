package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/ovn-ebpf/ovn-ebpf/test/lab"
	"github.com/ovn-ebpf/ovn-ebpf/test/lab/process"
)

// policyLab has three nodes with six pods in three namespaces. All pods and the outside host serve
// TCP and UDP on ports 80 and 81.
type policyLab struct {
	*lab.Lab
	t      *testing.T
	dir    string
	client *kubernetes.Clientset
	pods   map[string]*lab.Pod // by namespace/name
	probes []Probe             // from all pods and node1's host to all pods and the outside host
	turn   int                 // in the VM each await sends a third of the probes, in turn
}

func startPolicyLab(t *testing.T) *policyLab {
	t.Helper()
	o := labOptions(t, lab.Options{Nodes: 3, Cluster: true})

	l, err := lab.Up(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}

	downAfter(t, l, o)

	p := &policyLab{Lab: l, t: t, dir: o.Dir, pods: map[string]*lab.Pod{}}
	if p.client, err = l.Kubernetes(); err != nil {
		t.Fatal(err)
	}

	for name, node := range map[string]string{"x/a": "node1", "x/b": "node2", "x/c": "node3", "y/a": "node2", "y/b": "node1", "z/a": "node3"} {
		p.addPod(name, node, nil)
	}

	for _, ns := range []string{"x", "y", "z"} {
		p.label("namespace", ns, map[string]any{"ns": "ns-" + ns})
	}

	p.serve("ext", "ext")

	return p
}

// addPod adds a pod labelled with its name, and its probes.
func (l *policyLab) addPod(name, node string, labels map[string]string) {
	l.t.Helper()

	namespace, pod, _ := strings.Cut(name, "/")
	if labels == nil {
		labels = map[string]string{"pod": pod}
	}

	made, err := l.AddPod(l.t.Context(), lab.PodSpec{
		Namespace: namespace, Name: pod, Node: node, Labels: labels,
		Ports: []corev1.ContainerPort{
			{Name: "http", ContainerPort: 80, Protocol: corev1.ProtocolTCP},
			{Name: "other-udp", ContainerPort: 81, Protocol: corev1.ProtocolUDP},
		},
	})
	if err != nil {
		l.t.Fatal(err)
	}

	l.pods[name] = made
	l.serve("pod:"+name, name)
	l.probes = l.allProbes()
}

func (l *policyLab) serve(on, name string) {
	l.t.Helper()

	id := "policy-" + strings.NewReplacer("/", "-", ":", "-").Replace(name)
	if _, err := l.Serve(l.t.Context(), on, id, "-name", name, "-tcp", ":80,:81", "-udp", ":80,:81"); err != nil {
		l.t.Fatal(err)
	}
}

func (l *policyLab) allProbes() []Probe {
	servers := map[string][]netip.Addr{"ext": {outside(false), outside(true)}}
	for name, p := range l.pods {
		servers[name] = p.IPs
	}

	var out []Probe
	for from := range l.pods {
		out = append(out, probesOf(from, servers)...)
	}

	delete(servers, "ext")

	return append(out, probesOf("node1", servers)...)
}

func probesOf(from string, servers map[string][]netip.Addr) []Probe {
	var out []Probe

	for to, addresses := range servers {
		for _, a := range addresses {
			for _, number := range []uint16{80, 81} {
				for _, protocol := range []string{"tcp", "udp"} {
					out = append(out, Probe{from, to, protocol, netip.AddrPortFrom(a, number)})
				}
			}
		}
	}

	return out
}

// label sets the labels of a pod (namespace/name) or namespace; nil removes one.
func (l *policyLab) label(kind, name string, labels map[string]any) {
	l.t.Helper()

	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": labels}})
	if err != nil {
		l.t.Fatal(err)
	}

	l.patch(kind, name, body)
}

func (l *policyLab) patch(kind, name string, body []byte) {
	l.t.Helper()

	var err error
	if kind == "namespace" {
		_, err = l.client.CoreV1().Namespaces().Patch(l.t.Context(), name, types.MergePatchType, body, metav1.PatchOptions{})
	} else {
		namespace, pod, _ := strings.Cut(name, "/")
		_, err = l.client.CoreV1().Pods(namespace).Patch(l.t.Context(), pod, types.MergePatchType, body, metav1.PatchOptions{})
	}

	if err != nil {
		l.t.Fatal(err)
	}
}

// apply creates or updates a policy in namespace x, until the calling test ends.
func (l *policyLab) apply(t *testing.T, name, spec string) {
	t.Helper()

	text := fmt.Sprintf("apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: %s, namespace: x}\nspec: %s", name, spec)

	obj, _, err := scheme.Codecs.UniversalDeserializer().Decode([]byte(text), nil, nil)
	if err != nil {
		t.Fatalf("%v:\n%s", err, text)
	}

	policies := l.client.NetworkingV1().NetworkPolicies("x")

	have, err := policies.Get(t.Context(), name, metav1.GetOptions{})
	if err == nil {
		obj.(*networkingv1.NetworkPolicy).ResourceVersion = have.ResourceVersion
		_, err = policies.Update(t.Context(), obj.(*networkingv1.NetworkPolicy), metav1.UpdateOptions{})
	} else {
		_, err = policies.Create(t.Context(), obj.(*networkingv1.NetworkPolicy), metav1.CreateOptions{})
		t.Cleanup(func() {
			if err := policies.Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{}); err != nil {
				t.Error(err)
			}
		})
	}

	if err != nil {
		t.Fatal(err)
	}
}

// await waits until exactly those probes succeed that allowed accepts, plus those that always do:
// from a pod to itself, and from a node to its own pods.
func (l *policyLab) await(t *testing.T, allowed func(Probe) bool) {
	t.Helper()

	began := time.Now()

	probes := l.probes
	if patience() > 1 { // all of them at once take longer in emulation than each may
		probes = nil

		l.turn++
		for i, p := range l.probes {
			if i%3 == l.turn%3 {
				probes = append(probes, p)
			}
		}
	}

	err := AwaitReach(t.Context(), l.Lab, probes, func(p Probe) bool {
		own := l.pods[p.To]
		return p.From == p.To || own != nil && own.Node == p.From || allowed(p)
	})
	if err != nil {
		t.Fatal(err)
	}

	t.Logf("%d probes after %s", len(probes), time.Since(began).Round(time.Millisecond))
}

func in(namespace, pod string) bool { return strings.HasPrefix(pod, namespace+"/") }

// isolated returns the probes that a policy for the selected pods allows.
func isolated(to func(string) bool, allowed func(Probe) bool) func(Probe) bool {
	return func(p Probe) bool { return !to(p.To) || allowed(p) }
}

func only1(name string) func(string) bool { return func(s string) bool { return s == name } }

func namespaceX(name string) bool { return in("x", name) }

func nothing(Probe) bool { return false }

func everything(Probe) bool { return true }

// TestPolicy checks policies with real traffic, modelled on the upstream suite: reachability among
// all pods, over both protocols, ports and families.
func TestPolicy(t *testing.T) {
	l := startPolicyLab(t)
	t.Run("no policy", func(t *testing.T) { l.await(t, everything) })

	for _, tt := range policyShapes(l) {
		t.Run(tt.name, func(t *testing.T) {
			for i, spec := range tt.specs {
				l.apply(t, fmt.Sprintf("policy%d", i), spec)
			}

			l.await(t, tt.allowed)
		})
	}

	t.Run("changes", func(t *testing.T) { testPolicyChanges(t, l) })
	t.Run("services", func(t *testing.T) { testPolicyServices(t, l) })
	t.Run("established connections", func(t *testing.T) { testPolicyCuts(t, l) })
	t.Run("logging", func(t *testing.T) { testPolicyLogging(t, l) })
	t.Run("flows", func(t *testing.T) { testPolicyFlows(t, l) })
	t.Run("no policy any more", func(t *testing.T) { l.await(t, everything) })

	if l.Datapath() == "system" {
		t.Run("shortcuts were used", func(t *testing.T) { shortcutsUsed(t, l.Lab) })
	}
}

type policyShape struct {
	name    string
	specs   []string // of policies in namespace x
	allowed func(Probe) bool
}

func policyShapes(l *policyLab) []policyShape {
	toA := only1("x/a")
	block := func(name string, v6 bool) string {
		a := choose(v6, l.pods[name].IP4(), l.pods[name].IP6())
		return netip.PrefixFrom(a, a.BitLen()).String()
	}

	return []policyShape{
		{"deny ingress", []string{`{podSelector: {}}`}, isolated(namespaceX, nothing)},
		{"deny egress", []string{`{podSelector: {}, policyTypes: [Egress]}`}, func(p Probe) bool { return !in("x", p.From) }},
		{"deny both, of one pod", []string{`{podSelector: {matchLabels: {pod: a}}, policyTypes: [Ingress, Egress]}`}, func(p Probe) bool {
			return p.From != "x/a" && p.To != "x/a"
		}},
		{"allow all over deny", []string{`{podSelector: {}, policyTypes: [Ingress, Egress]}`, `{podSelector: {}, ingress: [{}], egress: [{}], policyTypes: [Ingress, Egress]}`}, everything},
		{
			"from pods by label",
			[]string{`{podSelector: {matchLabels: {pod: a}}, ingress: [{from: [{podSelector: {matchLabels: {pod: b}}}]}]}`},
			isolated(toA, func(p Probe) bool { return p.From == "x/b" }),
		},
		{
			"from namespaces by label",
			[]string{`{podSelector: {}, ingress: [{from: [{namespaceSelector: {matchExpressions: [{key: ns, operator: NotIn, values: [ns-x, ns-z]}, {key: ns, operator: Exists}]}}]}]}`},
			isolated(namespaceX, func(p Probe) bool { return in("y", p.From) }),
		},
		{
			"from pods in namespaces, or other pods",
			[]string{`{podSelector: {matchLabels: {pod: a}}, ingress: [{from: [{namespaceSelector: {matchLabels: {ns: ns-y}}, podSelector: {matchLabels: {pod: b}}}, {podSelector: {matchLabels: {pod: c}}}]}]}`},
			isolated(toA, func(p Probe) bool { return p.From == "y/b" || p.From == "x/c" }),
		},
		{
			"ports",
			[]string{`{podSelector: {matchLabels: {pod: a}}, ingress: [{ports: [{port: 80}]}, {from: [{namespaceSelector: {matchLabels: {ns: ns-y}}}], ports: [{port: 81, protocol: UDP}]}]}`},
			isolated(toA, func(p Probe) bool {
				return p.Address.Port() == 80 && p.Protocol == "tcp" || in("y", p.From) && p.Address.Port() == 81 && p.Protocol == "udp"
			}),
		},
		{"named ports", []string{
			`{podSelector: {matchLabels: {pod: a}}, ingress: [{ports: [{port: http}, {port: other-udp, protocol: UDP}, {port: http, protocol: UDP}]}]}`,
			`{podSelector: {matchLabels: {pod: b}}, policyTypes: [Egress], egress: [{to: [{namespaceSelector: {matchLabels: {ns: ns-y}}}], ports: [{port: http}]}]}`,
		}, func(p Probe) bool {
			named := p.Address.Port() == 80 && p.Protocol == "tcp" || p.Address.Port() == 81 && p.Protocol == "udp"
			if p.From == "x/b" && (!in("y", p.To) || p.Address.Port() != 80 || p.Protocol != "tcp") {
				return false
			}

			return p.To != "x/a" || named
		}},
		{
			"a range of ports",
			[]string{`{podSelector: {matchLabels: {pod: a}}, ingress: [{from: [{podSelector: {}}], ports: [{port: 81, endPort: 90}, {port: 1, endPort: 79, protocol: UDP}]}]}`},
			isolated(toA, func(p Probe) bool { return in("x", p.From) && p.Address.Port() == 81 && p.Protocol == "tcp" }),
		},
		{
			"blocks with exceptions",
			[]string{fmt.Sprintf(`{podSelector: {matchLabels: {pod: a}}, ingress: [{from: [{ipBlock: {cidr: 10.244.0.0/16, except: [%q, %q]}}, {ipBlock: {cidr: "fd00:10:244::/48", except: [%q]}}]}]}`,
				block("x/b", false), block("y/a", false), block("x/b", true))},
			isolated(toA, func(p Probe) bool {
				return p.From != "x/b" && (p.From != "y/a" || p.Address.Addr().Is6())
			}),
		},
		{
			"egress to blocks and pods",
			[]string{fmt.Sprintf(`{podSelector: {matchLabels: {pod: a}}, policyTypes: [Egress], egress: [{to: [{ipBlock: {cidr: "%s/32"}}], ports: [{port: 80}, {port: 80, protocol: UDP}]}, {to: [{podSelector: {matchLabels: {pod: c}}}]}]}`, outside(false))},
			func(p Probe) bool {
				return p.From != "x/a" || p.To == "x/c" || p.To == "ext" && p.Address.Addr().Is4() && p.Address.Port() == 80
			},
		},
		{"several policies are their union", []string{
			`{podSelector: {matchLabels: {pod: a}}, ingress: [{from: [{podSelector: {matchLabels: {pod: b}}}]}]}`,
			`{podSelector: {}, ingress: [{from: [{namespaceSelector: {matchLabels: {ns: ns-y}}}], ports: [{port: 80}]}]}`,
		}, isolated(namespaceX, func(p Probe) bool {
			return p.To == "x/a" && p.From == "x/b" || in("y", p.From) && p.Address.Port() == 80 && p.Protocol == "tcp"
		})},
	}
}

// testPolicyChanges: changes of policies and labels, and new pods.
func testPolicyChanges(t *testing.T, l *policyLab) {
	fromY := func(p Probe) bool { return in("y", p.From) }

	l.apply(t, "changing", `{podSelector: {matchLabels: {pod: a}}, ingress: [{from: [{namespaceSelector: {matchLabels: {ns: ns-z}}}]}]}`)
	l.await(t, isolated(only1("x/a"), func(p Probe) bool { return in("z", p.From) }))
	l.apply(t, "changing", `{podSelector: {matchLabels: {pod: b}}, ingress: [{from: [{namespaceSelector: {matchLabels: {ns: ns-y}}}]}]}`)
	l.await(t, isolated(only1("x/b"), fromY))
	l.label("pod", "x/c", map[string]any{"pod": "b"})
	l.await(t, isolated(func(to string) bool { return to == "x/b" || to == "x/c" }, fromY))
	l.label("pod", "x/c", map[string]any{"pod": "c"})
	l.label("namespace", "z", map[string]any{"ns": "ns-y"})
	l.label("namespace", "y", map[string]any{"ns": nil})
	l.await(t, isolated(only1("x/b"), func(p Probe) bool { return in("z", p.From) }))
	l.addPod("x/late", "node3", map[string]string{"pod": "b"})
	l.addPod("z/late", "node1", nil)
	l.await(t, isolated(func(to string) bool { return to == "x/b" || to == "x/late" }, func(p Probe) bool { return in("z", p.From) }))

	for _, name := range []string{"x/late", "z/late"} {
		if err := l.DelPod(t.Context(), l.pods[name]); err != nil {
			t.Fatal(err)
		}

		delete(l.pods, name)
	}

	l.probes = l.allProbes()
	for _, ns := range []string{"y", "z"} {
		l.label("namespace", ns, map[string]any{"ns": "ns-" + ns})
	}
}

// testPolicyFlows: the numbers of prefixes and ports of a rule add up in a node's flows. With their
// product, one policy could overload every ovn-controller.
func testPolicyFlows(t *testing.T, l *policyLab) {
	const each = 100 // prefixes of each family, and ports of each protocol

	var blocks, ports []string
	for i := range each {
		blocks = append(blocks, fmt.Sprintf(`{ipBlock: {cidr: 198.18.%d.0/24}}`, i), fmt.Sprintf(`{ipBlock: {cidr: "2001:db8:%x::/48"}}`, i))
		ports = append(ports, fmt.Sprintf(`{port: %d}, {port: %d, protocol: UDP}`, 2*i+1, 2*i+1))
	}

	execute := func(on string, argv ...string) string {
		out, err := l.Exec(t.Context(), on, argv...)
		if err != nil {
			t.Fatal(err)
		}

		return string(out)
	}
	flows := func() int {
		execute("central", "ovn-nbctl", "--timeout=60", "--wait=hv", "sync")
		out := execute("node1", "ovs-ofctl", "dump-aggregate", "unix:"+filepath.Join(l.Node(1).RunDir, "br-int.mgmt"))

		return flowCount(t, out)
	}
	before := flows()

	l.apply(t, "many", fmt.Sprintf(`{podSelector: {matchLabels: {pod: a}}, ingress: [{from: [%s], ports: [%s]}]}`, strings.Join(blocks, ", "), strings.Join(ports, ", ")))

	var added int

	within(t, "flows of the policy", func() error {
		if added = flows() - before; added < 2*each {
			return fmt.Errorf("%d more flows, want at least one for each prefix", added)
		}

		return nil
	})

	if most := 40 * each; added > most {
		t.Errorf("%d flows for %d prefixes and %d ports, want at most %d", added, 2*each, 2*each, most)
	}
}

// testPolicyServices: egress is decided by the endpoint, ingress by the client, and a pod reaches
// itself by a Service under any policy.
func testPolicyServices(t *testing.T, l *policyLab) {
	var probes []Probe

	for service, pod := range map[string]string{"good": "y/a", "bad": "y/b", "own": "x/a"} {
		svc, err := l.AddService(t.Context(), lab.ServiceSpec{Namespace: "x", Name: service, Pods: []*lab.Pod{l.pods[pod]}, Ports: []corev1.ServicePort{
			{Name: "tcp", Port: 8000, TargetPort: intstr.FromInt32(80)},
			{Name: "udp", Port: 8000, TargetPort: intstr.FromInt32(80), Protocol: corev1.ProtocolUDP},
		}})
		if err != nil {
			t.Fatal(err)
		}

		for _, ip := range svc.Spec.ClusterIPs {
			for _, protocol := range []string{"tcp", "udp"} {
				probes = append(probes, Probe{"x/a", pod, protocol, netip.AddrPortFrom(netip.MustParseAddr(ip), 8000)})
			}
		}
	}

	if err := AwaitReach(t.Context(), l.Lab, probes, everything); err != nil {
		t.Fatal(err)
	}

	l.apply(t, "egress", `{podSelector: {matchLabels: {pod: a}}, policyTypes: [Ingress, Egress], egress: [{to: [{namespaceSelector: {matchLabels: {ns: ns-y}}, podSelector: {matchLabels: {pod: a}}}]}]}`)

	if err := AwaitReach(t.Context(), l.Lab, probes, func(p Probe) bool { return p.To != "y/b" }); err != nil {
		t.Error(err)
	}

	for _, service := range []string{"good", "bad", "own"} {
		if err := l.DelService(t.Context(), "x", service); err != nil {
			t.Error(err)
		}
	}
}

// testPolicyCuts: a connection is cut when it is no longer allowed; one that still is survives.
func testPolicyCuts(t *testing.T, l *policyLab) {
	to := netip.AddrPortFrom(l.pods["x/a"].IP4(), 80).String()
	held := map[string]*process.Process{}

	for _, from := range []string{"x/b", "y/a"} {
		id := "hold-" + strings.ReplaceAll(from, "/", "-")

		p, err := l.Spawn("pod:"+from, id, filepath.Join(os.Getenv("BIN_DIR"), "ovnlab"), "traffic", "hold", to, "-duration", "10m", "-timeout", "2s")
		if err != nil {
			t.Fatal(err)
		}

		held[id] = p
	}

	for _, from := range []string{"x/b", "y/a"} {
		within(t, "an answer to "+from, func() error {
			out, err := l.Exec(t.Context(), "pod:"+from, "ss", "-Hint", "state", "established", "dport", "=", ":80")
			if err == nil && !strings.Contains(string(out), "bytes_received:") {
				err = fmt.Errorf("nothing received: %q", out)
			}

			return err
		})
	}

	l.apply(t, "cut", `{podSelector: {matchLabels: {pod: a}}, ingress: [{from: [{podSelector: {}}]}]}`)
	l.await(t, isolated(only1("x/a"), func(p Probe) bool { return in("x", p.From) }))
	time.Sleep(time.Second) // time for traffic that is lost or not

	for id, cut := range map[string]bool{"hold-x-b": false, "hold-y-a": true} {
		if err := held[id].Stop(20 * time.Second); err != nil {
			t.Fatal(err)
		}

		var report struct{ Sent, Received, Lost int }

		out, err := os.ReadFile(filepath.Join(l.dir, "log", id+".log"))
		if err != nil {
			t.Fatal(err)
		}

		line, _, _ := strings.Cut(string(out[strings.Index(string(out), "{"):]), "\n")
		if err := json.Unmarshal([]byte(line), &report); err != nil {
			t.Fatalf("%v: %s", err, out)
		}

		t.Logf("%s: %+v", id, report)

		if report.Received == 0 || (report.Lost > 0) != cut {
			t.Errorf("%s: %+v, want answers, and some lost: %t", id, report, cut)
		}
	}
}

// testPolicyLogging: with the namespace's annotation, ovn-controller logs decisions with their
// names.
func testPolicyLogging(t *testing.T, l *policyLab) {
	l.patch("namespace", "x", []byte(`{"metadata": {"annotations": {"k8s.ovn.org/acl-logging": "{\"deny\": \"alert\", \"allow\": \"notice\"}"}}}`))
	l.apply(t, "logged", `{podSelector: {matchLabels: {pod: a}}, ingress: [{from: [{podSelector: {}}]}]}`)

	for _, want := range []string{
		`name="NP:x:Ingress", verdict=drop, severity=alert`,
		`name="NP:x:logged:Ingress:0", verdict=allow, severity=notice`,
	} {
		within(t, want, func() error {
			l.await(t, isolated(only1("x/a"), func(p Probe) bool { return in("x", p.From) }))

			log, err := os.ReadFile(filepath.Join(l.dir, "log", "node1-ovn-controller.log"))
			if err == nil && !strings.Contains(string(log), want) {
				err = fmt.Errorf("not in the log of node1's ovn-controller")
			}

			return err
		})
	}

	l.patch("namespace", "x", []byte(`{"metadata": {"annotations": {"k8s.ovn.org/acl-logging": null}}}`))
}
