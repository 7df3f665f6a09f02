package nb_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/ovn-ebpf/ovn-ebpf/controller/nb/nbtest"
	"github.com/ovn-ebpf/ovn-ebpf/controller/reconcile"
	"github.com/ovn-ebpf/ovn-ebpf/service"
)

// TestLargestGroup has Services with 900 endpoints, of all kinds that make buckets longer. A real
// ovs-vswitchd describes its groups in each version of OpenFlow. It aborts if a group is too large.
func TestLargestGroup(t *testing.T) {
	ovn := nbtest.StartOVN(t)
	node := ovn.StartController(t, "node1")
	db := open(t, ovn.Server)

	objects := []runtime.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns"}}, gatewayNode(1)}
	for _, families := range []string{"4", "6"} {
		name := strings.Repeat("s", 1+len(objects))
		some := costed(name, families, 1, 0, nodePorts, affine, externalLocal)
		addEndpoints(some[1].(*discoveryv1.EndpointSlice), 900)
		objects = append(objects, some...)
	}

	c, err := reconcile.NewCluster(policyConfig(), objects...)
	if err != nil {
		t.Fatal(err)
	}

	commitAll(t, db, c)
	node.Flows() // waits for the groups, too

	for _, version := range []string{"OpenFlow10", "OpenFlow11", "OpenFlow13", "OpenFlow14", "OpenFlow15"} {
		buckets := 0
		for line := range strings.Lines(node.Groups(version)) {
			buckets = max(buckets, strings.Count(line, "bucket="))
		}

		if buckets != service.MaxFrontendBackends {
			t.Errorf("%s: the largest group has %d buckets, want %d", version, buckets, service.MaxFrontendBackends)
		}
	}
}

// addEndpoints adds n endpoints on node1 to the slice.
func addEndpoints(slice *discoveryv1.EndpointSlice, n int) {
	for i := range n {
		address := fmt.Sprintf("10.244.%d.%d", 100+i/250, 1+i%250)
		if slice.AddressType == discoveryv1.AddressTypeIPv6 {
			address = fmt.Sprintf("fd00:10:244:1::%x", 0x100+i)
		}

		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{address}, NodeName: new("node1")})
	}
}
