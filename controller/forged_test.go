package controller_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
	"github.com/ovn-ebpf/ovn-ebpf/controller/nb/nbtest"
	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
)

// forgery is a pod's annotations as a tenant writes them.
type forgery struct {
	name        string
	annotations map[string]string
}

// forgeries change each field of what a pod of node1 has, in both annotations.
func forgeries(own, victim annotation.Pod, node *corev1.Node) []forgery {
	var out []forgery

	add := func(name string, change func(*annotation.Pod)) {
		p := annotation.Pod{Addresses: slices.Clone(own.Addresses), MAC: slices.Clone(own.MAC), Gateways: slices.Clone(own.Gateways)}
		change(&p)

		text, first := annotation.FormatPod(p), ""
		if len(p.Addresses) > 0 {
			first = annotation.FormatFirstPod(p)
		}

		out = append(
			out,
			forgery{name, map[string]string{annotation.PodNetworks: text}},
			forgery{name + ", first generation", map[string]string{annotation.PodNetworks: "", annotation.FirstPod: first}},
			forgery{name + ", both", map[string]string{annotation.PodNetworks: text, annotation.FirstPod: first}},
		)
	}
	subnets, _ := annotation.ParseNodeSubnets(node.Annotations)
	management, _ := annotation.ParseManagementMAC(node.Annotations)
	join, _ := annotation.ParseJoin(node.Annotations)
	gateway, _ := annotation.ParseGateway(node.Annotations)

	uplink, _ := net.ParseMAC(gateway.MAC)
	for name, mac := range map[string]net.HardwareAddr{
		"router's MAC":              annotation.DerivedMAC(plan.RouterAddress(subnets[0]).Addr()),
		"router's MAC by IPv6":      annotation.DerivedMAC(plan.RouterAddress(subnets[1]).Addr()),
		"management port's MAC":     management,
		"derived management MAC":    annotation.DerivedMAC(plan.ManagementAddress(subnets[0]).Addr()),
		"gateway router's MAC":      uplink,
		"gateway router's join MAC": annotation.DerivedMAC(join.IPv4.Addr()),
		"another pod's MAC":         victim.MAC,
		"MAC of a later pod":        annotation.DerivedMAC(netip.MustParseAddr("10.244.0.99")),
		"MAC of its IPv6 address":   annotation.DerivedMAC(own.Addresses[1].Addr()),
		"multicast MAC":             {1, 0, 0x5e, 0, 0, 1},
		"broadcast MAC":             {255, 255, 255, 255, 255, 255},
		"no MAC":                    {0, 0, 0, 0, 0, 0},
		"long MAC":                  {2, 0, 0, 0, 0, 0, 0, 1},
		"an unused MAC":             {2, 0, 0, 0xaa, 0, 1},
	} {
		add(name, func(p *annotation.Pod) { p.MAC = mac })
	}

	for i, family := range []string{"IPv4", "IPv6"} {
		subnet := subnets[i]
		for name, a := range map[string]netip.Addr{
			"another pod's": victim.Addresses[i].Addr(), "another node's": after(subnet.Addr(), map[bool]int{true: 1 << 8, false: 0}[i == 0]+20),
			"the network's": subnet.Addr(), "the router's": plan.RouterAddress(subnet).Addr(),
			"the management port's": plan.ManagementAddress(subnet).Addr(), "the last": last(subnet), "outside": netip.MustParseAddr([]string{"192.0.2.1", "2001:db8::1"}[i]),
		} {
			if family == "IPv6" && (name == "the last" || name == "another node's") {
				continue // the last one is an ordinary address; the other is beyond 64 bits
			}

			add(name+" "+family+" address", func(p *annotation.Pod) {
				p.Addresses[i] = netip.PrefixFrom(a, subnet.Bits())
				p.MAC = annotation.DerivedMAC(p.Addresses[0].Addr())
			})
		}

		add("250 "+family+" addresses", func(p *annotation.Pod) {
			for n := 4; n < 254; n++ {
				p.Addresses = append(p.Addresses, netip.PrefixFrom(after(subnet.Addr(), n), subnet.Bits()))
			}
		})
		add("short prefix "+family, func(p *annotation.Pod) { p.Addresses[i] = netip.PrefixFrom(p.Addresses[i].Addr(), 8) })
		add("gateway "+family, func(p *annotation.Pod) { p.Gateways[i] = victim.Addresses[i].Addr() })
	}

	add("no gateways", func(p *annotation.Pod) { p.Gateways = nil })
	add("no addresses", func(p *annotation.Pod) { p.Addresses = nil })

	good := annotation.FormatPod(own)
	for name, text := range map[string]string{
		"no JSON": "{", "another type": `["x"]`, "empty": "", "no network": "{}",
		"huge":            `{"default":{"x":"` + strings.Repeat("a", 200_000) + `"}}`,
		"deep":            strings.Repeat("[", 9000),
		"another network": strings.TrimSuffix(good, "}") + `,"ns/other":{"ip_addresses":["10.244.0.9/24"],"mac_address":"02:00:00:00:00:01"}}`,
		"routes":          strings.Replace(good, `"role"`, `"routes":[{"dest":"0.0.0.0/0","nextHop":"10.244.0.3"}],"role"`, 1),
		"another role":    strings.Replace(good, "primary", "secondary", 1),
		"another case":    strings.Replace(good, "mac_address", "MAC_ADDRESS", 1),
		"a key twice":     strings.TrimSuffix(good, "}") + `,"default":{"mac_address":"` + victim.MAC.String() + `"}}`,
	} {
		out = append(out, forgery{name, map[string]string{annotation.PodNetworks: text}}, forgery{name + ", first generation", map[string]string{annotation.FirstPod: text}})
	}

	return out
}

func after(a netip.Addr, n int) netip.Addr {
	for range n {
		a = a.Next()
	}

	return a
}

func last(p netip.Prefix) netip.Addr {
	a := p.Addr()
	for p.Contains(a.Next()) && a.Is4() {
		a = a.Next()
	}

	return a
}

// TestForgedAnnotations: whatever a tenant writes into a pod's annotations, at its creation or
// while it runs, the pod has what was allocated, its annotations say so, and no row but its own
// changes.
func TestForgedAnnotations(t *testing.T) {
	w := newWorld(t)
	w.createNode(1)
	w.createNode(2)
	r := w.run(t, "leader")
	w.createPod("forger", "node1") // older than its victims
	w.awaitAddresses("forger")
	w.createPod("victim", "node1")
	w.createPod("elsewhere", "node2")
	own, victim := w.awaitAddresses("forger"), w.awaitAddresses("victim")
	w.awaitAddresses("elsewhere")
	r.waitReady()

	node, err := w.client.CoreV1().Nodes().Get(t.Context(), "node1", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}

	all := forgeries(own, victim, node)
	before := w.rowsBut("forged-")

	t.Log("while the pod runs,", len(all), "forgeries")

	for _, f := range all {
		w.forge("forger", f.annotations)
		nbtest.Eventually(t, f.name+": annotations are put back", func() bool { return w.says("forger", own) })
	}

	t.Log("at the pod's creation")

	for i := range all {
		w.createForged(fmt.Sprint("forged-", i), "node1", all[i].annotations)
	}

	for i, f := range all {
		name := fmt.Sprint("forged-", i)
		got := w.awaitAddresses(name)
		nbtest.Eventually(t, f.name+": annotations of a new pod are put right", func() bool { return w.says(name, got) })
		checkAllocated(t, f.name, got, node)
	}

	t.Log("without a leader")
	r.kill()
	w.forge("forger", map[string]string{annotation.PodNetworks: annotation.FormatPod(victim)})
	r = w.run(t, "next")
	nbtest.Eventually(t, "the next leader puts back what OVN has", func() bool { return w.says("forger", own) && w.says("victim", victim) })
	r.waitReady()

	if diff := cmp.Diff(before, w.rowsBut("forged-")); diff != "" {
		t.Errorf("rows that are no forged pod's (-before +after):\n%s", diff)
	}

	history, _ := w.nb.History()
	for _, row := range history {
		if row.Table == "Logical_Switch_Port" && row.Updates["addresses"]+row.Updates["port_security"] > 0 {
			t.Errorf("%s: %v, want no change ever", row, row.Updates)
		}
	}
}

// checkAllocated: one address in each of the node's subnets, the derived MAC address.
func checkAllocated(t *testing.T, what string, p annotation.Pod, node *corev1.Node) {
	t.Helper()

	subnets, _ := annotation.ParseNodeSubnets(node.Annotations)
	if len(p.Addresses) != len(subnets) || len(p.Gateways) != len(subnets) {
		t.Errorf("%s: addresses %v, gateways %v", what, p.Addresses, p.Gateways)
		return
	}

	for i, s := range subnets {
		a := p.Addresses[i]
		if a.Masked() != s || a.Addr().Compare(plan.ManagementAddress(s).Addr()) <= 0 || a.Addr() == last(s) || p.Gateways[i] != plan.RouterAddress(s).Addr() {
			t.Errorf("%s: address %s, gateway %s", what, a, p.Gateways[i])
		}
	}

	if got, want := p.MAC.String(), annotation.DerivedMAC(p.Addresses[0].Addr()).String(); got != want {
		t.Errorf("%s: MAC address %s, want %s", what, got, want)
	}
}

// rowsBut are the database's rows, without those that name one of these pods and without
// references to them.
func (w *world) rowsBut(prefix string) []string {
	return slices.DeleteFunc(w.nb.Normal(), func(line string) bool {
		return strings.Contains(line, prefix) || strings.HasPrefix(line, "Logical_Switch ") || strings.HasPrefix(line, "Port_Group ")
	})
}

// forge patches the pod's annotations; an empty value removes one.
func (w *world) forge(name string, annotations map[string]string) {
	w.t.Helper()

	values := map[string]any{}
	for k, v := range annotations {
		if values[k] = v; v == "" {
			values[k] = nil
		}
	}

	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": values}})
	if err == nil {
		_, err = w.client.CoreV1().Pods("default").Patch(w.t.Context(), name, types.MergePatchType, body, metav1.PatchOptions{})
	}

	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) createForged(name, node string, annotations map[string]string) {
	w.t.Helper()

	annotations = maps.Clone(annotations)
	maps.DeleteFunc(annotations, func(_, v string) bool { return v == "" })

	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", Annotations: annotations},
		Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "none"}}},
	}
	if _, err := w.client.CoreV1().Pods("default").Create(w.t.Context(), pod, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

// awaitAddresses waits for the pod's row and returns what it has there, with gateways.
func (w *world) awaitAddresses(name string) annotation.Pod {
	w.t.Helper()

	var p annotation.Pod

	nbtest.Eventually(w.t, name+" has a port", func() bool {
		fields := strings.Fields(w.nb.Nbctl("--bare", "--columns=addresses", "find", "logical_switch_port", "name=default_"+name))
		if len(fields) < 2 {
			return false
		}

		p = annotation.Pod{}

		p.MAC, _ = net.ParseMAC(fields[0])
		for _, f := range fields[1:] {
			a := netip.MustParseAddr(f)
			subnet := netip.PrefixFrom(a, map[bool]int{true: 24, false: 64}[a.Is4()])
			p.Addresses, p.Gateways = append(p.Addresses, subnet), append(p.Gateways, plan.RouterAddress(subnet).Addr())
		}

		return true
	})

	return p
}

// says reports whether the pod's annotations say this and nothing else.
func (w *world) says(name string, network annotation.Pod) bool {
	w.t.Helper()

	pod, err := w.client.CoreV1().Pods("default").Get(w.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}

	first, has := pod.Annotations[annotation.FirstPod]

	return pod.Annotations[annotation.PodNetworks] == annotation.FormatPod(network) && (!has || first == annotation.FormatFirstPod(network))
}
