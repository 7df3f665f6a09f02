package reconcile_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/ovn-ebpf/ovn-ebpf/controller/nb/nbtest"
	"github.com/ovn-ebpf/ovn-ebpf/controller/reconcile"
)

// largePolicies is the number of policies of createLargePolicies. Together they have about 5,000 units,
// so the pace needs several seconds for them.
const largePolicies = 18

// createLargePolicies creates a namespace with a pod, and policies for this pod. Each has the same 140
// selectors, which select pods of its namespace.
func createLargePolicies(t *testing.T, client kubernetes.Interface, namespace string) {
	t.Helper()
	createNamespaceWithPod(t, client, namespace)

	for n := range largePolicies {
		createPeerPolicy(t, client, namespace, fmt.Sprint("p", n), 140)
	}
}

// createNamespaceWithPod creates a namespace and a pod in it, on a node that does not exist.
func createNamespaceWithPod(t *testing.T, client kubernetes.Interface, namespace string) {
	t.Helper()

	if _, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}

	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "pod"},
		Spec:       corev1.PodSpec{NodeName: "elsewhere", Containers: []corev1.Container{{Name: "c", Image: "none"}}},
	}
	if _, err := client.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// createPeerPolicy creates a policy for all pods of the namespace that allows pods with one of so many
// labels.
func createPeerPolicy(t *testing.T, client kubernetes.Interface, namespace, name string, peers int) {
	t.Helper()

	var from []networkingv1.NetworkPolicyPeer
	for n := range peers {
		from = append(from, networkingv1.NetworkPolicyPeer{
			PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": fmt.Sprint(n)}},
		})
	}

	createPolicy(t, client, namespace, name, from)
}

// writtenPolicies returns how many policies of a namespace have an ACL that allows traffic.
func writtenPolicies(s *nbtest.Server, namespace string) int {
	owners := map[string]bool{}

	for line := range strings.Lines(s.Nbctl("--bare", "--columns=external_ids", "find", "ACL", "action=allow-related")) {
		for field := range strings.FieldsSeq(line) {
			if strings.Contains(field, "policy/"+namespace+"/") {
				owners[field] = true
			}
		}
	}

	return len(owners)
}

// TestPolicies_takeTurns checks that a policy does not wait for the many policies of another namespace,
// that all are written, and that the controller is ready meanwhile. The alphabet must not decide.
func TestPolicies_takeTurns(t *testing.T) {
	client, s, l := startAlone(t)
	createNamespaceWithPod(t, client, "quiet")
	createLargePolicies(t, client, "busy")
	createPeerPolicy(t, client, "quiet", "p", 2)

	nbtest.Eventually(t, "the policy of quiet is written", func() bool { return writtenPolicies(s, "quiet") == 1 })

	if n := writtenPolicies(s, "busy"); n == largePolicies {
		t.Errorf("all %d policies of busy were written before that of quiet", n)
	}

	nbtest.Eventually(t, "all policies are written", func() bool {
		if err := l.Ready(); err != nil && strings.Contains(err.Error(), "owners wait") {
			t.Errorf("not ready while policies are written: %v", err)
		}

		return t.Failed() || writtenPolicies(s, "busy") == largePolicies
	})
	nbtest.Eventually(t, "no policy is held", func() bool { return held(t, l) == 0 })
}

// TestRegroup_holdsNoIdleSelectors checks that the selectors of policies without pods are not held, while
// those of other policies are, and that the port groups of the others are deleted with these policies.
func TestRegroup_holdsNoIdleSelectors(t *testing.T) {
	const idlePolicies, selectors = 3, 140

	client, s, l := startAlone(t)
	groups := func() int { return len(strings.Fields(s.Nbctl("--bare", "--columns=name", "list", "Port_Group"))) }
	before := groups() + 1 // that of the pods in the namespace without pods, which isolates them

	createLargePolicies(t, client, "busy")
	nbtest.Eventually(t, "policies are held", func() bool { return held(t, l) > 0 })

	for n := range idlePolicies { // in a namespace without pods
		createPeerPolicy(t, client, "default", fmt.Sprint("p", n), selectors)
	}

	most := 0

	nbtest.Eventually(t, "no policy is held", func() bool {
		n := held(t, l)
		most = max(most, n)

		return n == 0
	})

	// The selectors of busy, with that of its own pods, and all policies.
	if limit := selectors + 1 + largePolicies + idlePolicies; most > limit {
		t.Errorf("%d keys were held, want at most %d", most, limit)
	}

	if n := groups(); n != before+selectors+1 {
		t.Errorf("%d port groups, want %d", n, before+selectors+1)
	}

	for n := range largePolicies {
		if err := client.NetworkingV1().NetworkPolicies("busy").Delete(t.Context(), fmt.Sprint("p", n), metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}

		if n == largePolicies-2 { // the selectors are not held when the last policy is deleted
			nbtest.Eventually(t, "one policy of busy is left", func() bool { return writtenPolicies(s, "busy") == 1 && held(t, l) == 0 })
		}
	}

	nbtest.Eventually(t, "the port groups of busy are deleted", func() bool { return groups() == before })
}

// TestPod_waitsOnlyForItsNewPolicy checks that a pod which a new policy isolates waits for the port group
// of this policy, and not for the many other policies of its namespace.
func TestPod_waitsOnlyForItsNewPolicy(t *testing.T) {
	client, s, _ := startAlone(t)
	createNode(t, client, "node1")

	for n := range largePolicies {
		createPeerPolicy(t, client, "default", fmt.Sprint("p", n), 140)
	}

	isolating := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "isolating"}}
	isolating.Spec.PodSelector.MatchLabels = map[string]string{"role": "client"}

	if _, err := client.NetworkingV1().NetworkPolicies("default").Create(t.Context(), isolating, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}

	createPod(t, client, "pod", nil)
	labelPod(t, client, `"client"`)

	nbtest.Eventually(t, "the pod is in both groups that isolate it", func() bool {
		uuid := s.Nbctl("--bare", "--columns=_uuid", "find", "Logical_Switch_Port", "name=default_pod")
		return uuid != "" && strings.Contains(s.Nbctl("--bare", "--columns=external_ids", "find", "Port_Group", "ports{>=}"+uuid), "role=client")
	})

	if n := writtenPolicies(s, "default"); n == largePolicies {
		t.Errorf("all %d policies were written before the pod", n)
	}
}

// TestPolicies_lostConnection checks that policies which the pace holds are written when the connection
// to the database is lost and comes back.
func TestPolicies_lostConnection(t *testing.T) {
	client, s, l := startAlone(t)
	createLargePolicies(t, client, "many")
	nbtest.Eventually(t, "some policies are held", func() bool { return held(t, l) > 0 })
	s.Kill()
	nbtest.Eventually(t, "the connection is lost", func() bool { return l.Ready() != nil })
	s.Run()
	nbtest.Eventually(t, "the controller is ready again", func() bool { return l.Ready() == nil })

	if n := writtenPolicies(s, "many"); n != largePolicies {
		t.Errorf("%d of %d policies are written after the first full sync of the new connection", n, largePolicies)
	}

	nbtest.Eventually(t, "no policy is held", func() bool { return held(t, l) == 0 })
}

// held returns the number of policies and selectors that the pace holds, as the metric has it.
func held(t *testing.T, l *reconcile.Loop) int {
	t.Helper()
	return int(values(t, l)["ovnkube_controller_policies_to_write"])
}
