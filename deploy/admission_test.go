package deploy

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/ovn-ebpf/ovn-ebpf/agent/cluster"
	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
	"github.com/ovn-ebpf/ovn-ebpf/controller"
	"github.com/ovn-ebpf/ovn-ebpf/controller/nb/nbtest"
	"github.com/ovn-ebpf/ovn-ebpf/test/kube/kubetest"
)

// guarded is an API server with the manifests applied.
type guarded struct {
	t      *testing.T
	config *rest.Config
	admin  kubernetes.Interface
}

func newGuarded(t *testing.T) *guarded {
	g := &guarded{t: t, config: kubetest.Start(t).RestConfig()}
	g.admin = kubernetes.NewForConfigOrDie(g.config)
	apply(t, g.admin)

	for _, name := range []string{"node1", "node2"} {
		_, err := g.admin.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		g.must(err)
	}
	// An editor of the namespace, with more than Kubernetes' role edit has.
	_, err := g.admin.RbacV1().Roles("default").Create(t.Context(), &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "editor"}, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{""}, Verbs: []string{"create", "get", "update", "patch"},
		Resources: []string{"pods", "pods/status", "pods/binding", "bindings", "pods/ephemeralcontainers", "pods/resize"},
	}, {
		APIGroups: []string{discoveryv1.GroupName}, Verbs: []string{"*"}, Resources: []string{"endpointslices"},
	}, {
		// Who owns a namespace may have every right in it. The policies ask for one in the whole cluster.
		APIGroups: []string{"ovn-ebpf.io"}, Verbs: []string{"*"}, Resources: []string{"*"},
	}}}, metav1.CreateOptions{})
	g.must(err)
	_, err = g.admin.RbacV1().RoleBindings("default").Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "editor"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "editor"},
		Subjects: []rbacv1.Subject{
			{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "tenant"},
			{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: "ovn-ebpf-controller"}, // only by name like ours
		},
	}, metav1.CreateOptions{})
	g.must(err)

	return g
}

func (g *guarded) must(err error) {
	g.t.Helper()

	if err != nil {
		g.t.Fatal(err)
	}
}

func (g *guarded) as(user string) kubernetes.Interface {
	c := rest.CopyConfig(g.config)

	c.Impersonate = rest.ImpersonationConfig{UserName: user}
	if strings.HasPrefix(user, "system:serviceaccount:") {
		c.Impersonate.Groups = []string{"system:serviceaccounts", "system:authenticated"}
	}

	return kubernetes.NewForConfigOrDie(c)
}

func pod(name string, annotations map[string]string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", Annotations: annotations},
		Spec:       corev1.PodSpec{NodeName: "node1", Containers: []corev1.Container{{Name: "c", Image: "none"}}},
	}
}

// TestPolicies: with the manifests' admission policies only the controller writes pods' addresses,
// an agent changes its own Node alone, only the control plane writes EndpointSlices with its label,
// and all of them can do their work.
func TestPolicies(t *testing.T) {
	g := newGuarded(t)
	g.inForce()
	g.runController()

	if _, err := g.as("tenant").CoreV1().Pods("default").Create(t.Context(), pod("victim", nil), metav1.CreateOptions{}); err != nil {
		t.Fatalf("create a pod: %v", err)
	}

	var given string

	nbtest.Eventually(t, "the controller writes annotations of nodes and pods", func() bool {
		p, err := g.admin.CoreV1().Pods("default").Get(t.Context(), "victim", metav1.GetOptions{})
		g.must(err)

		given = p.Annotations[annotation.PodNetworks]

		return given != ""
	})

	for _, who := range []string{"tenant", "system:serviceaccount:default:ovn-ebpf-controller"} {
		g.checkTenant(who, given)
	}

	g.checkAgent()
	g.checkSlices()
}

// inForce waits until the server has taken up the policies: a second or so after their creation.
func (g *guarded) inForce() {
	g.t.Helper()
	nbtest.Eventually(g.t, "the policies are in force", func() bool {
		_, err := g.as("tenant").CoreV1().Pods("default").Create(g.t.Context(), pod("probe", map[string]string{annotation.FirstPod: "{}"}), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		_, other := kubernetes.NewForConfigOrDie(kubetest.Token(g.t, g.config, "ovn-ebpf", "ovn-ebpf-node", "node1")).CoreV1().Nodes().Patch(g.t.Context(), "node2", types.MergePatchType, []byte(`{}`), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
		_, third := g.as("tenant").DiscoveryV1().EndpointSlices("default").Create(g.t.Context(), slice("probe", controlPlane), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})

		return apierrors.IsForbidden(err) && apierrors.IsForbidden(other) && apierrors.IsForbidden(third)
	})
}

// runController runs it with its ServiceAccount's token.
func (g *guarded) runController() {
	g.t.Helper()

	l, err := net.Listen("tcp", "127.0.0.1:0")
	g.must(err)

	address := l.Addr().String()
	g.must(l.Close())
	cfg := controller.Config{
		RestConfig: kubetest.Token(g.t, g.config, "ovn-ebpf", "ovn-ebpf-controller", "node1"), NBAddress: nbtest.Start(g.t).Endpoint, MetricsAddr: address,
		LeaderElect: true, LeaseNamespace: "ovn-ebpf", Identity: "test",
		ClusterSubnets: []controller.ClusterSubnet{{Prefix: netip.MustParsePrefix("10.244.0.0/16"), HostLen: 24}},
		ServiceCIDRs:   []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")},
		JoinSubnets:    []netip.Prefix{netip.MustParsePrefix("100.64.0.0/16")},
	}
	cfg.SNATPorts.First, cfg.SNATPorts.Last = 49152, 65535
	ctx, stop := context.WithCancel(context.Background())

	done := make(chan error, 1)
	go func() { done <- controller.Run(ctx, cfg, slog.New(slog.NewTextHandler(g.t.Output(), nil))) }()

	g.t.Cleanup(func() {
		stop()

		if err := <-done; err != nil {
			g.t.Error(err)
		}
	})
}

// checkTenant tries every way to write a pod's annotations.
func (g *guarded) checkTenant(who, given string) {
	g.t.Helper()
	client, ctx := g.as(who).CoreV1().Pods("default"), g.t.Context()
	refused := func(what string, err error) {
		g.t.Helper()

		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "only ovn-ebpf's controller writes") {
			g.t.Errorf("%s: %s: %v, want it refused", who, what, err)
		}
	}
	patch := func(kind types.PatchType, body string, subresource ...string) error {
		options := metav1.PatchOptions{FieldManager: "test"}
		if force := true; kind == types.ApplyPatchType {
			options.Force = &force
		}

		_, err := client.Patch(ctx, "victim", kind, []byte(body), options, subresource...)

		return err
	}

	for _, key := range []string{annotation.PodNetworks, annotation.FirstPod} {
		for _, value := range []string{"{}", "", given + " "} {
			_, err := client.Create(ctx, pod("new", map[string]string{key: value}), metav1.CreateOptions{})
			refused(fmt.Sprintf("create with %s=%q", key, value), err)

			merge := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, key, value)
			for _, sub := range []string{"", "status"} {
				refused("patch "+sub, patch(types.MergePatchType, merge, strings.Fields(sub)...))
				refused("strategic patch "+sub, patch(types.StrategicMergePatchType, merge, strings.Fields(sub)...))
			}

			refused("apply", patch(types.ApplyPatchType, fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"victim","annotations":{%q:%q}}}`, key, value)))
		}

		binding := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: "victim", Annotations: map[string]string{key: "{}"}}, Target: corev1.ObjectReference{Kind: "Node", Name: "node1"}}
		refused("bind", client.Bind(ctx, binding, metav1.CreateOptions{}))

		for _, sub := range []string{"ephemeralcontainers", "resize"} { // these keep annotations by themselves
			_ = patch(types.StrategicMergePatchType, fmt.Sprintf(`{"metadata":{"annotations":{%q:"{}"}}}`, key), sub)
		}
	}

	refused("remove", patch(types.JSONPatchType, `[{"op":"remove","path":"/metadata/annotations"}]`))

	for what, err := range map[string]error{
		"another annotation": patch(types.MergePatchType, `{"metadata":{"annotations":{"own":"x"},"labels":{"a":"b"}}}`),
		"the same again":     patch(types.MergePatchType, fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, annotation.PodNetworks, given)),
		"status":             patch(types.MergePatchType, `{"status":{"message":"x"}}`, "status"),
	} {
		if err != nil {
			g.t.Errorf("%s: %s: %v", who, what, err)
		}
	}

	p, err := client.Get(ctx, "victim", metav1.GetOptions{})
	g.must(err)

	if _, first := p.Annotations[annotation.FirstPod]; p.Annotations[annotation.PodNetworks] != given || first {
		g.t.Errorf("%s: the pod's annotations are %v", who, p.Annotations)
	}
}

// checkAgent changes Nodes with the tokens of agents.
func (g *guarded) checkAgent() {
	g.t.Helper()
	ctx := g.t.Context()
	own := map[string]string{
		annotation.GatewayConfig: "{}", annotation.ChassisID: "c", annotation.HostCIDRs: "[]", annotation.ManagementMACs: "{}",
		annotation.SNATPortRange: "49152-65535", annotation.PodMTU: "1400", annotation.RoutablePods: "false",
	}

	config := kubetest.Token(g.t, g.config, "ovn-ebpf", "ovn-ebpf-node", "node1")
	for node, allowed := range map[string]bool{"node1": true, "node2": false} {
		agent, err := cluster.New(config, node, annotation.Trust{}, cluster.Handlers{}, slog.New(slog.DiscardHandler))
		g.must(err)

		for range 2 { // new ones, then the same
			if err := agent.Annotate(ctx, own); (err == nil) != allowed || err != nil && !apierrors.IsForbidden(err) {
				g.t.Errorf("node1's agent annotates %s: %v", node, err)
			}
		}
	}

	for what, config := range map[string]*rest.Config{"node1's agent": config, "an agent on no node": kubetest.Token(g.t, g.config, "ovn-ebpf", "ovn-ebpf-node", "")} {
		client := kubernetes.NewForConfigOrDie(config).CoreV1().Nodes()
		for _, body := range []string{
			`{"metadata":{"annotations":{"` + annotation.NodeSubnets + `":"x"}}}`, `{"metadata":{"annotations":{"` + annotation.NodeID + `":null}}}`,
			`{"metadata":{"annotations":{"` + annotation.DrainGateway + `":"true"}}}`, `{"metadata":{"annotations":{"own":"x"}}}`,
			`{"metadata":{"labels":{"a":"b"}}}`, `{"metadata":{"finalizers":["a/b"]}}`, `{"spec":{"unschedulable":true}}`,
			`{"spec":{"taints":[{"key":"a","effect":"NoExecute"}]}}`, `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"node2","uid":"x"}]}}`,
		} {
			if _, err := client.Patch(ctx, "node1", types.MergePatchType, []byte(body), metav1.PatchOptions{}); !apierrors.IsForbidden(err) {
				g.t.Errorf("%s patches %s: %v, want it refused", what, body, err)
			}
		}

		_, err := client.Patch(ctx, "node1", types.MergePatchType, []byte(`{"status":{"phase":"x"}}`), metav1.PatchOptions{}, "status")
		if !apierrors.IsForbidden(err) {
			g.t.Errorf("%s patches the status: %v", what, err)
		}
	}

	nodes, err := g.admin.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	g.must(err)

	for _, n := range nodes.Items {
		if slices.ContainsFunc([]string{annotation.ChassisID, annotation.PodMTU}, func(key string) bool { _, has := n.Annotations[key]; return has != (n.Name == "node1") }) {
			g.t.Errorf("%s has %v", n.Name, n.Annotations)
		}
	}
}
