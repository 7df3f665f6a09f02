package service

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

func to[T any](v T) *T { return &v }

func TestTargets_byNameAndProtocol(t *testing.T) {
	slice := &discoveryv1.EndpointSlice{Ports: []discoveryv1.EndpointPort{
		{Name: to("dns"), Protocol: to(corev1.ProtocolUDP), Port: to(int32(53))},
		{Name: to("dns"), Port: to(int32(5353))},
		{Name: to("bad"), Port: to(int32(65536))},
		{Name: to("all")},
		{Name: to("zero"), Port: to(int32(0))},
		{Name: to("first"), Port: to(int32(1))},
		{Name: to("last"), Port: to(int32(65535))},
	}}
	for _, tt := range []struct {
		name  string
		proto corev1.Protocol
		want  uint16
	}{{"dns", "UDP", 53}, {"dns", "TCP", 5353}, {"dns", "SCTP", 0}, {"bad", "TCP", 0}, {"all", "TCP", 0}, {"", "TCP", 0}, {"zero", "TCP", 0}, {"first", "TCP", 1}, {"last", "TCP", 65535}} {
		got, ok := newTargets(nil).port(slice, Port{Name: tt.name, Protocol: tt.proto})
		if got != tt.want || ok != (tt.want != 0) {
			t.Errorf("port %q %s: %d, %t, want %d", tt.name, tt.proto, got, ok, tt.want)
		}
	}
}

// A slice with many ports is read once, one with few is searched: both find the same port.
func TestTargets_ofManyPorts(t *testing.T) {
	for _, n := range []int{1, fewPorts - 2, fewPorts - 1, fewPorts, fewPorts + 1, 1000} {
		slice := &discoveryv1.EndpointSlice{}
		for i := range n {
			slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{Name: to(fmt.Sprint(i)), Port: to(int32(8000 + i))})
		}

		slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{Name: to("0"), Port: to(int32(7))}, discoveryv1.EndpointPort{Name: to("0")})
		if _, read := newTargets([]*discoveryv1.EndpointSlice{{}, slice})[slice]; read != (len(slice.Ports) > fewPorts) {
			t.Errorf("a slice with %d ports is read: %t", len(slice.Ports), read)
		}

		for i := range n + 1 {
			port := Port{Name: fmt.Sprint(i), Protocol: corev1.ProtocolTCP}

			want, wantOK := targets{}.port(slice, port)
			if got, ok := newTargets([]*discoveryv1.EndpointSlice{slice}).port(slice, port); got != want || ok != wantOK {
				t.Errorf("of %d ports %s: %d, %t, want %d, %t", n, port.Name, got, ok, want, wantOK)
			}
		}
	}
}
