package e2e

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/masquerade"
	"github.com/ovn-ebpf/ovn-ebpf/test/lab"
)

// testMasquerade: pods cannot reach a host by an address of the masquerade networks, with or
// without egress policies. No ipBlock of a policy covers such an address, and the host would see
// itself as the client. Pods of both nodes try each address, through their gateway and through the
// MAC of the management port, which any pod can use as a destination.
func testMasquerade(t *testing.T, c *Cluster) {
	for _, policy := range []string{"no policy", "a policy that allows all egress"} {
		t.Run(policy, func(t *testing.T) {
			if policy != "no policy" {
				c.allowEgress(t)
			}

			t.Run("by the gateway", func(t *testing.T) { c.masqueradeIsClosed(t, "a", "c") })
			t.Run("by the management port", func(t *testing.T) {
				for _, pod := range []string{"a", "c"} {
					c.routeToManagement(t, pod)
				}

				c.masqueradeIsClosed(t, "a", "c")
			})
		})
	}

	t.Run("by a Service", func(t *testing.T) { c.masqueradeEndpoint(t) })
}

// silence is the initial wait for a reply. A loaded emulated machine may need longer: if required
// replies are missing, the wait grows up to longestSilence.
const silence, longestSilence = 2 * time.Second, 32 * time.Second

// allowEgress creates a policy that allows all egress of all pods, until the test ends.
func (c *Cluster) allowEgress(t *testing.T) {
	t.Helper()

	client, err := c.Kubernetes()
	if err != nil {
		t.Fatal(err)
	}

	policies := client.NetworkingV1().NetworkPolicies("default")

	policy := &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "all-egress"},
		Spec: networkingv1.NetworkPolicySpec{
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeEgress},
			Egress:      []networkingv1.NetworkPolicyEgressRule{{}},
		},
	}
	if _, err := policies.Create(t.Context(), policy, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if err := policies.Delete(context.WithoutCancel(t.Context()), policy.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	c.awaitNB(t, "the policy", "ACL", "external_ids:ovn-ebpf.io/owner=policy/default/"+policy.Name)
}

// routeToManagement routes a pod's traffic for the masquerade networks to its node's management
// port, past the router, until the test ends.
func (c *Cluster) routeToManagement(t *testing.T, pod string) {
	t.Helper()

	subnets := c.podSubnets(t, c.Pods[pod].Node)
	for _, s := range subnets {
		network, via := masquerade.Of(s.Addr().Is4()).Subnet.String(), s.Masked().Addr().Next().Next().String()
		c.execute(t, host(pod), "ip", "route", "replace", network, "via", via)
		t.Cleanup(func() {
			if _, err := c.Exec(context.WithoutCancel(t.Context()), host(pod), "ip", "route", "del", network, "via", via); err != nil {
				t.Error(err)
			}
		})
	}
}

// masqueradeIsClosed checks that no address of the masquerade networks answers the pods, while
// their node answers at its own addresses.
func (c *Cluster) masqueradeIsClosed(t *testing.T, pods ...string) {
	t.Helper()

	for _, pod := range pods { // resolving a neighbour may take longer than silence
		n := c.Pods[pod].Node
		for _, v6 := range []bool{false, true} {
			to := port(c.node(int(n[len(n)-1]-'0'))(v6), hostPort)

			within(t, "pod "+pod+" to its node", func() error {
				_, err := c.Exec(t.Context(), host(pod), c.traffic("tcp", "-n", "1", "-timeout", "5s", to.String())...)
				return err
			})
		}
	}

	before, err := c.settled()
	if err != nil {
		t.Fatal(err)
	}

	var group sync.WaitGroup
	for _, pod := range pods {
		group.Go(func() {
			for _, answer := range c.asksMasquerade(t, pod) {
				t.Errorf("pod %s: answered by %s", pod, answer)
			}
		})
	}

	group.Wait()

	after, err := c.settled()
	if err != nil {
		t.Fatal(err)
	}

	for name := range after {
		if n := after[name].minus(before[name]).Hairpin; n > 0 {
			t.Errorf("%d packets went to the host of %s by the hairpin", n, name)
		}
	}
}

// asksMasquerade returns the addresses of the masquerade networks that answer the pod, and how. It
// probes the pod's own node in the same way, and repeats with more time until that answers:
// otherwise silence proves nothing.
func (c *Cluster) asksMasquerade(t *testing.T, pod string) []string {
	t.Helper()

	var own, hidden []netip.Addr

	for _, v6 := range []bool{false, true} {
		n := c.Pods[pod].Node
		own = append(own, c.node(int(n[len(n)-1]-'0'))(v6))

		network := masquerade.Of(!v6).Subnet
		for a := network.Addr(); network.Contains(a); a = a.Next() {
			hidden = append(hidden, a)
		}
	}

	for wait := silence; ; wait *= 2 {
		answers, err := c.answersTo(t.Context(), pod, slices.Concat(own, hidden), wait)
		if err != nil {
			t.Errorf("pod %s: %v", pod, err)
			return nil
		}

		var missing, wrong []string

		for _, a := range own {
			for _, target := range []string{"tcp/" + port(a, hostPort).String(), "udp/" + port(a, hostPort).String(), "icmp/" + a.String()} {
				if answers[target] == "" {
					missing = append(missing, target)
				}

				delete(answers, target)
			}
		}

		for target, answer := range answers {
			wrong = append(wrong, target+": "+answer)
		}

		if slices.Sort(wrong); len(wrong) > 0 || len(missing) == 0 {
			return wrong
		}

		if wait >= longestSilence {
			t.Errorf("pod %s: its node does not answer by %v within %s", pod, missing, wait)
			return nil
		}
	}
}

// answersTo probes each address by TCP, UDP and ICMP, all at once, and returns the replies by
// target.
func (c *Cluster) answersTo(ctx context.Context, pod string, addresses []netip.Addr, wait time.Duration) (map[string]string, error) {
	var targets, pings []string
	for _, a := range addresses {
		targets = append(targets, "tcp/"+port(a, hostPort).String(), "udp/"+port(a, hostPort).String())
		pings = append(pings, fmt.Sprintf("(ping -n -c 2 -i 0.2 -W %.0f %s >/dev/null && echo icmp/%s answers) &", wait.Seconds(), a, a))
	}

	var (
		reached, pinged []byte
		group           errgroup.Group
	)
	group.Go(func() (err error) {
		reached, err = c.Exec(ctx, host(pod), append(c.traffic("reach", "-timeout", wait.String()), targets...)...)
		return err
	})
	group.Go(func() (err error) {
		pinged, err = c.Exec(ctx, host(pod), "sh", "-c", strings.Join(append(pings, "wait"), "\n"))
		return err
	})

	if err := group.Wait(); err != nil {
		return nil, err
	}

	answers := map[string]string{}

	for line := range strings.Lines(string(reached) + string(pinged)) {
		if target, answer, _ := strings.Cut(strings.TrimSpace(line), " "); answer != "-" {
			answers[target] = answer
		}
	}

	return answers, nil
}

// masqueradeEndpoint: a Service with the host's masquerade address in its EndpointSlice, which any
// namespace editor can write, leads no pod there. For IPv4, the API server rejects such a slice, as
// the masquerade network is link-local.
func (c *Cluster) masqueradeEndpoint(t *testing.T) {
	service := lab.ServiceSpec{Name: "masquerade4", Ports: servicePorts(hostPort, 0), Others: []netip.Addr{masquerade.Of(true).Host}}
	if _, err := c.AddService(t.Context(), service); err == nil || !strings.Contains(err.Error(), "link-local") {
		t.Errorf("the API server takes a link-local endpoint: %v", err)
	}

	service.Name, service.Others = "masquerade6", []netip.Addr{masquerade.Of(false).Host}
	if err := c.addService(t.Context(), service); err != nil {
		t.Fatal(err)
	}

	defer func() {
		for _, name := range []string{"masquerade4", "masquerade6"} {
			if err := c.DelService(context.WithoutCancel(t.Context()), "default", name); err != nil {
				t.Error(err)
			}
		}
	}()

	to := port(c.cluster(service.Name)(true), servicePort)
	c.awaitNB(t, "the load balancer", "Load_Balancer", "vips{!=}{}", "external_ids:ovn-ebpf.io/owner=service/default/"+service.Name)

	out := c.execute(t, host("a"), c.traffic("reach", "-timeout", silence.String(), "tcp/"+to.String(), "udp/"+to.String())...)
	for line := range strings.Lines(out) {
		if line = strings.TrimSpace(line); !strings.HasSuffix(line, " -") {
			t.Errorf("answered: %s", line)
		}
	}
}

// awaitNB waits until the Northbound database has such a row, and all nodes have applied it.
func (c *Cluster) awaitNB(t *testing.T, what, table string, conditions ...string) {
	t.Helper()
	within(t, what, func() error {
		out := c.execute(t, "central", append([]string{"ovn-nbctl", "--db=" + c.NBAddress(), "--bare", "--columns=_uuid", "find", table}, conditions...)...)
		if strings.TrimSpace(out) == "" {
			return fmt.Errorf("no row of %s with %v", table, conditions)
		}

		return nil
	})
	c.execute(t, "central", "ovn-nbctl", "--db="+c.NBAddress(), "--wait=hv", "--timeout=60", "sync")
}
