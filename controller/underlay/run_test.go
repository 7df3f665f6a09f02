package underlay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
	"github.com/ovn-ebpf/ovn-ebpf/controller/cloud"
	"github.com/ovn-ebpf/ovn-ebpf/controller/cloud/cloudtest"
	"github.com/ovn-ebpf/ovn-ebpf/controller/election"
	"github.com/ovn-ebpf/ovn-ebpf/controller/openstack"
)

// A node gets a pool of ports. Its pods make the pool grow. When the Node is deleted, nothing is
// left.
func TestRun_publishesPools(t *testing.T) {
	r := newRig(t)
	r.createNamespace()
	c := r.start(r.configure("one"))
	r.join(1)
	r.awaitPorts(1, 13)
	c.awaitReadyz(http.StatusOK, "ok")
	c.awaitMetric(`ovnkube_controller_pools{state="ok"} 1`)
	c.awaitMetric(`ovnkube_controller_pool_ports{node="node1",state="usable"} 13`)
	c.awaitMetric("ovnkube_controller_leader 1")

	record, err := parseRecord(r.configMap(1).Data)
	if err != nil || record.VIF != vif(1).ID || record.MTU != 1442 || len(record.Gateways) != 1 || len(record.Lines[0].Groups) != 1 {
		t.Errorf("record %+v, %v", record, err)
	}

	// Pods of the host's network, finished pods, and pods of other nodes use no ports.
	r.createPod("host", 1, func(p *corev1.Pod) { p.Spec.HostNetwork = true })
	r.createPod("done", 1, func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded })
	r.createPod("other", 2, func(*corev1.Pod) {})

	names := []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"}
	for _, name := range names[:11] {
		r.createPod(name, 1, func(*corev1.Pod) {})
	}

	c.awaitMetric(`ovnkube_controller_pool_pods{node="node1"} 11`)

	if got := r.ports(1); got != 13 {
		t.Errorf("%d ports for 11 pods, want 13", got)
	}

	r.createPod(names[11], 1, func(*corev1.Pod) {}) // less than a tenth of the ports is free
	r.awaitPorts(1, 26)

	if _, body := c.get("/metrics"); !strings.Contains(body, "\n"+`ovnkube_controller_pool_pods{node="node1"} 12`+"\n") {
		t.Errorf("want 12 pods that use ports:\n%s", body)
	}

	r.deleteNode(1)
	r.awaitPorts(1, -1)
	r.neutron.With(func(s *cloud.Observation) {
		if len(s.Networks)+len(s.Subnets)+len(s.Ports)+len(s.Trunks) > 0 {
			t.Errorf("left in Neutron: %+v", s)
		}
	})
	c.awaitMetric(`ovnkube_controller_pools{state="ok"} 0`)
}

// A controller that takes over writes neither to Neutron nor to the ConfigMaps of complete pools.
// It releases the pool of a Node that was deleted meanwhile, and keeps that of a Node whose
// annotation is missing.
func TestRun_takeoverWritesNothing(t *testing.T) {
	r := newRig(t)
	r.createNamespace()
	one := r.start(r.configure("one"))
	r.join(1)
	r.join(2)
	r.awaitPorts(1, 13)
	r.awaitPorts(2, 13)
	one.stop()

	before, steps := r.configMap(1).ResourceVersion, r.neutron.count()
	r.start(r.configure("two")).awaitMetric(`ovnkube_controller_pools{state="ok"} 2`)
	r.join(3)
	r.awaitPorts(3, 13)

	for _, step := range r.neutron.steps[steps:] {
		if strings.Contains(step, "node1") || strings.Contains(step, "node2") {
			t.Errorf("step of a takeover: %s", step)
		}
	}

	if after := r.configMap(1).ResourceVersion; after != before {
		t.Errorf("resourceVersion %s after a takeover, was %s", after, before)
	}
}

// A port that was deleted while no controller ran is made again with the MAC address that its node
// was told.
func TestRun_takeoverKeepsMACAddresses(t *testing.T) {
	r := newRig(t)
	r.createNamespace()
	one := r.start(r.configure("one"))
	r.join(1)
	r.awaitPorts(1, 13)
	one.stop()

	before, err := parseRecord(r.configMap(1).Data)
	if err != nil {
		t.Fatal(err)
	}

	gone := before.Lines[4].Port

	r.neutron.With(func(s *cloud.Observation) {
		s.Ports = slices.DeleteFunc(s.Ports, func(p cloud.Port) bool { return p.ID == gone })
		s.Trunks[0].Subports = slices.DeleteFunc(s.Trunks[0].Subports, func(p cloud.Subport) bool { return p.Port == gone })
	})
	r.start(r.configure("two"))
	r.eventually("the port is made again", func() string {
		after, err := parseRecord(r.configMap(1).Data)
		if err != nil || len(after.Lines) != 13 || after.Lines[4].Port == gone || after.Lines[4].Held {
			return fmt.Sprint(after.Lines, err)
		}

		if a, b := after.Lines[4], before.Lines[4]; a.MAC != b.MAC || a.Tag != b.Tag {
			t.Errorf("line %+v, was %+v", a, b)
		}

		return ""
	})
}

// The controller restores a ConfigMap that another client has changed or deleted.
func TestRun_restoresConfigMaps(t *testing.T) {
	r := newRig(t)
	r.createNamespace()
	r.start(r.configure("one"))
	r.join(1)
	r.awaitPorts(1, 13)

	maps, changed := r.client.CoreV1().ConfigMaps(annotation.PoolNamespace), r.configMap(1)

	changed.Data[annotation.PoolPorts] = ""
	if _, err := maps.Update(t.Context(), changed, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}

	r.awaitPorts(1, 13)

	if err := maps.Delete(t.Context(), changed.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}

	r.awaitPorts(1, 13)

	r.deleteNode(1)
	r.awaitPorts(1, -1)
}

// A pool whose Node the informer has not seen yet is not released.
func TestLeader_keepsPoolOfUnseenNode(t *testing.T) {
	r := newRig(t)
	log := slog.New(slog.DiscardHandler)

	objects, err := newObjects(r.client, log) // it does not run
	if err != nil {
		t.Fatal(err)
	}

	pools, err := NewPools(Options{Client: r.neutron, Workers: 1, Resync: resync, Retry: retry, Backoff: backoff, Log: log})
	if err != nil {
		t.Fatal(err)
	}

	l := &leader{
		controller: &controller{client: r.client, objects: objects, log: log},
		maps:       &configMaps{}, pools: pools, problems: newProblems(),
		published: map[string]*cloud.Record{nodeName(1): nil, nodeName(2): nil}, wanted: map[string]cloud.Pool{},
	}
	r.join(1)

	if err := l.syncNodes(t.Context()); err == nil || !strings.Contains(err.Error(), "node1: the Node exists") {
		t.Errorf("error %v, want one about node1", err)
	}

	if all := pools.Status(); len(all) != 1 || all[0].Node != nodeName(2) || !all[0].Leaving {
		t.Errorf("pools %+v, want the release of node2", all)
	}
}

// A release deletes the ConfigMap at its end, even if the ConfigMap could not be read before.
func TestPools_releaseDeletesUnreadablePool(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()

	deleted := false

	pools, err := NewPools(Options{
		Client: cloudtest.New(), Workers: 1, Resync: resync, Retry: retry, Backoff: backoff,
		Publish: func(_ context.Context, node string, r *cloud.Record) error {
			deleted = node == nodeName(1) && r == nil

			cancel()

			return nil
		},
		Report: func(string, []cloud.Problem) {}, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}

	pools.Release(cloud.Pool{Config: cloud.Config{Cluster: "k8s"}, Node: nodeName(1)}, nil, 0)

	if err := pools.Run(ctx); err != nil || !deleted {
		t.Errorf("the pool is deleted: %t, error %v", deleted, err)
	}
}

// A leader that starts releases the pools of Nodes that are gone, and keeps the pool of a Node
// whose annotation is missing.
func TestRun_releasesPoolsOfGoneNodes(t *testing.T) {
	r := newRig(t)
	r.createNamespace()
	one := r.start(r.configure("one"))
	r.join(1)
	r.join(2)
	r.awaitPorts(1, 13)
	r.awaitPorts(2, 13)
	one.stop()

	r.deleteNode(1)

	n, err := r.client.CoreV1().Nodes().Get(t.Context(), nodeName(2), metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}

	n.Annotations = nil
	if _, err := r.client.CoreV1().Nodes().Update(t.Context(), n, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}

	two := r.start(r.configure("two"))
	r.awaitPorts(1, -1)
	r.join(3)
	r.awaitPorts(3, 13)

	if got := r.ports(2); got != 13 {
		t.Errorf("%d ports of a Node without annotation, want 13", got)
	}

	two.stop()

	if len(r.neutron.Seen.Networks) != 2 {
		t.Errorf("networks %v, want those of node2 and node3", r.neutron.Seen.Networks)
	}
}

// A problem of a node is one Event about its Node, also after a restart of the controller. The
// Event of a new problem follows.
func TestRun_reportsProblems(t *testing.T) {
	r := newRig(t)
	r.createNamespace()
	one := r.start(r.configure("one"))
	r.createNode(1, "10.0.0.99")
	one.awaitReadyz(http.StatusOK, "node node1: ForeignVIF: ", "10.0.0.1 is not an InternalIP")
	r.awaitEvents("ForeignVIF", "Node node1: plan pool of node node1: VIF's address 10.0.0.1 is not an InternalIP of the node")
	one.stop()

	two := r.start(r.configure("two"))
	r.join(2)
	r.awaitPorts(2, 13)
	two.awaitReadyz(http.StatusOK, "node node1: ForeignVIF: ")
	r.neutron.With(func(s *cloud.Observation) { s.VIFs = s.VIFs[:2] }) // the VM of node3 is of another project
	r.join(3)
	r.awaitEvents("UnknownVIF", "Node node3: find VIF of node node3: the project has no port "+vif(3).ID)
	two.awaitMetric(`ovnkube_controller_pools{state="problem"} 1`)
	r.awaitEvents("ForeignVIF", "Node node1: plan pool of node node1: VIF's address 10.0.0.1 is not an InternalIP of the node")
}

// If two Nodes announce the same VIF, the Node with the pool keeps the VIF, even after a restart of
// the controller, and the other Node gets an Event. When the first Node is deleted, its pool is
// released at once, and the other Node gets a pool.
func TestRun_sharedVIF(t *testing.T) {
	r := newRig(t)
	r.createNamespace()
	cfg := r.configure("one")
	cfg.ReleaseAfter = time.Hour
	one := r.start(cfg)
	r.join(1)
	r.awaitPorts(1, 13)

	taken := vif(1)
	r.create(r.newNode(nodeName(2), taken, taken.Address.String()))
	r.awaitEvents("VIFTaken",
		"Node node2: plan pool of node node2: its VIF ("+taken.ID+") is that of node node1: delete the Node that is wrong")
	one.awaitReadyz(http.StatusOK, "node node2: VIFTaken: ")
	one.stop()

	cfg.Election.Identity, cfg.MetricsAddr = "two", freeAddress(t)
	two := r.start(cfg)
	two.awaitReadyz(http.StatusOK, "node node2: VIFTaken: ")
	two.awaitMetric(`ovnkube_controller_pools{state="ok"} 1`)
	r.deleteNode(1)
	r.awaitPorts(1, -1)
	r.awaitPorts(2, 13)
}

// The ports of a Node that is gone are deleted at once if its VM is gone, otherwise after the time
// that is set.
func TestRun_releaseAfter(t *testing.T) {
	r := newRig(t)
	r.createNamespace()
	cfg := r.configure("one")
	cfg.ReleaseAfter = time.Hour
	c := r.start(cfg)
	r.join(1)
	r.join(2)
	r.awaitPorts(1, 13)
	r.awaitPorts(2, 13)

	r.neutron.With(func(s *cloud.Observation) { s.VIFs[0].Device = "" })
	r.deleteNode(2)
	c.awaitMetric(`ovnkube_controller_pools{state="leaving"} 1`)
	r.deleteNode(1)
	r.awaitPorts(1, -1)

	if got := r.ports(2); got != 13 {
		t.Errorf("%d ports of a Node whose VM exists, want 13", got)
	}
}

// A refusal of the cloud becomes an Event with the remedy.
func TestRun_reportsRefusals(t *testing.T) {
	r := newRig(t)
	r.createNamespace()
	r.neutron.refuse = func(step cloud.Step) error {
		if _, is := step.(cloud.CreateTrunk); is {
			return &openstack.Error{Kind: openstack.Refused, Status: http.StatusForbidden, Call: "create trunk"}
		}

		return nil
	}
	c := r.start(r.configure("one"))
	r.join(1)
	r.eventually("an Event", func() string {
		got := r.events("RequestForbidden")
		if len(got) != 1 || !strings.HasSuffix(got[0], "underlay mode needs trunks") {
			return fmt.Sprint(got)
		}

		return ""
	})
	c.awaitReadyz(http.StatusOK, "node node1: RequestForbidden: ")

	if _, body := c.get("/readyz"); strings.Count(body, "create trunk:") != 1 {
		t.Errorf("readyz repeats the problem as an error:\n%s", body)
	}
}

// awaitEvents waits until exactly these Events with the reason exist.
func (r *rig) awaitEvents(reason string, want ...string) {
	r.t.Helper()
	r.eventually("Events "+reason, func() string {
		if got := strings.Join(r.events(reason), "\n"); got != strings.Join(want, "\n") {
			return "[" + got + "]"
		}

		return ""
	})
}

// Each NetworkPolicy gets one Event, also after a restart of the controller.
func TestRun_reportsPolicies(t *testing.T) {
	r := newRig(t)
	r.createNamespace()

	create := func(name string) {
		t.Helper()

		_, err := r.client.NetworkingV1().NetworkPolicies("default").Create(t.Context(),
			&networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}

	const text = ": network policies are not enforced in underlay mode"

	create("a")

	one := r.start(r.configure("one"))
	r.awaitEvents("NotServed", "NetworkPolicy a"+text)
	one.stop()

	r.start(r.configure("two"))
	create("b")
	r.awaitEvents("NotServed", "NetworkPolicy a"+text, "NetworkPolicy b"+text)
}

// Without the namespace of the pools, nothing is made in Neutron, and /readyz says what to do.
func TestRun_needsNamespace(t *testing.T) {
	r := newRig(t)
	c := r.start(r.configure("one"))
	r.join(1)
	c.awaitReadyz(http.StatusServiceUnavailable, "namespace ovn-ebpf-pools does not exist, apply the manifests of underlay mode")

	if n := r.neutron.count(); n > 0 {
		t.Errorf("%d steps in Neutron without the namespace", n)
	}

	r.createNamespace()
	r.awaitPorts(1, 13)
	c.awaitReadyz(http.StatusOK, "ok")
}

// A controller waits for a Keystone that is away. It ends if clouds.yaml cannot be used.
func TestRun_waitsForOpenStack(t *testing.T) {
	r := newRig(t)
	r.createNamespace()
	r.join(1)
	cfg := r.configure("one")
	back := make(chan struct{})
	open := cfg.Open
	cfg.Open = func() (Neutron, string, error) {
		select {
		case <-back:
			return open()
		default:
			return nil, "", &openstack.Error{Kind: openstack.Away, Call: "authenticate at http://keystone"}
		}
	}
	c := r.start(cfg)
	c.awaitReadyz(http.StatusServiceUnavailable, "OpenStack: authenticate at http://keystone: away")
	close(back)
	r.awaitPorts(1, 13)
	c.awaitReadyz(http.StatusOK, "ok")

	broken := r.configure("two")
	want := errors.New("no such cloud")

	broken.Open = func() (Neutron, string, error) { return nil, "", want }
	if err := Run(t.Context(), broken, slog.New(slog.DiscardHandler)); !errors.Is(err, want) {
		t.Errorf("Run with a broken clouds.yaml: %v, want %v", err, want)
	}
}

// A leader that loses its lease in the middle of a join executes no further step, and publishes
// nothing. The next leader completes the pool.
func TestRun_stopsWithoutLease(t *testing.T) {
	r := newRig(t)
	r.createNamespace()

	var once sync.Once

	reached := make(chan struct{})
	r.neutron.before = func(ctx context.Context, step cloud.Step) {
		if _, is := step.(cloud.AddSubports); is {
			once.Do(func() {
				close(reached)
				<-ctx.Done() // the term is over, and this request is under way
			})
		}
	}
	one := r.start(r.configure("one"))
	r.join(1)
	<-reached

	steps := r.neutron.count()
	r.giveLease("other")
	one.awaitMetric("ovnkube_controller_leader 0")

	if got, ports := r.neutron.count(), r.ports(1); got != steps || ports != -1 {
		t.Errorf("%d steps after the lease was lost, %d ports published", got-steps, ports)
	}

	one.awaitMetric(`ovnkube_controller_leadership_lost_total{reason="lease"} 1`)
	r.awaitPorts(1, 13) // when the lease of the other has expired
}

// giveLease makes another replica the holder of the lease.
func (r *rig) giveLease(identity string) {
	r.t.Helper()

	leases := r.client.CoordinationV1().Leases("kube-system")
	for {
		l, err := leases.Get(r.t.Context(), election.LeaseName, metav1.GetOptions{})
		if err != nil {
			r.t.Fatal(err)
		}

		l.Spec.HolderIdentity = &identity
		if _, err = leases.Update(r.t.Context(), l, metav1.UpdateOptions{}); err == nil {
			return // otherwise the leader has renewed it meanwhile
		}
	}
}

// Without permission, no request that changes something reaches Neutron or the API server.
func TestLeader_asksForPermission(t *testing.T) {
	r := newRig(t)
	r.createNamespace()

	refused := errors.New("not the leader")
	refuse := func(context.Context) error { return refused }

	_, err := permitted{r.neutron, refuse}.Do(t.Context(), cloud.CreateNetwork{Name: "n"})
	if !errors.Is(err, refused) || r.neutron.count() != 0 {
		t.Errorf("a step without permission: %v, %d steps", err, r.neutron.count())
	}

	maps := &configMaps{
		cluster: "k8s", client: r.client, hold: refuse, log: slog.New(slog.DiscardHandler), published: map[string]cloud.Record{},
	}
	if err := maps.publish(t.Context(), nodeName(1), &record); !errors.Is(err, refused) || r.configMap(1) != nil {
		t.Errorf("publish without permission: %v, ConfigMap %v", err, r.configMap(1))
	}

	maps.hold = func(context.Context) error { return nil }
	if err := maps.publish(t.Context(), nodeName(1), &record); err != nil {
		t.Fatal(err)
	}

	maps.hold = refuse
	if err := maps.publish(t.Context(), nodeName(1), &cloud.Record{}); !errors.Is(err, refused) {
		t.Errorf("change without permission: %v", err)
	}

	if err := maps.publish(t.Context(), nodeName(1), nil); !errors.Is(err, refused) || r.ports(1) != len(record.Lines) {
		t.Errorf("delete without permission: %v, %d ports", err, r.ports(1))
	}
}
