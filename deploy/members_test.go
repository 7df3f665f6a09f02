package deploy

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/ovn-ebpf/ovn-ebpf/test/kube/kubetest"
)

// helmProgram builds Helm's command once, with the flags of test/kubelets, so that both share what
// is compiled.
var helmProgram = sync.OnceValues(func() (string, error) {
	render, err := program()
	if err != nil {
		return "", err
	}

	path := filepath.Join(filepath.Dir(render), "helm")
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", path, "helm.sh/helm/v3/cmd/helm")
	cmd.Dir = "../test/render"

	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build helm: %w: %s", err, out)
	}

	return path, nil
})

// administrator installs the chart by Helm's command in a cluster of an API server alone: no pod
// runs.
type administrator struct {
	t      *testing.T
	client kubernetes.Interface
	env    []string
	helm   string
}

func newAdministrator(t *testing.T) *administrator {
	t.Helper()

	helm, err := helmProgram()
	if err != nil {
		t.Fatal(err)
	}

	server, home := kubetest.Start(t), t.TempDir()

	config := filepath.Join(home, "kubeconfig")
	if err := server.Kubeconfig(config); err != nil {
		t.Fatal(err)
	}

	client, err := kubernetes.NewForConfig(server.RestConfig())
	if err != nil {
		t.Fatal(err)
	}

	return &administrator{t: t, client: client, helm: helm, env: []string{"HOME=" + home, "KUBECONFIG=" + config}}
}

// run runs Helm for the release and returns its error.
func (a *administrator) run(line string) error {
	args := append(strings.Fields(line), "-n", "ovn-ebpf")
	cmd := exec.CommandContext(a.t.Context(), a.helm, args...)

	cmd.Env = a.env
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("helm %s: %w: %s", line, err, out)
	}

	return nil
}

// node creates a node with two InternalIPs, in the control plane if control is set.
func (a *administrator) node(name, address string, control bool) {
	a.t.Helper()

	labels := map[string]string{}
	if control {
		labels["node-role.kubernetes.io/control-plane"] = ""
	}

	_, err := a.client.CoreV1().Nodes().Create(a.t.Context(), &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{
			{Type: corev1.NodeHostName, Address: name}, {Type: corev1.NodeInternalIP, Address: address}, {Type: corev1.NodeInternalIP, Address: "2001:db8::1"},
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		a.t.Fatal(err)
	}
}

// kubeProxy creates kube-proxy's DaemonSet.
func (a *administrator) kubeProxy() {
	a.t.Helper()

	labels := map[string]string{"k8s-app": "kube-proxy"}

	_, err := a.client.AppsV1().DaemonSets("kube-system").Create(a.t.Context(), &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: "kube-proxy"},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "kube-proxy", Image: "kube-proxy"}}},
			},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		a.t.Fatal(err)
	}
}

// members returns the members in the release's ConfigMap, which is what the databases' containers
// read.
func (a *administrator) members() string {
	a.t.Helper()

	config, err := a.client.CoreV1().ConfigMaps("ovn-ebpf").Get(a.t.Context(), "ovn-ebpf", metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return ""
	}

	if err != nil {
		a.t.Fatal(err)
	}

	return config.Data["OVN_MEMBERS"]
}

// TestMembersStay: Helm chooses nodes of the control plane for OVN's databases, and keeps them in
// later releases whatever the cluster's nodes are then. It refuses what would start empty databases
// or leave their cluster without a majority.
func TestMembersStay(t *testing.T) {
	const (
		install = "install ovn-ebpf helm/ovn-ebpf --create-namespace"
		upgrade = "upgrade ovn-ebpf helm/ovn-ebpf --reset-then-reuse-values"
	)

	a := newAdministrator(t)
	refused := func(line, want string) {
		t.Helper()

		before := a.members()
		if err := a.run(line); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("helm %s: %v, want %q", line, err, want)
		}

		if got := a.members(); got != before {
			t.Errorf("helm %s was refused, and the members are %q, before %q", line, got, before)
		}
	}
	accepted := func(line, want string) {
		t.Helper()

		if err := a.run(line); err != nil {
			t.Fatal(err)
		}

		if got := a.members(); got != want {
			t.Errorf("helm %s: members %q, want %q", line, got, want)
		}
	}

	a.node("worker", "192.0.2.9", false)
	refused(install, "the cluster has no kube-proxy (no DaemonSet kube-system/kube-proxy)")
	a.kubeProxy()
	refused(install, "ovn.replicas is 1, and Helm finds 0 nodes with the label node-role.kubernetes.io/control-plane")

	refused(install+" --set config.CLUSTER_SUBNETS=192.0.0.0/16/24", "config.CLUSTER_SUBNETS 192.0.0.0/16 overlaps node worker 192.0.2.9/32")

	accepted(install+" --set ovn.host=true,ovs.host=true", "")
	refused("upgrade ovn-ebpf helm/ovn-ebpf --reset-values --set ovn.members.worker=192.0.2.9", "the installed release uses OVN's databases and Open vSwitch of others")
	accepted("uninstall ovn-ebpf", "")

	a.node("b", "192.0.2.2", true)
	accepted(install, "b=192.0.2.2")
	a.node("a", "192.0.2.1", true)

	patch := []byte(`{"metadata":{"labels":{"node-role.kubernetes.io/control-plane":null}}}`)
	if _, err := a.client.CoreV1().Nodes().Patch(t.Context(), "b", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}

	accepted(upgrade+" --set config.MTU=1400", "b=192.0.2.2")

	const empty = "ovn.members has none of the nodes of OVN's databases, b=192.0.2.2: they would start empty"
	refused(upgrade+" --set ovn.members.a=192.0.2.1", empty)
	refused(upgrade+" --set ovn.replicas=3", "ovn.replicas is 3, and Helm finds 2 nodes")

	a.node("c", "192.0.2.3", true)
	accepted(upgrade+" --set ovn.replicas=3", "a=192.0.2.1,b=192.0.2.2,c=192.0.2.3")
	refused(upgrade+" --set ovn.replicas=1", "ovn.replicas is 1, and there are 3 members")
	refused(upgrade+" --set ovn.members.d=192.0.2.4,ovn.members.e=192.0.2.5,ovn.members.f=192.0.2.6", "they would start empty")
	refused(upgrade+" --set ovn.members.a=192.0.2.1,ovn.members.d=192.0.2.4,ovn.members.e=192.0.2.5", "ovn.members has 1 of the nodes of OVN's databases, a=192.0.2.1,b=192.0.2.2,c=192.0.2.3: new members join a majority only")
	accepted(upgrade+" --set ovn.members.a=192.0.2.1,ovn.members.c=192.0.2.3,ovn.members.d=192.0.2.4", "a=192.0.2.1,c=192.0.2.3,d=192.0.2.4")
	accepted("rollback ovn-ebpf", "a=192.0.2.1,b=192.0.2.2,c=192.0.2.3")
}
