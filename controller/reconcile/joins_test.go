package reconcile_test

import (
	"fmt"
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/ovn-ebpf/ovn-ebpf/controller/nb/nbtest"
	"github.com/ovn-ebpf/ovn-ebpf/controller/reconcile"
	"github.com/ovn-ebpf/ovn-ebpf/test/kube/kubetest"
)

// TestRelabelledPod_joinsGroupsByAndBy checks that a pod whose new labels put it into 300 port groups
// joins them in several steps, and leaves them when it loses the labels.
func TestRelabelledPod_joinsGroupsByAndBy(t *testing.T) {
	client, s, _ := startAlone(t)
	createNode(t, client, "node1")
	createPod(t, client, "pod", nil)
	createClientPolicies(t, client)

	nbtest.Eventually(t, "the pod is in the group of the policies' pods", func() bool { return podGroups(s) == own })
	labelPod(t, client, `"client"`)

	seen := map[int]bool{}

	nbtest.Eventually(t, "the pod is in all groups", func() bool {
		n := podGroups(s)
		seen[n] = true

		return n == all
	})

	delete(seen, own)

	if len(seen) < 3 {
		t.Errorf("numbers of groups seen: %v, want some between %d and %d", seen, own, all)
	}

	labelPod(t, client, "null")
	nbtest.Eventually(t, "the pod has left the groups", func() bool { return podGroups(s) == own })
}

// TestPod_joinsGroupsAsTheyAreWritten checks that a pod joins 300 port groups although they are written
// after the pod is planned, in several batches.
func TestPod_joinsGroupsAsTheyAreWritten(t *testing.T) {
	client, s, _ := startAlone(t)
	createNode(t, client, "node1")
	createPod(t, client, "pod", nil)
	labelPod(t, client, `"client"`)
	nbtest.Eventually(t, "the pod has a port", func() bool {
		return s.Nbctl("--bare", "--columns=_uuid", "find", "Logical_Switch_Port", "name=default_pod") != ""
	})
	createClientPolicies(t, client)
	nbtest.Eventually(t, "the pod is in all groups", func() bool { return podGroups(s) == all })
}

// TestPod_isReadyBeforeForeignGroups checks that a new pod has a port while policies of other namespaces
// put it into more port groups than pods may join at once, and that it joins them.
func TestPod_isReadyBeforeForeignGroups(t *testing.T) {
	client, s, _ := startAlone(t)
	createNode(t, client, "node1")

	namespaces := []string{"many0", "many1", "many2"}
	for _, namespace := range namespaces {
		createForeignPolicy(t, client, namespace, 120)
	}

	const all = 3 * 120

	nbtest.Eventually(t, "all groups are written", func() bool {
		return len(strings.Fields(s.Nbctl("--bare", "--columns=_uuid", "list", "Port_Group"))) >= all+len(namespaces)
	})
	createPod(t, client, "pod", nil)

	seen := map[int]bool{}

	nbtest.Eventually(t, "the pod is in all groups", func() bool {
		uuid := s.Nbctl("--bare", "--columns=_uuid", "find", "Logical_Switch_Port", "name=default_pod")
		if uuid == "" {
			return false
		}

		n := podGroups(s)
		seen[n] = true

		return n == all
	})

	if len(seen) < 3 {
		t.Errorf("numbers of groups seen: %v, want some below %d", seen, all)
	}
}

// startAlone starts an API server, a database and a controller without an election, which is ready.
func startAlone(t *testing.T) (kubernetes.Interface, *nbtest.Server, *reconcile.Loop) {
	t.Helper()

	config := kubetest.Start(t).RestConfig()
	s := nbtest.Start(t)
	l := startLoop(t, config, s.Endpoint, nil)
	nbtest.Eventually(t, "the controller is ready", func() bool { return l.Ready() == nil })

	return kubernetes.NewForConfigOrDie(config), s, l
}

// createForeignPolicy creates a namespace with a pod, and a policy for this pod that allows as many
// selectors as peers. Each selects the pods of all namespaces.
func createForeignPolicy(t *testing.T, client kubernetes.Interface, namespace string, peers int) {
	t.Helper()
	createNamespaceWithPod(t, client, namespace)

	var from []networkingv1.NetworkPolicyPeer
	for n := range peers {
		from = append(from, networkingv1.NetworkPolicyPeer{
			NamespaceSelector: &metav1.LabelSelector{},
			PodSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
				{Key: fmt.Sprint(namespace, n), Operator: metav1.LabelSelectorOpDoesNotExist},
			}},
		})
	}

	createPolicy(t, client, namespace, "foreign", from)
}

// createPolicy creates a policy for all pods of the namespace that allows connections from the peers.
func createPolicy(t *testing.T, client kubernetes.Interface, namespace, name string, from []networkingv1.NetworkPolicyPeer) {
	t.Helper()

	p := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
	p.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{From: from}}

	if _, err := client.NetworkingV1().NetworkPolicies(namespace).Create(t.Context(), p, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// own is the number of port groups of all pods under createClientPolicies, and all is that of its
// clients.
const own, all = 1, 301

// createClientPolicies creates policies that allow 300 selectors, each of which selects the pods with
// the label role=client.
func createClientPolicies(t *testing.T, client kubernetes.Interface) {
	t.Helper()

	for i := range 2 { // a policy has at most 256 selectors
		var from []networkingv1.NetworkPolicyPeer
		for n := range 150 {
			from = append(from, networkingv1.NetworkPolicyPeer{PodSelector: &metav1.LabelSelector{
				MatchLabels:      map[string]string{"role": "client"},
				MatchExpressions: []metav1.LabelSelectorRequirement{{Key: fmt.Sprint("x", i, "-", n), Operator: metav1.LabelSelectorOpDoesNotExist}},
			}})
		}

		createPolicy(t, client, "default", fmt.Sprint("p", i), from)
	}
}

// podGroups returns the number of port groups of the pod "pod", 0 without a port.
func podGroups(s *nbtest.Server) int {
	uuid := s.Nbctl("--bare", "--columns=_uuid", "find", "Logical_Switch_Port", "name=default_pod")
	if uuid == "" {
		return 0
	}

	return len(strings.Fields(s.Nbctl("--bare", "--columns=_uuid", "find", "Port_Group", "ports{>=}"+uuid)))
}

// labelPod sets the label role of the pod "pod" to a JSON value; null removes it.
func labelPod(t *testing.T, client kubernetes.Interface, value string) {
	t.Helper()

	patch := fmt.Appendf(nil, `{"metadata": {"labels": {"role": %s}}}`, value)
	if _, err := client.CoreV1().Pods("default").Patch(t.Context(), "pod", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}
