package lab

import (
	"context"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
)

const ghostLabel = "ovn-ebpf.io/standin-ghost"

// AddGhosts creates Node objects with all annotations of an agent, but without machines, so that
// OVN creates their gateway routers in the same broadcast domain. Their addresses are 172.30.1.x.
func (l *Lab) AddGhosts(ctx context.Context, n int) error {
	client, err := l.Kubernetes()
	if err != nil {
		return fmt.Errorf("add ghost nodes: %w", err)
	}

	for i := range n {
		name := "ghost" + strconv.Itoa(i)
		address := netip.PrefixFrom(netip.AddrFrom4([4]byte{172, 30, 1, byte(i + 1)}), 16)

		_, err := client.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: map[string]string{ghostLabel: ""},
			Annotations: map[string]string{
				annotation.ChassisID: name,
				annotation.HostCIDRs: annotation.FormatHostCIDRs([]netip.Prefix{address}),
				annotation.GatewayConfig: annotation.FormatGateway(annotation.Gateway{
					Mode: "shared", InterfaceID: "breth0_" + name, MAC: fmt.Sprintf("0a:00:00:00:01:%02x", i),
					Addresses: []netip.Prefix{address}, NextHops: []netip.Addr{netip.MustParseAddr(ExtIP4)},
				}),
			},
		}}, metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("add ghost node %s: %w", name, err)
		}
	}

	return nil
}

// DelGhosts deletes the objects of AddGhosts.
func (l *Lab) DelGhosts(ctx context.Context) error {
	client, err := l.Kubernetes()
	if err == nil {
		err = client.CoreV1().Nodes().DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: ghostLabel})
	}

	if err != nil {
		return fmt.Errorf("delete ghost nodes: %w", err)
	}

	return nil
}

// GatewayRouters returns the number of OVN's gateway routers.
func (l *Lab) GatewayRouters(ctx context.Context) (int, error) {
	out, err := l.Exec(ctx, "central", "ovn-nbctl", "--bare", "--columns=name", "list", "Logical_Router")
	if err != nil {
		return 0, fmt.Errorf("list gateway routers: %w", err)
	}

	return strings.Count(string(out), "GR_"), nil
}
