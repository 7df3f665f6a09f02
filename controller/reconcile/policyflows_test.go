package reconcile_test

import (
	"fmt"
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"

	"github.com/ovn-ebpf/ovn-ebpf/controller/nb/nbtest"
	"github.com/ovn-ebpf/ovn-ebpf/test/kube/kubetest"
)

// TestClosedPolicyOpensWhenAnotherGoes checks that a policy that does not fit in the flows of its
// namespace has an Event and no ACL, and gets its ACL when another policy is deleted.
func TestClosedPolicyOpensWhenAnotherGoes(t *testing.T) {
	config := kubetest.Start(t).RestConfig()
	client := kubernetes.NewForConfigOrDie(config)
	s := nbtest.Start(t)
	startLoop(t, config, s.Endpoint, nil)

	policies := client.NetworkingV1().NetworkPolicies("default")

	createPod(t, client, "pod", nil) // policies without pods allow nothing

	for i := range 5 { // four of 4,096 flows fit
		p := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("p", i)}}
		p.Spec.Ingress = make([]networkingv1.NetworkPolicyIngressRule, 1)

		for port := range 1024 {
			number := intstr.FromInt32(int32(1 + port))
			p.Spec.Ingress[0].Ports = append(p.Spec.Ingress[0].Ports, networkingv1.NetworkPolicyPort{Port: &number})
		}

		if _, err := policies.Create(t.Context(), p, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}

	allows := func(name string) bool {
		return s.Nbctl("--bare", "--columns=_uuid", "find", "ACL", "action=allow-related", "external_ids:ovn-ebpf.io/owner=policy/default/"+name) != ""
	}

	var closed, open []string
	// Until the controller has seen all five, another one may be closed than in the end.
	nbtest.Eventually(t, "four policies allow something, and an Event is about the other one", func() bool {
		closed, open = nil, nil

		for i := range 5 {
			if name := fmt.Sprint("p", i); allows(name) {
				open = append(open, name)
			} else {
				closed = append(closed, name)
			}
		}

		if len(open) != 4 {
			return false
		}

		events, err := client.CoreV1().Events("default").List(t.Context(), metav1.ListOptions{FieldSelector: "reason=NotServed,involvedObject.name=" + closed[0]})

		return err == nil && len(events.Items) > 0 &&
			strings.Contains(events.Items[0].Message, "with the 4096 flows of its rules the policies of the namespace, oldest first, would cost more than 16384")
	})

	if err := policies.Delete(t.Context(), open[0], metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}

	nbtest.Eventually(t, "it allows something", func() bool { return allows(closed[0]) })
}
