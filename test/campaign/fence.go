package campaign

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/masquerade"
	"github.com/ovn-ebpf/ovn-ebpf/test/lab"
)

// fenceRate is the number of frames per second and fenced pod.
const fenceRate = wireRate / 5

// fence creates a pod on each node with an egress policy that allows everything but the nodes. The
// pods try all addresses of both masquerade networks, which hosts have and no ipBlock covers. None
// of their frames may reach a host; the devices towards the hosts are monitored on both nodes.
func (w *wire) fence(ctx context.Context) error {
	peers := []networkingv1.NetworkPolicyPeer{{IPBlock: &networkingv1.IPBlock{CIDR: "0.0.0.0/0"}}, {IPBlock: &networkingv1.IPBlock{CIDR: "::/0"}}}

	for _, n := range w.Nodes() {
		for i, a := range []netip.Addr{n.IP4, n.IP6} {
			peers[i].IPBlock.Except = append(peers[i].IPBlock.Except, netip.PrefixFrom(a, a.BitLen()).String())
		}
	}

	policy := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "fenced"}, Spec: networkingv1.NetworkPolicySpec{
		PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "fenced"}},
		PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeEgress},
		Egress:      []networkingv1.NetworkPolicyEgressRule{{To: peers}},
	}}
	for i, n := range w.Nodes() {
		p, err := w.AddPod(ctx, lab.PodSpec{Namespace: hostile, Name: fmt.Sprintf("fenced%d", i), Node: n.Name, Labels: map[string]string{"app": "fenced"}})
		if err != nil {
			return err
		}

		w.fenced = append(w.fenced, p)
	}

	if _, err := w.client.NetworkingV1().NetworkPolicies(hostile).Create(ctx, policy, metav1.CreateOptions{}); err != nil {
		return err
	}

	if err := w.enforced(ctx, hostile, policy.Name); err != nil {
		return err
	}

	for _, n := range w.Nodes() {
		for _, device := range []string{"breth0", "ovn-k8s-mp0"} {
			if err := w.sniff(ctx, fmt.Sprintf("the host of %s, %s", n.Name, device), n.Name, device, fencedMagic, w.forbidden); err != nil {
				return err
			}
		}
	}

	return nil
}

// forbidden reports whether fenced pods must not reach an address: those of nodes and of the
// masquerade networks. Through a NodePort they reach pods, which their policy allows.
func (w *wire) forbidden(a netip.Addr) bool {
	return masquerade.Of(true).Subnet.Contains(a) || masquerade.Of(false).Subnet.Contains(a) ||
		slices.ContainsFunc(w.Nodes(), func(n *lab.Node) bool { return a == n.IP4 || a == n.IP6 })
}

// behindFence returns an attacker in a fenced pod. It sends to its router, and to its node's
// management port, past the router.
func (w *wire) behindFence(ctx context.Context, p *lab.Pod, seed uint64) (*attacker, error) {
	a := newAttacker(seed, fencedMagic)
	if err := w.stand(ctx, a, p); err != nil {
		return nil, err
	}

	w.know(a, p.IP4(), p.IP6())
	a.targets = nil

	for _, is4 := range []bool{true, false} {
		network := masquerade.Of(is4).Subnet
		for addr := network.Addr(); network.Contains(addr); addr = addr.Next() {
			a.targets = append(a.targets, addr)
		}
	}

	for _, n := range w.Nodes() {
		a.targets = append(a.targets, n.IP4, n.IP6)
	}

	return a, nil
}

// stand puts an attacker into a pod: it sets its MAC, and those of its node's router and management
// port.
func (w *wire) stand(ctx context.Context, a *attacker, p *lab.Pod) error {
	var err error
	if a.own, err = w.mac(ctx, p.Host(), "eth0"); err != nil {
		return err
	}

	out, err := w.Exec(ctx, "central", "ovn-nbctl", "--timeout=20", "get", "Logical_Router_Port", "rtos-"+p.Node, "mac")
	if err != nil {
		return err
	}

	router, err := parseMAC(strings.Trim(strings.TrimSpace(string(out)), `"`))
	if err != nil {
		return err
	}

	management, err := w.mac(ctx, p.Node, "ovn-k8s-mp0")
	a.to = append(a.to, router, management)

	return err
}

// enforced waits until the flows of all nodes contain a policy.
func (g *ground) enforced(ctx context.Context, namespace, name string) error {
	owner := fmt.Sprintf("policy/%s/%s", namespace, name)

	err := insist(ctx, callLimit, func() error {
		out, err := g.Exec(ctx, "central", "ovn-nbctl", "--timeout=20", "--bare", "--columns=_uuid", "find", "ACL", "external_ids:ovn-ebpf.io/owner="+owner)
		if err == nil && len(strings.Fields(string(out))) == 0 {
			err = fmt.Errorf("no ACL of %s", owner)
		}

		return err
	})
	if err != nil {
		return err
	}

	_, err = g.Exec(ctx, "central", "ovn-nbctl", "--timeout=60", "--wait=hv", "sync")

	return err
}
