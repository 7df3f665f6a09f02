package lab

import (
	"context"
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
)

// standinPools writes the pool of each VM's pods, as the controller of a cloud does.
func standinPools(ctx context.Context, client *kubernetes.Clientset, vms []*VM) error {
	if len(vms) == 0 {
		return nil
	}

	if err := standinNamespace(ctx, client, annotation.PoolNamespace); err != nil {
		return fmt.Errorf("write pools: %w", err)
	}

	for _, v := range vms {
		ports, err := annotation.FormatPoolPorts(v.Ports())
		if err != nil {
			return fmt.Errorf("write pool of %s: %w", v.Name, err)
		}

		pool := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: annotation.PoolPrefix + v.Name},
			Data: map[string]string{
				annotation.PoolNode: annotation.FormatPool(v.pool()), annotation.PoolPorts: ports,
			},
		}

		_, err = client.CoreV1().ConfigMaps(annotation.PoolNamespace).Create(ctx, pool, metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("write pool of %s: %w", v.Name, err)
		}
	}

	return nil
}

func (v *VM) pool() annotation.Pool {
	return annotation.Pool{
		Cluster: "lab", Node: v.Name, VIF: v.VIF, MTU: VMMTU,
		Trunk: cloudUUID(cloudTrunk, v.Index, 0), Network: cloudUUID(cloudNetwork, v.Index, 0),
		Gateways: map[netip.Prefix]string{v.podGateway(): routerMAC(v.Index).String()},
	}
}
