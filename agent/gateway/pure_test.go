package gateway

import (
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"

	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/bpf"
)

func TestPorts(t *testing.T) {
	for _, tc := range []struct{ name, have, want, union, rest string }{
		{"nothing there", "", "30000-32767,49152-65535", "30000-32767,49152-65535", ""},
		{"foreign ones stay", "22,8080-8090", "49152-65535", "22,8080-8090,49152-65535", "22,8080-8090"},
		{"part was there", "50000-50010", "49152-65535", "49152-65535", ""},
		{"adjoining join", "49151", "49152-65535", "49151-65535", "49151"},
		{"single in the middle is cut out", "1-100", "50", "1-100", "1-49,51-100"},
		{"last port", "65535", "65535", "65535", ""},
		{"overlap on the right", "10-20", "15-30", "10-30", "10-14"},
		{"overlap on the left", "10-20", "5-15", "5-20", "16-20"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			have, err := parsePorts(tc.have + "\n")
			if err != nil {
				t.Fatal(err)
			}
			want, err := parsePorts(tc.want)
			if err != nil {
				t.Fatal(err)
			}
			if got := formatPorts(mergePorts(append(have, want...))); got != tc.union {
				t.Errorf("union %q, want %q", got, tc.union)
			}
			if got := formatPorts(subtractPorts(have, want)); got != tc.rest {
				t.Errorf("difference %q, want %q", got, tc.rest)
			}
		})
	}
}

func TestParsePortsRejects(t *testing.T) {
	for _, s := range []string{"x", "1-", "-1", "70000", "20-10", "1-2-3"} {
		if got, err := parsePorts(s); err == nil {
			t.Errorf("%q: got %v, want an error", s, got)
		}
	}
}

func FuzzParsePorts(f *testing.F) {
	for _, s := range []string{"", "22", "1-2,4", "65535", "0-65535", "5-1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		ranges, err := parsePorts(s)
		if err != nil {
			return
		}
		again, err := parsePorts(formatPorts(ranges))
		if err != nil || !cmp.Equal(ranges, again) {
			t.Errorf("%q: %v, then %v, error %v", s, ranges, again, err)
		}
		if rest := subtractPorts(ranges, ranges); len(rest) != 0 {
			t.Errorf("%q less itself is %v", s, rest)
		}
	})
}

func nodePort(port int32, proto corev1.Protocol, families ...corev1.IPFamily) *corev1.Service {
	return &corev1.Service{Spec: corev1.ServiceSpec{
		Type: corev1.ServiceTypeNodePort, IPFamilies: families,
		Ports: []corev1.ServicePort{{NodePort: port, Protocol: proto}},
	}}
}

func TestServiceKeys(t *testing.T) {
	a4, a6 := netip.MustParseAddr("172.30.0.11"), netip.MustParseAddr("fd00::11")
	clusterIP := nodePort(30080, corev1.ProtocolTCP)
	clusterIP.Spec.Type = corev1.ServiceTypeClusterIP
	noNodePort := nodePort(0, corev1.ProtocolTCP)
	noNodePort.Spec.Type = corev1.ServiceTypeLoadBalancer
	for _, tc := range []struct {
		name     string
		services []*corev1.Service
		want     []bpf.ServiceKey
	}{
		{"none", nil, nil},
		{"ClusterIP is not the gateway's", []*corev1.Service{clusterIP, noNodePort}, nil},
		{"every family when none is given", []*corev1.Service{nodePort(30080, "")}, []bpf.ServiceKey{{Addr: a4, Proto: 6, Port: 30080}, {Addr: a6, Proto: 6, Port: 30080}}},
		{"one family", []*corev1.Service{nodePort(30080, corev1.ProtocolUDP, corev1.IPv6Protocol)}, []bpf.ServiceKey{{Addr: a6, Proto: 17, Port: 30080}}},
		{"sorted, once", []*corev1.Service{
			nodePort(30081, corev1.ProtocolTCP, corev1.IPv4Protocol), nodePort(30080, corev1.ProtocolTCP, corev1.IPv4Protocol), nodePort(30080, corev1.ProtocolTCP, corev1.IPv4Protocol),
		}, []bpf.ServiceKey{{Addr: a4, Proto: 6, Port: 30080}, {Addr: a4, Proto: 6, Port: 30081}}},
		{"SCTP", []*corev1.Service{nodePort(30080, corev1.ProtocolSCTP, corev1.IPv4Protocol)}, []bpf.ServiceKey{{Addr: a4, Proto: 132, Port: 30080}}},
		{"unknown protocol", []*corev1.Service{nodePort(30080, "ICMP")}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, serviceKeys(tc.services, []netip.Addr{a4, a6, {}}), cmpopts.EquateComparable(netip.Addr{})); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestSockets(t *testing.T) {
	sockets := []link.Socket{
		{Proto: 17, Local: netip.MustParseAddrPort("0.0.0.0:50000"), Listening: true},
		{Proto: 6, Local: netip.MustParseAddrPort("172.30.0.11:50001")},
		{Proto: 6, Local: netip.MustParseAddrPort("172.30.0.12:50001")},
	}
	if diff := cmp.Diff([]bpf.SocketKey{{Proto: 6, Port: 50001}, {Proto: 17, Port: 50000}}, socketKeys(sockets)); diff != "" {
		t.Error(diff)
	}
	if got := listeners(sockets); len(got) != 1 || got[0] != sockets[0] {
		t.Errorf("listeners %v", got)
	}
}

func address(prefix, device string) link.Address {
	p := netip.MustParsePrefix(prefix)
	return link.Address{Prefix: p, Device: device, LinkLocal: p.Addr().IsLinkLocalUnicast()}
}

func TestDesired(t *testing.T) {
	mac := net.HardwareAddr{2, 0, 0, 0, 0, 1}
	secondary := address("172.30.0.77/24", "eth0")
	secondary.Secondary = true
	h := Host{
		Uplink: link.Link{Name: "eth0", Index: 2, MAC: mac, MTU: 1500, Up: true},
		Bridge: &link.Link{Name: "breth0", Index: 5, MAC: mac, MTU: 1500, Up: true},
		Addresses: []link.Address{
			address("fe80::1/64", "eth0"), address("fd00::11/64", "eth0"), address("172.30.0.11/24", "eth0"), secondary,
			address("172.30.0.78/32", "eth0"), address("10.9.0.1/16", "docker0"), address("172.30.1.11/24", "breth0"), address("10.244.0.2/24", "ovn-k8s-mp0"),
		},
		Defaults: []link.DefaultRoute{
			{Device: "eth1", NextHop: netip.MustParseAddr("10.0.0.1")},
			{Device: "eth0", NextHop: netip.MustParseAddr("172.30.0.200")},
			{Device: "eth0", NextHop: netip.MustParseAddr("172.30.0.201")},
			{Device: "eth0", NextHop: netip.MustParseAddr("fe80::200")},
		},
	}
	n := nodeOf(h, nil, []string{"breth0", "ovn-k8s-mp0"})
	equal := cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})
	if diff := cmp.Diff(Node{
		Uplink:    h.Uplink,
		Addresses: []netip.Prefix{netip.MustParsePrefix("172.30.0.11/24"), netip.MustParsePrefix("fd00::11/64")},
		NextHops:  []netip.Addr{netip.MustParseAddr("172.30.0.200"), netip.MustParseAddr("fe80::200")},
		HostCIDRs: []netip.Prefix{
			netip.MustParsePrefix("10.9.0.1/16"), netip.MustParsePrefix("172.30.0.11/24"),
			netip.MustParsePrefix("172.30.0.77/24"), netip.MustParsePrefix("172.30.0.78/32"), netip.MustParsePrefix("fd00::11/64"),
		},
	}, n, equal); diff != "" {
		t.Error(diff)
	}
	if got := len(hostAddrs(h)); got != len(h.Addresses) {
		t.Errorf("%d host addresses, want every one of %d", got, len(h.Addresses))
	}
	hops := []netip.Addr{netip.MustParseAddr("172.30.0.1")}
	if got := nodeOf(h, hops, nil).NextHops; !cmp.Equal(hops, got, equal) {
		t.Errorf("next hops %v, want the configured %v", got, hops)
	}

	s := Settings{Userspace: true, Encap: netip.MustParsePrefix("172.30.1.11/24"), SNATPorts: bpf.PortRange{First: 49152, Last: 65535}}
	c := programConfig(h, n, s)
	if c.Bridge != 5 || c.Uplink != 2 || c.EncapIP != s.Encap.Addr() || c.Node4.String() != "172.30.0.11" || c.Node6.String() != "fd00::11" {
		t.Errorf("config %+v", c)
	}
	if s.Userspace = false; programConfig(h, n, s).EncapIP.IsValid() || bridgeAddresses(s) != nil {
		t.Error("kernel datapath: the bridge has an encap address")
	}
	h.Bridge.Up = false
	if c := programConfig(h, n, s); c.Bridge != 0 {
		t.Error("the bridge is down, and packets would be sent to it")
	}
	h.Bridge = nil
	if c := programConfig(h, n, s); c.Bridge != 0 {
		t.Error("there is no bridge, and packets would be sent to it")
	}
}

func TestOverlap(t *testing.T) {
	s := Settings{
		NotHost:      []string{"breth0", "ovn-k8s-mp0"},
		Encap:        netip.MustParsePrefix("172.30.1.11/24"),
		PodCIDRs:     []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")},
		ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("fd00:10:96::/112")},
	}
	address := func(device, prefix string) Host {
		return Host{Addresses: []link.Address{{Prefix: netip.MustParsePrefix(prefix), Device: device}}}
	}
	for _, tc := range []struct {
		name string
		host Host
		want string
	}{
		{"apart", address("eth0", "172.30.0.11/24"), ""},
		{"host's network is the wider one", address("eth0", "11.0.0.1/6"), ""},
		{"the management port of a run before", address("ovn-k8s-mp0", "10.1.0.2/24"), ""},
		{"the encap address of a run before", address("breth0", "172.30.1.11/24"), ""},
		{"the encap address's network", address("eth0", "172.30.1.99/16"), "encap address 172.30.1.11/24 is in the network of the host's address 172.30.1.99/16 on eth0"},
		{"host's address", address("eth1", "10.1.2.3/24"), "network 10.0.0.0/8 of the cluster contains the host's address 10.1.2.3 on eth1"},
		{"a DNS cache on a service's address", address("nodelocaldns", "fd00:10:96::a/128"), ""},
		{
			"next hop",
			Host{Defaults: []link.DefaultRoute{{Device: "eth0", NextHop: netip.MustParseAddr("10.9.9.9")}}},
			"network 10.0.0.0/8 of the cluster contains the host's next hop 10.9.9.9 on eth0",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := ""
			if err := overlap(tc.host, s); err != nil {
				got = err.Error()
			}
			if got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestPortsLeft(t *testing.T) {
	want := Settings{SNATPorts: bpf.PortRange{First: 49152, Last: 65535}, NodePorts: true}.reserved()
	for _, tc := range []struct{ name, local, have, want string }{
		{"Linux's own", "32768\t60999", "", ""},
		{"IANA's, which is the SNAT range", "49152\t65535", "", "49152-65535 that the host connects from (sysctl net/ipv4/ip_local_port_range) 0 would be left"},
		{"others have reserved the rest", "32768\t60999", "32768-49000", "151 would be left"},
		{"again, with ours reserved", "1024\t65535", "30000-32767,49152-65535", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := portsLeft(tc.local, tc.have, want)
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}

func TestStranded(t *testing.T) {
	v4, v6 := netip.MustParsePrefix("172.30.0.11/24"), netip.MustParsePrefix("fd00:172:30::11/64")
	hop4, hop6 := netip.MustParseAddr("172.30.0.200"), netip.MustParseAddr("fe80::200")
	for _, tc := range []struct {
		name string
		hops []netip.Addr
		want []netip.Prefix
	}{
		{"both", []netip.Addr{hop4, hop6}, nil},
		{"no IPv6", []netip.Addr{hop4}, []netip.Prefix{v6}},
		{"none", nil, []netip.Prefix{v4, v6}},
	} {
		if got := (Node{Addresses: []netip.Prefix{v4, v6}, NextHops: tc.hops}).stranded(); !slices.Equal(got, tc.want) {
			t.Errorf("%s: got %v, want %v", tc.name, got, tc.want)
		}
	}
}
