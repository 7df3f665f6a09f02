package service_test

import (
	"fmt"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/ovn-ebpf/ovn-ebpf/service"
)

func addrPorts(texts ...string) (out []netip.AddrPort) {
	for _, s := range texts {
		out = append(out, netip.MustParseAddrPort(s))
	}

	return out
}

// TestControlPlane_keepsItsPairs: exactly the pairs of address and TCP port are kept, and the kept
// ports at each of the addresses.
func TestControlPlane_keepsItsPairs(t *testing.T) {
	services := prefixes("10.96.0.0/16")
	c := service.NewControlPlane(service.APIServer, addrPorts("192.0.2.5:443", "10.96.0.1:443", "[::ffff:192.0.2.6]:8443"), services).
		With(service.NewControlPlane(service.Database,
			addrPorts("192.0.2.7:16641", "[2001:db8::7]:6641", "192.0.2.5:443", "0.0.0.0:1", "192.0.2.8:0"), services))

	const (
		api, database = "it is the API server's", "it is that of an OVN database"
		other         = "the address is that of a server of the control plane"
	)
	for _, tc := range []struct {
		proto corev1.Protocol
		at    string
		want  string
	}{
		{"TCP", "192.0.2.5:443", api}, // the API server takes precedence
		{"", "192.0.2.5:443", api},
		{"UDP", "192.0.2.5:443", ""},
		{"TCP", "192.0.2.5:444", ""},
		{"TCP", "192.0.2.5:6443", other},
		{"TCP", "192.0.2.5:22", other},
		{"UDP", "192.0.2.5:6081", other},
		{"UDP", "192.0.2.5:53", ""},
		{"TCP", "192.0.2.6:8443", api},
		{"TCP", "192.0.2.6:443", ""},
		{"TCP", "192.0.2.7:16641", database},
		{"TCP", "192.0.2.7:443", ""},
		{"TCP", "[2001:db8::7]:6641", database},
		{"TCP", "10.96.0.1:443", ""}, // of the Service default/kubernetes
		{"TCP", "10.96.0.1:22", ""},
		{"TCP", "198.51.100.1:443", ""},
		{"TCP", "0.0.0.0:1", ""},
		{"TCP", "192.0.2.8:22", ""},
	} {
		if got := c.Keeps(tc.proto, netip.MustParseAddrPort(tc.at)); got != tc.want {
			t.Errorf("%s %s is kept for %q, want %q", tc.proto, tc.at, got, tc.want)
		}
	}

	if got := (service.ControlPlane{}).Keeps("TCP", netip.MustParseAddrPort("192.0.2.5:22")); got != "" {
		t.Errorf("without servers: kept for %q", got)
	}
}

// TestControlPlane_Without: a server that is added, removed or of another kind differs.
func TestControlPlane_Without(t *testing.T) {
	of := func(kind service.Server, at ...string) service.ControlPlane {
		return service.NewControlPlane(kind, addrPorts(at...), nil)
	}
	a := of(service.APIServer, "192.0.2.5:443", "192.0.2.6:443")
	b := of(service.APIServer, "192.0.2.6:443").With(of(service.Database, "192.0.2.7:443"))

	got := fmt.Sprint(a.Without(b), b.Without(a), of(service.Database, "192.0.2.6:443").Without(a))
	if want := "[192.0.2.5:443] [192.0.2.7:443] [192.0.2.6:443]"; got != want {
		t.Errorf("differences %s", got)
	}

	same, empty := of(service.APIServer, "192.0.2.6:443", "192.0.2.5:443"), service.ControlPlane{}
	if a.Equal(b) || !a.Equal(same) || !empty.Equal(of(service.APIServer)) {
		t.Error("equality is wrong")
	}
}

// TestAPIServers: all TCP endpoints of the slices are API servers, ready or not.
func TestAPIServers(t *testing.T) {
	ready, no := true, false
	slice := sliceOf("kubernetes", discoveryv1.AddressTypeIPv4, 6443,
		discoveryv1.Endpoint{Addresses: []string{"192.0.2.5"}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}},
		discoveryv1.Endpoint{Addresses: []string{"192.0.2.6"}, Conditions: discoveryv1.EndpointConditions{Ready: &no}},
		discoveryv1.Endpoint{Addresses: []string{"10.96.0.9", "not an address"}})
	slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{Port: new(int32(8443))},
		discoveryv1.EndpointPort{Port: new(int32(53)), Protocol: new(corev1.ProtocolUDP)})

	got := service.APIServers([]*discoveryv1.EndpointSlice{slice}, prefixes("10.96.0.0/16")).String()
	if want := "[192.0.2.5:6443 192.0.2.5:8443 192.0.2.6:6443 192.0.2.6:8443]"; got != want {
		t.Errorf("API servers %s, want %s", got, want)
	}
}
