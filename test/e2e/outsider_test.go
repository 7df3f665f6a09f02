package e2e

import (
	"context"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// testOutsider: an outside machine routes pod traffic through the pod's node, which forwards, as
// Kubernetes requires. Direct traffic to the pod is dropped and counted, also with the spoofed
// source of a pod that a policy allows.
func testOutsider(t *testing.T, c *Cluster) {
	c.forward(t, "node1")
	bothFamilies(t, func(t *testing.T, v6 bool) {
		pod, other := c.pod("a")(v6), c.pod("c")(v6)
		c.until(t, "ext", "ip route replace %s via "+c.gateway(1)(v6).String(), "ip route del %s", pod)
		c.until(t, "ext", "ip addr add %s dev lo", "ip addr del %s dev lo", other)
		c.meet(t.Context(), "ext", port(c.gateway(1)(v6), sshPort)) // resolves its MAC address
		c.barred(t, "cluster_destination", outside(v6), port(pod, podPort))
		c.allowOnly(t, v6, "a", "c")
		c.barred(t, "spoofed_source", other, port(pod, podPort))

		if err := c.ask(t, host("c"), port(pod, podPort)); err != nil {
			t.Errorf("the pod that the policy allows: %v", err)
		}
	})
}

// until runs one command with an address as a prefix, and the other one when the test ends.
func (c *Cluster) until(t *testing.T, on, first, last string, a netip.Addr) {
	t.Helper()

	p := netip.PrefixFrom(a, a.BitLen())
	c.execute(t, on, strings.Fields(fmt.Sprintf(first, p))...)
	t.Cleanup(func() {
		if _, err := c.Exec(context.WithoutCancel(t.Context()), on, strings.Fields(fmt.Sprintf(last, p))...); err != nil {
			t.Error(err)
		}
	})
}

// barred sends datagrams to pod a. None may arrive, and each must be counted.
func (c *Cluster) barred(t *testing.T, reason string, source netip.Addr, to netip.AddrPort) {
	t.Helper()

	const datagrams = 3

	as := explanation{Reason: reason, Verdict: "drop"}

	counted, got := c.countedAs(t, as), c.datagrams(t, "a")
	for range datagrams {
		_, _ = c.Exec(t.Context(), "ext", c.traffic("udp", "-src", source.String(), "-timeout", "100ms", to.String())...)
	}

	within(t, reason, func() error {
		if n := c.countedAs(t, as) - counted; n < datagrams {
			return fmt.Errorf("%d packets counted as %s, of %d; the pod has got %d", n, reason, datagrams, c.datagrams(t, "a")-got)
		}

		return nil
	})

	if n := c.datagrams(t, "a") - got; n > 0 {
		t.Errorf("from %s to %s: %d datagrams have reached the pod", source, to, n)
	}
}

// datagrams returns the number of datagrams that a pod has received, with or without a listener.
func (c *Cluster) datagrams(t *testing.T, pod string) (n uint64) {
	t.Helper()

	in6 := c.execute(t, host(pod), "cat", "/proc/net/snmp6")
	for line := range strings.Lines(in6) {
		if f := strings.Fields(line); f[0] == "Udp6InDatagrams" || f[0] == "Udp6NoPorts" {
			n += number(t, f[1])
		}
	}

	var names []string

	for line := range strings.Lines(c.execute(t, host(pod), "cat", "/proc/net/snmp")) {
		f := strings.Fields(line)
		if f[0] != "Udp:" {
			continue
		}

		if names == nil {
			names = f
			continue
		}

		for i, name := range names {
			if name == "InDatagrams" || name == "NoPorts" {
				n += number(t, f[i])
			}
		}
	}

	return n
}

func number(t *testing.T, s string) uint64 {
	t.Helper()

	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		t.Fatal(err)
	}

	return n
}

// forward enables forwarding on a node, as Kubernetes needs, until the test ends.
func (c *Cluster) forward(t *testing.T, node string) {
	t.Helper()

	set := func(ctx context.Context, value string) {
		if _, err := c.Exec(ctx, node, "sysctl", "-qw", "net.ipv4.ip_forward="+value, "net.ipv6.conf.all.forwarding="+value); err != nil {
			t.Fatal(err)
		}
	}
	set(t.Context(), "1")
	t.Cleanup(func() { set(context.WithoutCancel(t.Context()), "0") })
}

// allowOnly creates a policy that allows ingress from one pod only, until the test ends.
func (c *Cluster) allowOnly(t *testing.T, v6 bool, pod, from string) {
	t.Helper()

	client, err := c.Kubernetes()
	if err != nil {
		t.Fatal(err)
	}

	a := c.pod(from)(v6)
	policy := &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("only-%s-%t", from, v6)},
		Spec: networkingv1.NetworkPolicySpec{
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
			Ingress: []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{
				{IPBlock: &networkingv1.IPBlock{CIDR: netip.PrefixFrom(a, a.BitLen()).String()}},
			}}},
		},
	}

	policies := client.NetworkingV1().NetworkPolicies("default")
	if _, err := policies.Create(t.Context(), policy, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if err := policies.Delete(context.WithoutCancel(t.Context()), policy.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	c.awaitNB(t, "the policy", "ACL", "external_ids:ovn-ebpf.io/owner=policy/default/"+policy.Name)
	within(t, "the policy", func() error {
		if c.ask(t, "node2", port(c.pod(pod)(v6), podPort)) == nil {
			return fmt.Errorf("pod %s is reached by node2", pod)
		}

		return nil
	})
}
