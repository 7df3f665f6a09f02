package cloud

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
)

// TestPrefixLength: the subnet of a node holds the least of its pods, 10 ports per CPU and 4 per
// GiB.
func TestPrefixLength(t *testing.T) {
	for _, tc := range []struct {
		cpu, memory, pods string
		asked             int
		ports, length     int
	}{
		{"1", "4Gi", "110", 0, 13, 28},
		{"2", "8Gi", "110", 0, 20, 27},
		{"8", "16Gi", "110", 0, 64, 25},
		{"16", "64Gi", "110", 0, 110, 25},
		{"16", "64Gi", "125", 0, 125, 25},
		{"64", "256Gi", "126", 0, 126, 24},
		{"2500m", "64Gi", "110", 0, 25, 27},
		{"1024", "8Ti", "10000", 0, 10000, 20},
		{"", "", "", 0, 13, 28},
		{"64", "256Gi", "110", 61, 61, 26},
		{"64", "256Gi", "110", 1, 13, 28},
	} {
		n := &corev1.Node{}

		for name, text := range map[corev1.ResourceName]string{
			corev1.ResourceCPU: tc.cpu, corev1.ResourceMemory: tc.memory, corev1.ResourcePods: tc.pods,
		} {
			if text != "" {
				if n.Status.Capacity == nil {
					n.Status.Capacity = corev1.ResourceList{}
				}

				n.Status.Capacity[name] = resource.MustParse(text)
			}
		}

		ports := wantedPorts(n, tc.asked)
		if length := prefixLength(ports); ports != tc.ports || length != tc.length {
			t.Errorf("%+v: %d ports, /%d", tc, ports, length)
		}
	}
}

func TestEnumerate(t *testing.T) {
	for want, list := range map[string][]string{
		"":                nil,
		"a, b":            {"a", "b"},
		"a, b and 1 more": {"a", "b", "c"},
		"a, b and 2 more": {"a", "b", "c", "d"},
	} {
		if got := enumerate(list, 2); got != want {
			t.Errorf("%q: got %q, want %q", list, got, want)
		}
	}
}

// Until kubelet has set an InternalIP, nothing is wrong with the VIF. After that, the VIF's address
// must be one.
func TestNodePool_waitsForAddresses(t *testing.T) {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node1", Annotations: map[string]string{
		annotation.Underlay: `{"mac":"fa:16:3e:00:00:aa","address":"10.0.0.11","mtu":1442}`,
	}}}

	n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: "10.0.0.11"}}
	if _, err := NodePool(Config{}, n, 0); !errors.Is(err, annotation.ErrNotSet) {
		t.Errorf("without InternalIP: %v, want ErrNotSet", err)
	}

	n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: "10.0.0.12"})

	var trouble *Problem
	if _, err := NodePool(Config{}, n, 0); !errors.As(err, &trouble) || trouble.Reason != ForeignVIF {
		t.Errorf("with another InternalIP: %v, want %s", err, ForeignVIF)
	}

	n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: "10.0.0.11"})
	if _, err := NodePool(Config{}, n, 0); err != nil {
		t.Error(err)
	}
}
