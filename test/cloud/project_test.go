package cloud_test

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
	"github.com/ovn-ebpf/ovn-ebpf/controller/cloud"
	"github.com/ovn-ebpf/ovn-ebpf/controller/openstack"
	testcloud "github.com/ovn-ebpf/ovn-ebpf/test/cloud"
)

// project is a cluster's part of the tenant's project: router, subnet pools, group, VMs.
type project struct {
	t      *testing.T
	ctx    context.Context
	client *openstack.Client
	config cloud.Config
	vms    string // network of the VMs

	mu    sync.Mutex
	calls map[string]int
}

var clusters int

// newProject makes what all of a cluster's pools need. The test's end removes it, and fails if a
// pool is left.
func newProject(t *testing.T) *project {
	t.Helper()
	needCloud(t)
	p := &project{t: t, ctx: t.Context(), calls: map[string]int{}}
	p.client = p.open(openstack.Options{Done: func(call string, _ openstack.Kind, _ time.Duration) {
		p.mu.Lock()
		defer p.mu.Unlock()

		p.calls[call]++
	}})
	clusters++
	p.config = cloud.Config{
		Cluster: fmt.Sprintf("c%d", clusters), Project: p.client.Project(),
		Router: p.make("router", testcloud.Object{"name": "k8s"}),
		SubnetPool: p.make("subnetpool", testcloud.Object{
			"name": "pods", "prefixes": []string{"10.244.0.0/16"}, "default_prefixlen": 26, "min_prefixlen": 20, "max_prefixlen": 29,
		}),
		SubnetPool6: p.make("subnetpool", testcloud.Object{
			"name": "pods6", "prefixes": []string{"fd00:10:244::/48"}, "default_prefixlen": 64,
		}),
		Groups: []string{p.make("security_group", testcloud.Object{"name": "pods"})},
	}
	p.vms = p.make("network", testcloud.Object{"name": "vms"})
	p.make("subnet", testcloud.Object{"network_id": p.vms, "ip_version": 4, "cidr": "10.0.0.0/24", "enable_dhcp": false})

	return p
}

// open returns a client with the application credential.
func (p *project) open(o openstack.Options) *openstack.Client {
	p.t.Helper()

	o.Cloud, o.File = "k8s", lab.CloudsFile
	o.Rate, o.Workers, o.Timeout = 1000, 2, time.Minute

	c, err := openstack.Open(p.ctx, o)
	if err != nil {
		p.t.Fatal(err)
	}

	if c.Project() != lab.Project {
		p.t.Fatalf("project %s, want %s", c.Project(), lab.Project)
	}

	return c
}

// make makes an object of the tenant's, which the test's end deletes.
func (p *project) make(kind string, o testcloud.Object) string {
	p.t.Helper()

	path := "/v2.0/" + strings.ReplaceAll(kind, "_", "-") + "s"

	made, err := lab.Tenant.Do(p.ctx, "POST", path, testcloud.Object{kind: o})
	if err != nil {
		p.t.Fatal(err)
	}

	id := made[kind].(testcloud.Object)["id"].(string)

	p.t.Cleanup(func() {
		_, err := lab.Tenant.Do(context.Background(), "DELETE", path+"/"+id, nil)
		if err != nil && !strings.Contains(err.Error(), "status 404") { // the test may have deleted it
			p.t.Error(err)
		}
	})

	return id
}

// update changes an object as its user or, with binding and quotas, the operator does.
func (p *project) update(api *testcloud.API, path string, body testcloud.Object) {
	p.t.Helper()

	if _, err := api.Do(p.ctx, "PUT", "/v2.0/"+path, body); err != nil {
		p.t.Fatal(err)
	}
}

// portQuota limits the project's ports; -1 is no limit, which the test's end restores.
func (p *project) portQuota(ports int) {
	p.t.Helper()

	set := func(ctx context.Context, ports int) {
		body := testcloud.Object{"quota": testcloud.Object{"port": ports}}
		if _, err := lab.Admin.Do(ctx, "PUT", "/v2.0/quotas/"+lab.Project, body); err != nil {
			p.t.Error(err)
		}
	}
	set(p.ctx, ports)
	p.t.Cleanup(func() { set(context.Background(), -1) })
}

// vm makes a VM's port and returns the Node "node1" that the VM's agent and kubelet would make.
func (p *project) vm(address string) *corev1.Node {
	p.t.Helper()

	const name = "node1"

	id := p.make("port", testcloud.Object{
		"network_id": p.vms, "name": name, "fixed_ips": []testcloud.Object{{"ip_address": address}},
		"device_id": serverID(address), "device_owner": "compute:nova",
	})

	found, err := p.client.Ports(p.ctx, openstack.PortFilter{ID: id})
	if err != nil || len(found) != 1 {
		p.t.Fatalf("ports %v, %v", found, err)
	}

	mac, err := net.ParseMAC(found[0].MAC)
	if err != nil {
		p.t.Fatal(err)
	}

	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{
			annotation.Underlay: annotation.FormatUnderlay(annotation.VIF{
				ID: id, MAC: mac, Address: netip.MustParseAddr(address), MTU: 1442,
			}),
			annotation.UnderlayPrefixLength: "28",
		}},
		Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}}},
	}
}

// serverID returns the ID of the VM with the address, as Nova would give it one.
func serverID(address string) string {
	a := netip.MustParseAddr(address).As4()
	return fmt.Sprintf("cccccccc-0000-4000-8000-0000%02x%02x%02x%02x", a[0], a[1], a[2], a[3])
}

// pool returns what the node asks for.
func (p *project) pool(n *corev1.Node, pods int) cloud.Pool {
	p.t.Helper()

	pool, err := cloud.NodePool(p.config, n, pods)
	if err != nil {
		p.t.Fatal(err)
	}

	return pool
}

// observe returns what there is of the pool.
func (p *project) observe(pool cloud.Pool, published []cloud.Line) cloud.Observation {
	p.t.Helper()

	s, err := p.client.Observe(p.ctx, pool.Name(), &openstack.PortFilter{ID: pool.VIF.ID})
	if err != nil {
		p.t.Fatal(err)
	}

	s.Published = published

	return s
}

// settle executes the plan to its end, with one look at Neutron at its begin. It returns what the
// node is told, and the problems left.
func (p *project) settle(pool cloud.Pool, published []cloud.Line) (cloud.Record, []cloud.Problem) {
	p.t.Helper()

	s := p.observe(pool, published)
	for range 1000 {
		plan := pool.Plan(s)
		if len(plan.Steps) == 0 {
			return pool.Record(s), plan.Problems
		}

		r, err := p.client.Do(p.ctx, plan.Steps[0])
		if err != nil {
			p.t.Fatal(err)
		}

		s = s.After(plan.Steps[0], r)
	}

	p.t.Fatal("the plan has no end")

	return cloud.Record{}, nil
}

// release removes a node's pool and checks by the operator's listing that nothing is left.
func (p *project) release(pool cloud.Pool) {
	p.t.Helper()

	s, err := p.client.Observe(p.ctx, pool.Name(), nil)
	if err != nil {
		p.t.Fatal(err)
	}

	plan := cloud.Release(p.config, pool.Node, s)
	for _, step := range plan.Steps {
		if _, err := p.client.Do(p.ctx, step); err != nil {
			p.t.Fatal(err)
		}
	}

	if len(plan.Problems) > 0 {
		p.t.Errorf("problems of the release: %v", plan.Problems)
	}

	if left := p.named(pool.Name()); len(left) > 0 {
		p.t.Errorf("left: %v", left)
	}
}

// named returns the objects of the cloud with a name that begins so.
func (p *project) named(prefix string) []string {
	p.t.Helper()

	var out []string

	for _, kind := range []string{"networks", "subnets", "ports", "trunks"} {
		list, err := lab.Admin.Do(p.ctx, "GET", "/v2.0/"+kind, nil)
		if err != nil {
			p.t.Fatal(err)
		}

		for _, o := range list[kind].([]any) {
			if name, _ := o.(testcloud.Object)["name"].(string); strings.HasPrefix(name, prefix) {
				out = append(out, kind+" "+name)
			}
		}
	}

	slices.Sort(out)

	return out
}

// same compares what the node is told with what Neutron has, by a new look at it.
func (p *project) same(pool cloud.Pool, r cloud.Record) {
	p.t.Helper()

	s := p.observe(pool, nil)
	if plan := pool.Plan(s); len(plan.Steps) > 0 {
		p.t.Errorf("steps of a settled pool: %v", plan.Steps)
	}

	fresh := pool.Record(s)
	if want, got := fmt.Sprint(fresh), fmt.Sprint(r); want != got {
		p.t.Errorf("record %s, Neutron has %s", got, want)
	}

	if want := len(fresh.Lines); want != len(r.Lines) || want == 0 {
		p.t.Errorf("%d lines, want %d", len(r.Lines), want)
	}
}
