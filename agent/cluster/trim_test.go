package cluster

import (
	"fmt"
	"runtime"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// decoded returns slice i as decoded from the API server: one of the EndpointSlice controller, with
// five pods and no shared values.
func decoded(b *testing.B, i int) *discoveryv1.EndpointSlice {
	b.Helper()

	name, number, yes, no := fmt.Sprintf("service-%d", i), int32(8080), true, false

	s := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: name + "-x7k2p", GenerateName: name + "-", UID: types.UID(fmt.Sprintf("%036d", i)), ResourceVersion: fmt.Sprint(i),
			Labels:          map[string]string{discoveryv1.LabelServiceName: name, discoveryv1.LabelManagedBy: "endpointslice-controller.k8s.io"},
			Annotations:     map[string]string{"endpoints.kubernetes.io/last-change-trigger-time": "2026-11-21T13:00:00Z"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Service", Name: name, UID: "00000000-0000-0000-0000-000000000000"}},
			ManagedFields:   []metav1.ManagedFieldsEntry{{Manager: "kube-controller-manager", FieldsV1: &metav1.FieldsV1{Raw: make([]byte, 600)}}},
		},
		AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Port: &number}},
	}
	for p := range 5 {
		node := fmt.Sprintf("node-%d", (i+p)%1000)
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{fmt.Sprintf("10.%d.%d.%d", 240+p, i>>8&255, i&255)}, NodeName: &node, Zone: &node,
			Conditions: discoveryv1.EndpointConditions{Ready: &yes, Serving: &yes, Terminating: &no},
			TargetRef:  &corev1.ObjectReference{Kind: "Pod", Namespace: "default", Name: name + "-5d4f8c7b9-abcde", UID: s.UID},
		})
	}

	wire, err := s.Marshal()
	if err != nil {
		b.Fatal(err)
	}

	out := new(discoveryv1.EndpointSlice)
	if err := out.Unmarshal(wire); err != nil {
		b.Fatal(err)
	}

	return out
}

// BenchmarkTrim measures the memory of 10,000 slices with 50,000 endpoints, untrimmed and trimmed.
func BenchmarkTrim(b *testing.B) {
	for _, bb := range []struct {
		name string
		keep func(any) (any, error)
	}{
		{"as they come", func(o any) (any, error) { return o, nil }},
		{"trimmed", newTrimmer("node1").trim},
	} {
		b.Run(bb.name, func(b *testing.B) {
			var weight float64

			for b.Loop() {
				before := heap()

				kept := make([]any, 10_000)
				for i := range kept {
					var err error
					if kept[i], err = bb.keep(decoded(b, i)); err != nil {
						b.Fatal(err)
					}
				}

				weight = heap() - before

				runtime.KeepAlive(kept)
			}

			b.ReportMetric(weight/(1<<20), "MiB")
		})
	}
}

func heap() float64 {
	var m runtime.MemStats

	runtime.GC()
	runtime.ReadMemStats(&m)

	return float64(m.HeapAlloc)
}
