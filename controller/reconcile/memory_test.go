package reconcile

import (
	"fmt"
	"runtime"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
)

// TestStoreMemory: what the store keeps of a pod is a fraction of the pod.
func TestStoreMemory(t *testing.T) {
	const pods, most = 10_000, 5_000

	pod := slices.IndexFunc(plan.Resources(), func(r plan.Resource) bool { return r.Kind == plan.KindPod })
	size := func(keep func(any) (any, error)) uint64 {
		var before, after runtime.MemStats

		runtime.GC()
		runtime.ReadMemStats(&before)

		store := cache.NewIndexer(cache.MetaNamespaceKeyFunc, indexers(plan.Resources()[pod]))

		for i := range pods {
			// As from the wire: nothing is shared between two pods.
			var p corev1.Pod

			text, err := ordinaryPod(i).Marshal()
			if err != nil {
				t.Fatal(err)
			}

			if err := p.Unmarshal(text); err != nil {
				t.Fatal(err)
			}

			kept, err := keep(&p)
			if err != nil {
				t.Fatal(err)
			}

			if err := store.Add(kept); err != nil {
				t.Fatal(err)
			}
		}

		runtime.GC()
		runtime.ReadMemStats(&after)
		runtime.KeepAlive(store)

		return (after.HeapAlloc - before.HeapAlloc) / pods
	}
	whole, stripped := size(func(obj any) (any, error) { return obj, nil }), size(strip)
	t.Logf("%d bytes a pod in the store of %d; whole it would be %d", stripped, pods, whole)

	if stripped > most {
		t.Errorf("%d bytes a pod, want at most %d", stripped, most)
	}
}

// ordinaryPod is a Deployment's, as kubelet leaves it.
func ordinaryPod(i int) *corev1.Pod {
	controlled, name := true, fmt.Sprintf("web-7d9c5b8f6d-%05d", i)

	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: fmt.Sprint("team-", i%50), Name: name, UID: types.UID(fmt.Sprintf("0e7f6a54-1c1b-4a3e-9d35-%012d", i)),
			ResourceVersion: fmt.Sprint(1_000_000 + i), GenerateName: "web-7d9c5b8f6d-",
			Labels: map[string]string{"app": "web", "pod-template-hash": "7d9c5b8f6d", "app.kubernetes.io/instance": fmt.Sprint("web-", i%50)},
			Annotations: map[string]string{
				"k8s.ovn.org/pod-networks": fmt.Sprintf(`{"default":{"ip_addresses":["10.128.%d.%d/24"],"mac_address":"0a:58:0a:80:%02x:%02x","gateway_ips":["10.128.%d.1"],"role":"primary"}}`, i/250, i%250, i/250, i%250, i/250),
				"prometheus.io/scrape":     "true", "kubectl.kubernetes.io/restartedAt": "2026-11-21T12:00:00Z",
			},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web-7d9c5b8f6d", UID: "c0ffee00-0000-4000-8000-000000000000", Controller: &controlled}},
			ManagedFields:   []metav1.ManagedFieldsEntry{{Manager: "kubelet", Operation: "Update", APIVersion: "v1", FieldsType: "FieldsV1", FieldsV1: &metav1.FieldsV1{Raw: make([]byte, 1500)}}},
		},
		Spec: corev1.PodSpec{
			NodeName: fmt.Sprint("node-", i%100), ServiceAccountName: "default", DNSPolicy: "ClusterFirst", SchedulerName: "default-scheduler",
			Tolerations: []corev1.Toleration{{Key: "node.kubernetes.io/not-ready", Operator: "Exists", Effect: "NoExecute"}, {Key: "node.kubernetes.io/unreachable", Operator: "Exists", Effect: "NoExecute"}},
			Volumes:     []corev1.Volume{{Name: "kube-api-access-x2b4k"}},
		},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, HostIP: "172.30.0.11", PodIP: fmt.Sprintf("10.128.%d.%d", i/250, i%250),
			PodIPs: []corev1.PodIP{{IP: fmt.Sprintf("10.128.%d.%d", i/250, i%250)}}, QOSClass: "Burstable",
		},
	}
	for j := range 2 {
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{
			Name: fmt.Sprint("c", j), Image: "registry.example.com/team/web:v1.2.3",
			Env:   []corev1.EnvVar{{Name: "A", Value: "some value"}, {Name: "B", Value: "another value"}},
			Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080, Protocol: corev1.ProtocolTCP}},
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
				corev1.ResourceCPU: quantity.MustParse("100m"), corev1.ResourceMemory: quantity.MustParse("128Mi"),
			}},
		})
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{
			Name: fmt.Sprint("c", j), Ready: true, ImageID: "registry.example.com/team/web@sha256:0123456789abcdef0123456789abcdef", ContainerID: "containerd://0123456789abcdef0123456789abcdef",
		})
	}

	for _, c := range []corev1.PodConditionType{"PodScheduled", "Initialized", "ContainersReady", "Ready"} {
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: c, Status: "True"})
	}

	return p
}
