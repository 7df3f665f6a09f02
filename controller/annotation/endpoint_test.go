package annotation_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/ovn-ebpf/ovn-ebpf/controller/annotation"
)

func TestTargetPort(t *testing.T) {
	slice := &discoveryv1.EndpointSlice{Ports: []discoveryv1.EndpointPort{
		{Name: to("dns"), Protocol: to(corev1.ProtocolUDP), Port: to(int32(53))},
		{Name: to("dns"), Port: to(int32(5353))},
		{Name: to("bad"), Port: to(int32(65536))},
		{Name: to("all")},
	}}
	for _, tt := range []struct {
		name  string
		proto corev1.Protocol
		want  uint16
	}{{"dns", corev1.ProtocolUDP, 53}, {"dns", "", 5353}, {"dns", corev1.ProtocolSCTP, 0}, {"bad", "", 0}, {"all", "", 0}, {"", "", 0}} {
		got, ok := annotation.TargetPort(slice, corev1.ServicePort{Name: tt.name, Protocol: tt.proto})
		if got != tt.want || ok != (tt.want != 0) {
			t.Errorf("port %q %s: %d, %t, want %d", tt.name, tt.proto, got, ok, tt.want)
		}
	}
}

func to[T any](v T) *T { return &v }
