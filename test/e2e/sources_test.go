package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
)

// testSources: loadBalancerSourceRanges restrict the clients of announced addresses: outside hosts,
// pods and hosts alike. Node port and cluster IP are open to all.
func testSources(t *testing.T, c *Cluster) {
	all := []string{"ext", host("a"), host("b"), host("c"), "node1"}
	for _, step := range []struct {
		name    string
		ranges  []netip.Prefix
		answers []string
	}{
		{"outside and a pod", c.prefixes(outside, c.pod("b")), []string{"ext", host("b")}},
		{"a node and the pods of another", append(c.prefixes(c.node(1)), c.podSubnets(t, "node2")...), []string{"node1", host("c")}},
		{"no client of the lab", []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24"), netip.MustParsePrefix("2001:db8:ffff::/48")}, nil},
		{"no range", nil, all},
	} {
		c.setSources(t, "vip", step.ranges)
		within(t, step.name, func() error {
			var group sync.WaitGroup // concurrent, as unanswered requests take long

			var (
				mu   sync.Mutex
				errs []error
			)

			ask := func(from, protocol string, to netip.AddrPort, want bool) {
				group.Go(func() {
					err := c.isAnswered(t, from, protocol, to, want)

					mu.Lock()
					defer mu.Unlock()

					errs = append(errs, err)
				})
			}
			for _, v6 := range []bool{false, true} {
				for _, protocol := range []string{"tcp", "udp"} {
					for _, from := range all {
						ask(from, protocol, port(vip(v6), servicePort), slices.Contains(step.answers, from))
					}

					ask("ext", protocol, port(c.gateway(1)(v6), vipNodePort), true)
					ask(host("a"), protocol, port(c.cluster("vip")(v6), servicePort), true)
				}
			}

			group.Wait()

			return errors.Join(errs...)
		})
	}
}

// isAnswered makes one request. Unauthorised clients get no reply at all, except host sockets,
// which are refused at once.
func (c *Cluster) isAnswered(t *testing.T, from, protocol string, to netip.AddrPort, want bool) error {
	out, err := c.Exec(t.Context(), from, c.traffic(protocol, "-n", "1", "-timeout", "2s", to.String())...)
	if want && err == nil {
		return nil
	}

	got := strings.TrimSpace(string(out))
	if err != nil {
		switch got = err.Error(); {
		case strings.Contains(got, "refused"):
			got = "refused"
		case isUnanswered(err) == nil:
			got = "nothing"
		}

		expected := "nothing"
		if strings.HasPrefix(from, "node") {
			expected = "refused"
		}

		if !want && got == expected {
			return nil
		}
	}

	return fmt.Errorf("%s from %s to %s: %s (an answer wanted: %t)", protocol, from, to, got, want)
}

func (c *Cluster) prefixes(of ...func(bool) netip.Addr) []netip.Prefix {
	var out []netip.Prefix

	for _, f := range of {
		for _, v6 := range []bool{false, true} {
			out = append(out, netip.PrefixFrom(f(v6), f(v6).BitLen()))
		}
	}

	return out
}

// podSubnets returns the pod subnets of a node.
func (c *Cluster) podSubnets(t *testing.T, node string) []netip.Prefix {
	t.Helper()

	subnets, err := annotation.ParseNodeSubnets(nodeAnnotations(t, c.Lab, node))
	if err != nil {
		t.Fatal(err)
	}

	return subnets
}

func (c *Cluster) setSources(t *testing.T, service string, ranges []netip.Prefix) {
	t.Helper()

	client, err := c.Kubernetes()
	if err != nil {
		t.Fatal(err)
	}

	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"loadBalancerSourceRanges": ranges}})
	if err != nil {
		t.Fatal(err)
	}

	if _, err := client.CoreV1().Services("default").Patch(t.Context(), service, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}
