package reconcile_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/ovn-ebpf/ovn-ebpf/controller/nb/nbtest"
	"github.com/ovn-ebpf/ovn-ebpf/test/kube/kubetest"
)

// TestLargeServiceDelaysNobody checks that a Service with many ports is written step by step, that a
// pod gets its port meanwhile, and that the controller stays ready.
func TestLargeServiceDelaysNobody(t *testing.T) {
	config := kubetest.Start(t).RestConfig()
	client := kubernetes.NewForConfigOrDie(config)
	s := nbtest.Start(t)
	loop := startLoop(t, config, s.Endpoint, nil)
	createNode(t, client, "node1")
	createPod(t, client, "first", nil)

	port := func(pod string) bool {
		return s.Nbctl("--bare", "--columns=name", "find", "logical_switch_port", "name=default_"+pod) != ""
	}

	nbtest.Eventually(t, "it is ready", func() bool { return port("first") && loop.Ready() == nil })

	const ports = 600 // 2,400 units: the namespace may change 1,024 at once and 512 more each second

	svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "large", Namespace: "default"}}
	for i := range int32(ports) {
		svc.Spec.Ports = append(svc.Spec.Ports, corev1.ServicePort{Name: fmt.Sprint("p", i), Port: 1 + i})
	}

	svc, err := client.CoreV1().Services("default").Create(t.Context(), svc, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}

	nbtest.Eventually(t, "the Service is begun", func() bool { return vipsOf(s, "large") > 0 })
	createPod(t, client, "meanwhile", nil)
	nbtest.Eventually(t, "a pod gets its port", func() bool { return port("meanwhile") })

	if got, want := vipsOf(s, "large"), ports*len(svc.Spec.ClusterIPs); got >= want {
		t.Errorf("the Service has all of its %d VIPs before the pod has a port", got)
	}

	nbtest.Eventually(t, "the Service has all VIPs", func() bool {
		if err := loop.Ready(); err != nil {
			t.Errorf("not ready meanwhile: %v", err)
		}

		return vipsOf(s, "large") == ports*len(svc.Spec.ClusterIPs)
	})
}

// vipsOf returns the number of a Service's VIPs in the database.
func vipsOf(s *nbtest.Server, service string) int {
	n := 0

	for name, vips := range s.VIPs() {
		if strings.HasPrefix(name, "Service_default/"+service+"_") {
			n += len(vips)
		}
	}

	return n
}
