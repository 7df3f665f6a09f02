package underlay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
	"github.com/ovn-ebpf/ovn-ebpf/controller/cloud"
)

// formatRecord returns the data of the ConfigMap with the pool of a node.
func formatRecord(cluster, node string, r cloud.Record) (map[string]string, error) {
	pool := annotation.Pool{
		Cluster: cluster, Node: node, VIF: r.VIF, Trunk: r.Trunk, Network: r.Network, MTU: r.MTU,
		Gateways: map[netip.Prefix]string{}, Groups: append([]string{}, r.Groups...),
	}
	for _, g := range r.Gateways {
		pool.Gateways[g.Address] = g.MAC
	}

	var ports []annotation.PoolPort

	for _, l := range r.Lines {
		mac, err := net.ParseMAC(l.MAC)
		if err != nil {
			return nil, fmt.Errorf("format port %s: %w", l.Port, err)
		}

		ports = append(ports, annotation.PoolPort{
			ID: l.Port, Tag: l.Tag, MAC: mac, Addresses: l.Addresses, Groups: l.Groups, Held: l.Held,
		})
	}

	lines, err := annotation.FormatPoolPorts(ports)
	if err != nil {
		return nil, err
	}

	data := map[string]string{annotation.PoolNode: annotation.FormatPool(pool), annotation.PoolPorts: lines}
	if _, err := annotation.ParsePool(data[annotation.PoolNode]); err != nil {
		return nil, fmt.Errorf("format pool: %w", err)
	}

	return data, nil
}

// parseRecord returns what formatRecord formatted.
func parseRecord(data map[string]string) (cloud.Record, error) {
	pool, err := annotation.ParsePool(data[annotation.PoolNode])
	if err != nil {
		return cloud.Record{}, err
	}

	ports, err := annotation.ParsePoolPorts(data[annotation.PoolPorts])
	if err != nil {
		return cloud.Record{}, err
	}

	r := cloud.Record{
		VIF: pool.VIF, Trunk: pool.Trunk, Network: pool.Network, MTU: pool.MTU, Groups: pool.Groups,
	}
	for _, g := range slices.SortedFunc(maps.Keys(pool.Gateways), netip.Prefix.Compare) {
		r.Gateways = append(r.Gateways, cloud.Gateway{Address: g, MAC: pool.Gateways[g]})
	}

	for _, p := range ports {
		r.Lines = append(r.Lines, cloud.Line{
			Port:      p.ID,
			MAC:       p.MAC.String(),
			Tag:       p.Tag,
			Addresses: p.Addresses,
			Groups:    p.Groups,
			Held:      p.Held,
		})
	}

	return r, nil
}

// configMaps reads and writes the ConfigMaps with the pools of nodes. Its methods may be called
// concurrently.
type configMaps struct {
	cluster string // its name in Neutron
	client  kubernetes.Interface
	hold    func(context.Context) error // returns an error if this replica must not write
	log     *slog.Logger

	// Two locks guard published. A change needs both, and reading needs one. writes is held during
	// requests to the API server, and mu is not, so that vif need not wait for the API server.
	writes    sync.Mutex
	mu        sync.Mutex
	published map[string]cloud.Record // by node
}

// noNamespaceError explains a missing namespace.
func noNamespaceError(cause error) error {
	return fmt.Errorf("namespace %s does not exist, apply the manifests of underlay mode: %w",
		annotation.PoolNamespace, cause)
}

// read returns what was published, by node. The record of a ConfigMap that cannot be used is nil.
func (c *configMaps) read(ctx context.Context) (map[string]*cloud.Record, error) {
	_, err := c.client.CoreV1().Namespaces().Get(ctx, annotation.PoolNamespace, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, noNamespaceError(err)
	}

	if err != nil {
		return nil, fmt.Errorf("find namespace of pools: %w", err)
	}

	list, err := c.client.CoreV1().ConfigMaps(annotation.PoolNamespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("read pools of nodes: %w", err)
	}

	c.writes.Lock()
	defer c.writes.Unlock()

	c.mu.Lock()
	defer c.mu.Unlock()

	out := map[string]*cloud.Record{}
	c.published = map[string]cloud.Record{}

	for _, m := range list.Items {
		node, isPool := poolNode(&m)
		if !isPool {
			continue
		}

		out[node] = nil
		if r, err := parseRecord(m.Data); err == nil {
			out[node], c.published[node] = &r, r
		} else {
			c.log.Warn("the published pool of a node is not valid, it is written anew",
				"node", node, "error", err)
		}
	}

	return out, nil
}

// vif returns the ID of the VIF with which the pool of a node was published, or "".
func (c *configMaps) vif(node string) string {
	c.mu.Lock()
	defer c.mu.Unlock()

	return c.published[node].VIF
}

// poolNode returns the node of a ConfigMap with a pool.
func poolNode(m *corev1.ConfigMap) (string, bool) {
	node, hasName := strings.CutPrefix(m.Name, annotation.PoolPrefix)
	_, hasData := m.Data[annotation.PoolNode]

	return node, hasName && hasData
}

// publish writes the record into the ConfigMap of the node, or deletes the ConfigMap if r is nil.
func (c *configMaps) publish(ctx context.Context, node string, r *cloud.Record) error {
	c.writes.Lock()
	defer c.writes.Unlock()

	var err error
	if r == nil {
		err = c.delete(ctx, node)
	} else {
		err = c.write(ctx, node, r)
	}

	if err != nil {
		return err
	}

	c.mu.Lock()
	defer c.mu.Unlock()

	if r == nil {
		delete(c.published, node)
	} else {
		c.published[node] = *r
	}

	return nil
}

// restore writes the ConfigMaps again that another client has changed or deleted. have are the
// ConfigMaps of the informer. If the informer is behind, write reads the ConfigMap itself and finds
// that it is right.
func (c *configMaps) restore(ctx context.Context, have []*corev1.ConfigMap) error {
	c.writes.Lock()
	defer c.writes.Unlock()

	intact := map[string]bool{}

	for _, m := range have {
		if node, isPool := poolNode(m); isPool {
			r, err := parseRecord(m.Data)
			intact[node] = err == nil && r.Equal(c.published[node])
		}
	}

	var errs []error

	for _, node := range slices.Sorted(maps.Keys(c.published)) {
		if r := c.published[node]; !intact[node] {
			errs = append(errs, c.write(ctx, node, &r))
		}
	}

	return errors.Join(errs...)
}

// write makes the ConfigMap of the node have the record. The caller holds writes.
func (c *configMaps) write(ctx context.Context, node string, r *cloud.Record) error {
	client := c.client.CoreV1().ConfigMaps(annotation.PoolNamespace)
	name := annotation.PoolPrefix + node

	old, err := client.Get(ctx, name, metav1.GetOptions{})

	absent := apierrors.IsNotFound(err)
	if err != nil && !absent {
		return fmt.Errorf("read ConfigMap %s: %w", name, err)
	}

	if !absent {
		published, err := parseRecord(old.Data)
		if err == nil && published.Equal(*r) {
			return nil
		}
	}

	data, err := formatRecord(c.cluster, node, *r)
	if err != nil {
		return err
	}

	if err := c.hold(ctx); err != nil {
		return err
	}

	if absent {
		m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: data}
		_, err = client.Create(ctx, m, metav1.CreateOptions{})
	} else {
		old.Data, old.BinaryData = data, nil
		// Update fails if the ConfigMap has changed since it was read.
		_, err = client.Update(ctx, old, metav1.UpdateOptions{})
	}

	switch {
	case absent && apierrors.IsNotFound(err):
		return noNamespaceError(err)
	case err != nil:
		return fmt.Errorf("write ConfigMap %s: %w", name, err)
	}

	return nil
}

// delete deletes the ConfigMap of the node. The caller holds writes.
func (c *configMaps) delete(ctx context.Context, node string) error {
	if err := c.hold(ctx); err != nil {
		return err
	}

	name := annotation.PoolPrefix + node

	err := c.client.CoreV1().ConfigMaps(annotation.PoolNamespace).Delete(ctx, name, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete ConfigMap %s: %w", name, err)
	}

	return nil
}
