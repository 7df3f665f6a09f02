package cloud_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
	"github.com/ovn-ebpf/ovn-ebpf/controller/cloud"
	"github.com/ovn-ebpf/ovn-ebpf/controller/election"
	"github.com/ovn-ebpf/ovn-ebpf/controller/underlay"
	testcloud "github.com/ovn-ebpf/ovn-ebpf/test/cloud"
	"github.com/ovn-ebpf/ovn-ebpf/test/kube/kubetest"
	"github.com/ovn-ebpf/ovn-ebpf/test/lab/process"
	"github.com/ovn-ebpf/ovn-ebpf/test/randomtest"
)

// The ports of a Node that is gone stay for release-after while its VM exists. A Node that comes
// back keeps them, and the ports of a Node without a VM are deleted at once.
func TestRelease(t *testing.T) {
	const after = 30 * time.Second

	p := newProject(t)
	p.config.SubnetPool6 = ""
	k := newKube(p)
	h := k.watch()
	c := k.controllerWith("one", func(c *underlay.Config) {
		atProxy(c)
		c.ReleaseAfter = after
	})

	back, late, deleted := k.node(28), k.node(28), k.node(28)
	for _, n := range []*corev1.Node{back, late, deleted} {
		k.join(n)
	}

	for _, n := range []*corev1.Node{back, late, deleted} {
		h.await(t, n, 13)
	}

	version := k.version(back)

	// The VM exists: only a look at Neutron follows, and the Node comes back in time.
	lab.Proxy.Set(nil)
	k.removeNode(back)
	c.await("/metrics", "\n"+`ovnkube_controller_pools{state="leaving"} 1`)
	k.join(back)
	c.await("/metrics", "\n"+`ovnkube_controller_pools{state="ok"} 3`)

	k.update(lab.Admin, "ports/"+k.vifID(deleted), testcloud.Object{"port": testcloud.Object{"device_id": "", "device_owner": ""}})

	gone := time.Now()

	k.removeNode(late)
	k.removeNode(deleted)
	h.await(t, deleted, -1)

	if took := time.Since(gone); took > after {
		t.Errorf("the pool of a Node without a VM was there for %s", took)
	}

	if i := h.first(late, func(ports int) bool { return ports < 0 }); i >= 0 {
		t.Error("the pool of a Node with a VM was deleted before its time")
	}

	h.await(t, late, -1)

	if took := time.Since(gone); took < after {
		t.Errorf("the pool of a Node with a VM was deleted after %s, want at least %s", took, after)
	}

	if now := k.version(back); now != version {
		t.Errorf("resourceVersion %s of a Node that came back, was %s", now, version)
	}

	for _, r := range lab.Proxy.Set(nil) {
		if strings.Contains(r.Path, k.name(back)) {
			t.Errorf("%s %s for a Node that came back", r.Method, r.Path)
		}
	}

	k.removeNode(back)
	h.await(t, back, -1)
	c.stop()
	k.checkNothingLeft()
}

// awaitPorts waits until so many ports of the Node are published, none of them held; -1: no
// ConfigMap.
func (k *kube) awaitPorts(n *corev1.Node, want int) {
	k.t.Helper()

	maps, got := k.client.CoreV1().ConfigMaps(annotation.PoolNamespace), -1
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		got = -1

		if m, err := maps.Get(k.ctx, annotation.PoolPrefix+n.Name, metav1.GetOptions{}); err == nil {
			text := m.Data[annotation.PoolPorts]
			got = strings.Count(text, "\n") - strings.Count(text, " held\n")
		}

		if got == want {
			return
		}
	}

	k.t.Fatalf("%s has %d ports, want %d within two minutes", n.Name, got, want)
}

func (k *kube) removeNode(n *corev1.Node) {
	k.t.Helper()

	if err := k.client.CoreV1().Nodes().Delete(k.ctx, n.Name, metav1.DeleteOptions{}); err != nil {
		k.t.Fatal(err)
	}
}

// Ports that another program deletes, retags or readdresses, or whose trunk it deletes, are held
// until the controller has repaired them, and an Event names them. A new leader looks at once.
func TestRepaired(t *testing.T) {
	p := newProject(t)
	p.config.SubnetPool6 = ""
	k := newKube(p)
	one := k.controllerWith("one", quick)
	n := k.node(28)
	k.join(n)
	k.awaitPorts(n, 13)
	one.stop()

	pool := p.pool(n, 0)
	before := pool.Record(p.observe(pool, nil))
	deleted, retagged, readdressed := before.Lines[0], before.Lines[1], before.Lines[2]
	must := func(err error) {
		t.Helper()

		if err != nil {
			t.Fatal(err)
		}
	}
	must(p.client.RemoveSubports(t.Context(), before.Trunk, []string{deleted.Port, retagged.Port}))
	must(p.client.DeletePort(t.Context(), deleted.Port))
	must(p.client.AddSubports(t.Context(), before.Trunk, []cloud.Subport{{Port: retagged.Port, Tag: 999}}))
	p.update(lab.Tenant, "ports/"+readdressed.Port, testcloud.Object{"port": testcloud.Object{
		"fixed_ips": []testcloud.Object{{"ip_address": deleted.Addresses[0].String()}},
	}})

	two := k.controllerWith("two", quick)
	addresses := fmt.Sprintf("%s, %s, %s", deleted.Addresses[0], retagged.Addresses[0], readdressed.Addresses[0])
	t.Log(k.awaitEvent(n, cloud.PortsRepaired, addresses))
	two.await("/metrics", "\n"+`ovnkube_controller_pools{state="ok"} 1`)
	k.checkRepaired(pool, before)
	two.stop()

	k.deleteTrunk(n)
	three := k.controllerWith("three", quick)
	t.Log(k.awaitEvent(n, cloud.PortsRepaired, "and 8 more"))
	three.await("/metrics", "\n"+`ovnkube_controller_pools{state="ok"} 1`)
	k.checkRepaired(pool, before)
	k.removeNode(n)
	k.awaitPorts(n, -1)
	three.stop()
	k.checkNothingLeft()
}

// checkRepaired compares the ports of a pool with those before, without their UUIDs.
func (k *kube) checkRepaired(pool cloud.Pool, before cloud.Record) {
	k.t.Helper()

	after := pool.Record(k.observe(pool, before.Lines))
	for i, l := range after.Lines {
		was := before.Lines[i]
		if l.Held || l.Tag != was.Tag || l.MAC != was.MAC || !slices.Equal(l.Addresses, was.Addresses) ||
			!slices.Equal(l.Groups, was.Groups) {
			k.t.Errorf("line %+v, was %+v", l, was)
		}
	}
}

// While the API server is away, a controller that cannot publish does not ask Neutron again and
// again, and stops when it has lost its lease. Afterwards the pool is completed.
func TestAPIServerAway(t *testing.T) {
	p := newProject(t)
	p.config.SubnetPool6 = ""
	k := newKube(p)
	h := k.watch()

	var link kubetest.Link

	c := k.controllerWith("one", func(c *underlay.Config) {
		atProxy(c)
		c.RestConfig = link.Config(k.config)
		c.RequestRate = 8
		c.Election.Lease = election.DefaultDuration
	})
	c.await("/readyz", "ok")

	n := k.node(26)

	lab.Proxy.Set(nil)
	k.join(n)
	h.await(t, n, 8)
	link.Cut()
	lab.Proxy.Set(nil)
	c.await("/metrics", "\n"+`ovnkube_controller_leader 0`)

	before := lab.Proxy.Set(nil)

	reads := slices.DeleteFunc(slices.Clone(before), func(r testcloud.Request) bool { return r.Method != http.MethodGet })
	if len(reads) > 1 { // the one of an interface that was added
		t.Errorf("%d requests to Neutron only read while the API server was away: %v", len(reads), reads)
	}

	link.Mend()
	h.await(t, n, 61)
	t.Logf("%d requests until the lease was lost, %d afterwards", len(before), len(lab.Proxy.Set(nil)))
	k.deleteNode(h, n)
	c.stop()
	k.checkNothingLeft()
}

// A controller that is killed at any moment of a join or a release leaves what its successor
// completes. Afterwards Neutron has the objects of the plan, and no others.
func TestKilled(t *testing.T) {
	const kills = 20

	bin := os.Getenv("BIN_DIR")
	if bin == "" {
		t.Fatal("BIN_DIR is not set: the directory of the built programs")
	}

	p := newProject(t)
	p.config.SubnetPool6 = ""
	k := newKube(p)
	dir := t.TempDir()

	kubeconfig := filepath.Join(dir, "kubeconfig")
	if err := k.server.Kubeconfig(kubeconfig); err != nil {
		t.Fatal(err)
	}

	argv := []string{
		filepath.Join(bin, "ovnkube"), "controller", "--mode=underlay", "--kubeconfig=" + kubeconfig,
		"--cloud=k8s", "--clouds-file=" + lab.CloudsFile, "--cluster-name=" + p.config.Cluster,
		"--router-id=" + p.config.Router, "--subnet-pool=" + p.config.SubnetPool,
		"--security-groups=" + strings.Join(p.config.Groups, ","), "--request-rate=100",
		"--identity=killed", "--lease-namespace=kube-system", "--release-after=1", "--metrics-bind-address=" + freeAddress(t),
	}
	start := func() *process.Process {
		t.Helper()

		controller, err := process.Start(process.Spec{Argv: argv, Log: filepath.Join(dir, "log"), Tethered: true})
		if err != nil {
			t.Fatal(err)
		}

		return controller
	}

	t.Cleanup(func() {
		if text, err := os.ReadFile(filepath.Join(dir, "log")); err == nil && t.Failed() {
			t.Logf("log of the controllers:\n%s", text)
		}
	})

	random := rand.New(rand.NewPCG(randomtest.Seed(t), 0))
	n := k.node(28)
	exists := false

	for i := range kills {
		if i%5 == 0 { // five kills per join and per release
			if exists {
				k.removeNode(n)
			} else {
				k.join(n)
			}

			exists = !exists
		}

		controller := start()

		time.Sleep(time.Duration(random.IntN(3000)) * time.Millisecond) // the random point

		if !controller.Alive() {
			t.Fatal("the controller has ended by itself")
		}

		if err := controller.Stop(0); err != nil {
			t.Fatal(err)
		}
	}

	controller := start()

	if !exists {
		k.join(n)
	}

	k.awaitPorts(n, 13)

	all := []string{}

	pool := p.pool(n, 0)
	for _, l := range pool.Record(p.observe(pool, nil)).Lines {
		all = append(all, fmt.Sprintf("ports %s-%s", k.name(n), l.Addresses[0]))
	}

	all = append(all, "networks "+k.name(n), "subnets "+k.name(n)+"-0", "trunks "+k.name(n))
	slices.Sort(all)

	if got := p.named(p.config.Cluster + "-"); !slices.Equal(got, all) || len(all) != 16 {
		t.Errorf("Neutron has %v, want %v", got, all)
	}

	if plan := pool.Plan(p.observe(pool, nil)); len(plan.Steps)+len(plan.Problems) > 0 {
		t.Errorf("the plan has steps %v and problems %v", plan.Steps, plan.Problems)
	}

	k.removeNode(n)
	k.awaitPorts(n, -1)

	if err := controller.Stop(5 * time.Second); err != nil {
		t.Error(err)
	}

	k.checkNothingLeft()
}
