package reconcile_test

import (
	"encoding/json"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
	"github.com/ovn-ebpf/ovn-ebpf/controller/nb/nbtest"
	"github.com/ovn-ebpf/ovn-ebpf/controller/reconcile"
	"github.com/ovn-ebpf/ovn-ebpf/test/kube/kubetest"
)

// TestLoopFirstAnnotation: the first generation's annotation is written beside ours, and
// a pod that has it alone keeps its address, with the MAC address derived from that.
func TestLoopFirstAnnotation(t *testing.T) {
	config := kubetest.Start(t).RestConfig()
	client := kubernetes.NewForConfigOrDie(config)
	startLoop(t, config, nbtest.Start(t).Endpoint, nil)
	createNode(t, client, "node1")
	createPod(t, client, "old", map[string]string{annotation.FirstPod: `{"ip_address":"10.244.0.6/29","mac_address":"02:00:00:00:00:06","gateway_ip":"10.244.0.1"}`})
	createPod(t, client, "new", nil)
	nbtest.Eventually(t, "both have both", func() bool {
		pods, err := client.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}

		for _, p := range pods.Items {
			network, err := annotation.ParsePod(p.Annotations)
			if err != nil || p.Annotations[annotation.PodNetworks] == "" || p.Annotations[annotation.FirstPod] != annotation.FormatFirstPod(network) {
				return false
			}

			if p.Name == "old" && (network.Addresses[0].String() != "10.244.0.6/29" || network.MAC.String() != "0a:58:0a:f4:00:06") {
				t.Fatalf("%s has %+v", p.Name, network)
			}
		}

		return len(pods.Items) == 2
	})
}

// TestLoopJoined: a node has no subnet before its agent has come, but that which it is given.
func TestLoopJoined(t *testing.T) {
	config := kubetest.Start(t).RestConfig()
	client := kubernetes.NewForConfigOrDie(config)
	startLoopWith(t, config, nbtest.Start(t).Endpoint, func(o *reconcile.Options) { o.WaitForAgent = true })

	annotate := func(name string, annotations map[string]string) {
		t.Helper()

		body, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": annotations}})
		if err != nil {
			t.Fatal(err)
		}

		if _, err := client.CoreV1().Nodes().Patch(t.Context(), name, types.MergePatchType, body, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	subnets := func(name string) string {
		n, err := client.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}

		return n.Annotations[annotation.NodeSubnets]
	}

	createNode(t, client, "node1")
	createNode(t, client, "node2")
	annotate("node2", map[string]string{annotation.NodeSubnets: `{"default":["10.244.0.0/29"]}`})
	nbtest.Eventually(t, "node2 is a node by what it was given", func() bool {
		n, err := client.CoreV1().Nodes().Get(t.Context(), "node2", metav1.GetOptions{})
		return err == nil && n.Annotations[annotation.NodeID] != ""
	})

	if got := subnets("node1"); got != "" {
		t.Errorf("node1 has %s before its agent", got)
	}

	annotate("node1", map[string]string{annotation.ChassisID: "c"})
	nbtest.Eventually(t, "node1 has what is left", func() bool { return subnets("node1") == `{"default":["10.244.0.8/29"]}` })
}
