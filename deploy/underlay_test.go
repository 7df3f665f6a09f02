package deploy

import (
	"context"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/ovn-ebpf/ovn-ebpf/agent/cluster"
	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
	"github.com/ovn-ebpf/ovn-ebpf/controller/cloud"
	"github.com/ovn-ebpf/ovn-ebpf/controller/cloud/cloudtest"
	"github.com/ovn-ebpf/ovn-ebpf/controller/election"
	"github.com/ovn-ebpf/ovn-ebpf/controller/nb/nbtest"
	"github.com/ovn-ebpf/ovn-ebpf/controller/underlay"
	"github.com/ovn-ebpf/ovn-ebpf/test/kube/kubetest"
)

// underlayManifests returns the objects of deploy/underlay.
func underlayManifests(t *testing.T) map[string]any {
	t.Helper()

	files, err := filepath.Glob("underlay/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("files %v, %v", files, err)
	}

	all := map[string]any{}

	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}

		maps.Copy(all, decode(t, path, text))
	}

	return all
}

// newUnderlay returns an API server with the manifests of underlay mode, and two Nodes.
func newUnderlay(t *testing.T) *guarded {
	g := &guarded{t: t, config: kubetest.Start(t).RestConfig()}
	g.admin = kubernetes.NewForConfigOrDie(g.config)
	objects := underlayManifests(t)
	namespaces := func(key string) int { // these come first
		if strings.HasPrefix(key, "Namespace") {
			return 0
		}

		return 1
	}

	keys := slices.SortedFunc(maps.Keys(objects), func(a, b string) int { return namespaces(a) - namespaces(b) })
	for _, key := range keys {
		if err := create(t.Context(), g.admin, objects[key], metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict}); err != nil {
			t.Fatalf("%s: %v", key, err)
		}
	}

	for n := byte(1); n <= 2; n++ {
		node, err := g.admin.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: vmName(n)}}, metav1.CreateOptions{})
		g.must(err)

		node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: vif(n).Address.String()}}
		_, err = g.admin.CoreV1().Nodes().UpdateStatus(t.Context(), node, metav1.UpdateOptions{})
		g.must(err)
	}

	return g
}

func vmName(n byte) string { return "vm" + string('0'+n) }

// vif returns what the agent of the n-th VM announces.
func vif(n byte) annotation.VIF {
	return annotation.VIF{
		ID: cloudtest.UUID("v", int(n)), MAC: net.HardwareAddr{0xfa, 0x16, 0x3e, 1, 0, n},
		Address: netip.AddrFrom4([4]byte{10, 0, 0, n}), MTU: 1442,
	}
}

// token returns a client with the token of an account on the n-th VM.
func (g *guarded) token(account string, n byte) kubernetes.Interface {
	g.t.Helper()
	return kubernetes.NewForConfigOrDie(kubetest.Token(g.t, g.config, "ovn-ebpf", account, vmName(n)))
}

// With the manifests of underlay mode, the controller and the agents can do their work. An agent
// cannot write a pool, nor another agent's Node.
func TestUnderlay(t *testing.T) {
	g := newUnderlay(t)
	agent := g.token("ovn-ebpf-node", 1)

	nbtest.Eventually(t, "the policy is in force", func() bool {
		_, err := agent.CoreV1().Nodes().Patch(t.Context(), vmName(2), types.MergePatchType, []byte(`{}`), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
		return apierrors.IsForbidden(err)
	})
	g.runUnderlayController()
	g.announce()

	pools := g.admin.CoreV1().ConfigMaps(annotation.PoolNamespace)

	nbtest.Eventually(t, "the controller publishes the pool of vm1", func() bool {
		m, err := pools.Get(t.Context(), annotation.PoolPrefix+vmName(1), metav1.GetOptions{})
		return err == nil && strings.Count(m.Data[annotation.PoolPorts], "\n") == 13
	})
	g.checkPools(agent)
	g.checkController(pools.Get)
}

// announce writes the annotation of vm1 as its agent does, and tries to write that of vm2.
func (g *guarded) announce() {
	g.t.Helper()

	config := kubetest.Token(g.t, g.config, "ovn-ebpf", "ovn-ebpf-node", vmName(1))
	for n, allowed := range map[byte]bool{1: true, 2: false} {
		agent, err := cluster.NewUnderlay(config, vmName(n), cluster.Handlers{}, slog.New(slog.DiscardHandler))
		g.must(err)

		err = agent.Annotate(g.t.Context(), map[string]string{annotation.Underlay: annotation.FormatUnderlay(vif(n))})
		if (err == nil) != allowed || err != nil && !apierrors.IsForbidden(err) {
			g.t.Errorf("the agent of vm1 annotates %s: %v", vmName(n), err)
		}

		if err := agent.Warn(g.t.Context(), "Test", "text"); err != nil {
			g.t.Errorf("the agent of vm1 writes an Event: %v", err)
		}
	}

	nodes := kubernetes.NewForConfigOrDie(config).CoreV1().Nodes()

	body := []byte(`{"metadata":{"annotations":{"` + annotation.UnderlayPrefixLength + `":"20"}}}`)
	if _, err := nodes.Patch(g.t.Context(), vmName(1), types.MergePatchType, body, metav1.PatchOptions{}); !apierrors.IsForbidden(err) {
		g.t.Errorf("an agent sets the size of its pool: %v, want it refused", err)
	}
}

// checkPools reads and writes pools as an agent.
func (g *guarded) checkPools(agent kubernetes.Interface) {
	g.t.Helper()
	ctx, pools := g.t.Context(), agent.CoreV1().ConfigMaps(annotation.PoolNamespace)
	own, err := pools.Get(ctx, annotation.PoolPrefix+vmName(1), metav1.GetOptions{})
	g.must(err)

	if _, err := pools.List(ctx, metav1.ListOptions{}); err != nil {
		g.t.Errorf("an agent lists pools: %v", err)
	}

	watch, err := pools.Watch(ctx, metav1.ListOptions{})
	if err != nil {
		g.t.Errorf("an agent watches pools: %v", err)
	} else {
		watch.Stop()
	}

	_, errUpdate := pools.Update(ctx, own, metav1.UpdateOptions{})
	_, errPatch := pools.Patch(ctx, own.Name, types.MergePatchType, []byte(`{"data":{"ports":""}}`), metav1.PatchOptions{})
	_, errCreate := pools.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: annotation.PoolPrefix + vmName(2)}}, metav1.CreateOptions{})
	_, errOther := agent.CoreV1().ConfigMaps("ovn-ebpf").List(ctx, metav1.ListOptions{})

	_, errSecret := agent.CoreV1().Secrets("ovn-ebpf").List(ctx, metav1.ListOptions{})
	for what, err := range map[string]error{
		"updates its pool": errUpdate, "patches its pool": errPatch, "creates a pool": errCreate,
		"deletes its pool":                        pools.Delete(ctx, own.Name, metav1.DeleteOptions{}),
		"lists ConfigMaps of the other namespace": errOther, "lists Secrets": errSecret,
	} {
		if !apierrors.IsForbidden(err) {
			g.t.Errorf("an agent %s: %v, want it refused", what, err)
		}
	}
}

// checkController makes the controller write Events, and delete a ConfigMap.
func (g *guarded) checkController(get func(context.Context, string, metav1.GetOptions) (*corev1.ConfigMap, error)) {
	g.t.Helper()
	ctx := g.t.Context()
	_, err := g.admin.NetworkingV1().NetworkPolicies("default").Create(ctx,
		&networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}}, metav1.CreateOptions{})
	g.must(err)
	nbtest.Eventually(g.t, "an Event about the policy", func() bool {
		list, err := g.admin.CoreV1().Events("default").List(ctx, metav1.ListOptions{FieldSelector: "reason=NotServed"})
		return err == nil && len(list.Items) == 1
	})
	g.must(g.admin.CoreV1().Nodes().Delete(ctx, vmName(1), metav1.DeleteOptions{}))
	nbtest.Eventually(g.t, "the pool of vm1 is released", func() bool {
		_, err := get(ctx, annotation.PoolPrefix+vmName(1), metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
}

// runUnderlayController runs the controller with its ServiceAccount's token, and a stand-in of
// Neutron.
func (g *guarded) runUnderlayController() {
	g.t.Helper()

	neutron := cloudtest.New(cloud.Port{
		ID: vif(1).ID, Project: "project", MAC: vif(1).MAC.String(), Device: "server1",
		FixedIPs: []cloud.FixedIP{{Subnet: "vms", Address: vif(1).Address}},
	})
	neutron.ID = cloudtest.UUID
	cfg := underlay.Config{
		RestConfig: kubetest.Token(g.t, g.config, "ovn-ebpf", "ovn-ebpf-controller", vmName(1)),
		Cloud:      "k8s", Cluster: "k8s", Router: cloudtest.UUID("r", 1), SubnetPool: cloudtest.UUID("o", 1), Groups: []string{cloudtest.UUID("g", 1)},
		RequestRate: 1000, Workers: 2, Election: election.Config{Identity: "test", Namespace: "ovn-ebpf", Lease: 15 * time.Second},
		Open: func() (underlay.Neutron, string, error) { return neutron, "project", nil },
	}
	ctx, stop := context.WithCancel(context.Background())

	done := make(chan error, 1)
	go func() { done <- underlay.Run(ctx, cfg, slog.New(slog.NewTextHandler(g.t.Output(), nil))) }()

	g.t.Cleanup(func() {
		stop()

		if err := <-done; err != nil {
			g.t.Error(err)
		}
	})
}

// The admission policy of the plain manifests is that of the chart.
func TestUnderlay_hasThePolicyOfTheChart(t *testing.T) {
	chart, have := complete(t, "-api-versions="+policies, member), underlayManifests(t)
	n := 0

	for key := range have {
		if strings.HasPrefix(key, "ValidatingAdmissionPolicy") {
			n++

			if diff := cmp.Diff(chart[key], have[key]); diff != "" {
				t.Errorf("%s (-chart +underlay):\n%s", key, diff)
			}
		}
	}

	if n != 2 {
		t.Errorf("%d objects of admission policies, want a policy and its binding", n)
	}
}
