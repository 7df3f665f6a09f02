package service_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovn-ebpf/ovn-ebpf/agent/service"
	"github.com/ovn-ebpf/ovn-ebpf/cluster"
	model "github.com/ovn-ebpf/ovn-ebpf/service"
)

// hostPortPod returns the objects of a dual-stack pod with one host port.
func hostPortPod(proto corev1.Protocol, port int32, ip string) model.Objects {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant", Name: "p"}}
	pod.Spec.NodeName = "node1"
	pod.Spec.Containers = []corev1.Container{{Ports: []corev1.ContainerPort{{HostIP: ip, HostPort: port, ContainerPort: 80, Protocol: proto}}}}
	pod.Status.PodIPs = []corev1.PodIP{{IP: "10.244.1.5"}, {IP: "fd00:10:244:1::5"}}

	return model.Objects{Pod: pod}
}

func ends(texts ...string) (out []netip.AddrPort) {
	for _, s := range texts {
		out = append(out, netip.MustParseAddrPort(s))
	}

	return out
}

// TestPortsOfTheHostAreRefused covers ports at the host's addresses that the host itself uses for
// its connections and for its UDP sockets.
func TestPortsOfTheHostAreRefused(t *testing.T) {
	const connections, open = "the host's connections use this port", "a socket of the host is open on this port"

	hostPort := hostPortPod
	at := func(proto corev1.Protocol, port int32, address string, balancer bool) model.Objects {
		return model.Objects{Service: serviceAt(address, port, proto, balancer)}
	}

	nodePort := func(proto corev1.Protocol, port int32) model.Objects {
		svc := serviceAt("192.0.2.1", 80, proto, false)
		svc.Spec.Ports[0].NodePort = port

		return model.Objects{Service: svc}
	}
	for _, tc := range []struct {
		name    string
		o       model.Objects
		port    uint16
		served  bool   // at an address of the host
		refused string // in one of the reasons; "": nothing is refused
	}{
		{"host port", hostPort("TCP", 80, ""), 80, true, ""},
		{"host port among ephemeral ports", hostPort("TCP", 40001, ""), 40001, false, connections},
		{"host port among ephemeral ports, UDP", hostPort("UDP", 40001, "172.30.0.11"), 40001, false, connections},
		{"host port in the reserved range", hostPort("TCP", 30080, ""), 30080, true, ""},
		{"node port", nodePort("TCP", 30080), 30080, true, ""},
		{"node port among ephemeral ports", nodePort("TCP", 40001), 40001, false, connections},
		{"external IP among ephemeral ports", at("TCP", 40001, "172.30.0.11", false), 40001, false, connections},
		{"load balancer's address among ephemeral ports", at("TCP", 40001, "172.30.0.11", true), 40001, false, connections},
		{"external IP elsewhere", at("TCP", 40001, "203.0.113.9", false), 40001, true, ""},
		{"UDP host port beside a resolver", hostPort("UDP", 53, ""), 53, false, open},
		{"TCP host port beside a resolver", hostPort("TCP", 53, ""), 53, true, ""},
		{"UDP host port beside a socket at another address", hostPort("UDP", 123, "172.30.0.11"), 123, true, ""},
		{"UDP host port beside a socket at the address", hostPort("UDP", 123, "172.30.0.77"), 123, false, open},
		{"UDP external IP beside a resolver", at("UDP", 53, "172.30.0.11", false), 53, false, open},
		{"UDP load balancer's address beside a resolver", at("UDP", 53, "172.30.0.11", true), 53, true, ""},
		{"UDP node port beside a socket", nodePort("UDP", 30053), 30053, true, ""},
		{"UDP external IP elsewhere", at("UDP", 53, "203.0.113.9", false), 53, true, ""},
		{"UDP host port beside a resolver on loopback", hostPort("UDP", 54, ""), 54, true, ""},
		{"TCP host port beside a listener", hostPort("TCP", 10259, ""), 10259, true, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n := node1()
			n.Cluster.ExternalIPs = prefixes("0.0.0.0/0")
			n.Ephemeral = []cluster.PortRange{{First: 32768, Last: 49151}}
			n.UDP = ends("0.0.0.0:53", "127.0.0.53:54", "172.30.0.77:123", "[::]:30053")
			n.TCP = ends("0.0.0.0:10259")
			p := service.New(tc.o.Meaning(n.Cluster), n)

			served := slices.ContainsFunc(p.Frontends, func(f service.Frontend) bool { return f.Key.Port == tc.port && f.Owner != 0 && f.Key.Addr.Is4() })
			if served != tc.served {
				t.Errorf("frontends %v: served %t, want %t", p.Frontends, served, tc.served)
			}

			told := slices.ContainsFunc(p.Refused, func(why string) bool { return strings.Contains(why, tc.refused) })
			if tc.refused == "" && len(p.Refused) > 0 || tc.refused != "" && !told {
				t.Errorf("refused %q, want %q", p.Refused, tc.refused)
			}
		})
	}
}

// TestNew_hostPortAtLoopback checks that a host port is served at a loopback address only if the pod
// asks for it and no socket of the host has the port there.
func TestNew_hostPortAtLoopback(t *testing.T) {
	const (
		open, kept  = "a socket of the host is open on this port", "it is the node's own"
		connections = "the host's connections use this port"
	)
	for _, tc := range []struct {
		name    string
		proto   corev1.Protocol
		port    int32
		ip      string
		served  string // the only frontend at a loopback address; "": none
		refused string // in one of the reasons; "": nothing is refused
	}{
		{"no host IP", "TCP", 8000, "", "", ""},
		{"no host IP, UDP", "UDP", 8000, "", "", ""},
		{"unspecified", "TCP", 8000, "0.0.0.0", "", ""},
		{"unspecified, IPv6", "UDP", 8000, "::", "", ""},
		{"loopback", "TCP", 8000, "127.0.0.1", "127.0.0.1:8000", ""},
		{"loopback, UDP", "UDP", 8000, "127.0.0.1", "127.0.0.1:8000", ""},
		{"another loopback address", "TCP", 8000, "127.255.255.254", "127.255.255.254:8000", ""},
		{"loopback, IPv6", "UDP", 8000, "::1", "[::1]:8000", ""},
		{"loopback, mapped", "TCP", 8000, "::ffff:127.0.0.1", "127.0.0.1:8000", ""},

		{"resolver at its address", "UDP", 53, "127.0.0.53", "", open},
		{"resolver at another address", "UDP", 53, "127.0.0.1", "127.0.0.1:53", ""},
		{"resolver, over TCP", "TCP", 53, "127.0.0.53", "", open},
		{"scheduler", "TCP", 10259, "127.0.0.1", "", open},
		{"scheduler, over UDP", "UDP", 10259, "127.0.0.1", "127.0.0.1:10259", ""},
		{"listener on all addresses", "TCP", 9100, "127.0.0.1", "", open},
		{"IPv4 listener on all addresses", "TCP", 9100, "::1", "[::1]:9100", ""},
		{"IPv6 listener on all addresses", "TCP", 9101, "::1", "", open},
		{"IPv6 listener on all addresses, for IPv4", "TCP", 9101, "127.0.0.1", "", open},
		{"IPv6 listener on loopback", "TCP", 9102, "::1", "", open},
		{"IPv6 listener on loopback, for IPv4", "TCP", 9102, "127.0.0.1", "127.0.0.1:9102", ""},

		{"ephemeral", "TCP", 40001, "127.0.0.1", "", connections},
		{"kept", "TCP", 10250, "127.0.0.1", "", kept},
		{"kept, link-local", "TCP", 22, "fe80::11", "", kept},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n := node1()
			n.Ephemeral = []cluster.PortRange{{First: 32768, Last: 49151}}
			n.UDP = ends("127.0.0.53:53")
			n.TCP = ends("127.0.0.53:53", "127.0.0.1:10259", "0.0.0.0:9100", "[::]:9101", "[::1]:9102")

			p := service.New(hostPortPod(tc.proto, tc.port, tc.ip).Meaning(n.Cluster), n)
			if p == nil {
				t.Fatal("no plan")
			}

			served := ""

			for _, f := range p.Frontends {
				if f.Key.Addr.IsLoopback() || f.Key.Addr.IsUnspecified() && !p.Groups[f.Group].NotLoopback {
					served += netip.AddrPortFrom(f.Key.Addr, f.Key.Port).String()
				}
			}

			if served != tc.served {
				t.Errorf("serves %q, want %q", served, tc.served)
			}

			told := slices.ContainsFunc(p.Refused, func(why string) bool { return strings.Contains(why, tc.refused) })
			if tc.refused == "" && len(p.Refused) > 0 || tc.refused != "" && !told {
				t.Errorf("refused %q, want %q", p.Refused, tc.refused)
			}
		})
	}
}
