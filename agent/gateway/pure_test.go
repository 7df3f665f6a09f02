package gateway

import (
	"errors"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
	"github.com/ovn-ebpf/ovn-ebpf/bpf"
	"github.com/ovn-ebpf/ovn-ebpf/cluster"
	"github.com/ovn-ebpf/ovn-ebpf/loop"
	"github.com/ovn-ebpf/ovn-ebpf/verdict"
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

func TestSockets(t *testing.T) {
	sockets := []link.Socket{
		{Proto: 17, Local: netip.MustParseAddrPort("0.0.0.0:50000"), Listening: true},
		{Proto: 6, Local: netip.MustParseAddrPort("172.30.0.11:50001")},
		{Proto: 6, Local: netip.MustParseAddrPort("172.30.0.12:50001")},
	}
	if diff := cmp.Diff([]bpf.SocketKey{{Proto: 6, Port: 50001}, {Proto: 17, Port: 50000}}, socketKeys(sockets)); diff != "" {
		t.Error(diff)
	}

	if got := onlyListening(sockets); len(got) != 1 || got[0] != sockets[0] {
		t.Errorf("listeners %v", got)
	}
}

// TestGateKeys checks that unlistable sockets may use every port of the range.
func TestGateKeys(t *testing.T) {
	ports := cluster.PortRange{First: 65534, Last: 65535}

	sockets := []link.Socket{{Proto: 17, Local: netip.MustParseAddrPort("0.0.0.0:65534")}}
	if got := lookupPortsOf(sockets, nil, ports); !slices.Equal(got, []bpf.SocketKey{{Proto: 17, Port: 65534}}) {
		t.Errorf("asks for %v, want the socket's port alone", got)
	}

	every := []bpf.SocketKey{{Proto: 6, Port: 65534}, {Proto: 17, Port: 65534}, {Proto: 6, Port: 65535}, {Proto: 17, Port: 65535}}
	if got := lookupPortsOf(nil, errors.New("no inet_diag"), ports); !slices.Equal(got, every) {
		t.Errorf("asks for %v, want %v", got, every)
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
		Hops: []link.Hop{
			{Device: "breth0", Prefix: link.Everything(true), Via: netip.MustParseAddr("10.0.0.1")},
			{Device: "eth0", Prefix: link.Everything(true), Via: netip.MustParseAddr("172.30.0.200")},
			{Device: "eth0", Prefix: link.Everything(false), Via: netip.MustParseAddr("fe80::200")},
		},
	}
	s := Settings{
		Wiring:  Wiring{Uplink: "eth0", Bridge: "breth0", Datapath: ovs.DatapathNetdev, Encap: netip.MustParsePrefix("172.30.1.11/24")},
		Cluster: Cluster{SNATPorts: cluster.PortRange{First: 49152, Last: 65535}}, NotHost: []string{"breth0", "ovn-k8s-mp0"},
	}
	n := nodeOf(h, s)

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

	s.NextHops = hops
	if got := nodeOf(h, s).NextHops; !cmp.Equal(hops, got, equal) {
		t.Errorf("next hops %v, want the configured %v", got, hops)
	}

	c := programConfig(h, n, s, facts{})
	if c.Bridge != 5 || c.Uplink != 2 || c.EncapIP != s.Encap.Addr() || c.Node4.String() != "172.30.0.11" || c.Node6.String() != "fd00::11" {
		t.Errorf("config %+v", c)
	}

	if s.Datapath = ovs.DatapathSystem; programConfig(h, n, s, facts{}).EncapIP.IsValid() || bridgeAddresses(s) != nil {
		t.Error("kernel datapath: the bridge has an encap address")
	}

	h.Bridge.Up = false
	if c := programConfig(h, n, s, facts{}); c.Bridge != 0 {
		t.Error("the bridge is down, and packets would be sent to it")
	}

	h.Bridge = nil
	if c := programConfig(h, n, s, facts{}); c.Bridge != 0 {
		t.Error("there is no bridge, and packets would be sent to it")
	}
}

// TestServiceAddresses covers kube-proxy's IPVS mode, which assigns every Service address to the
// host. There may be thousands.
func TestServiceAddresses(t *testing.T) {
	h := Host{Uplink: link.Link{Name: "eth0"}, Addresses: []link.Address{
		address("172.30.0.11/24", "eth0"), address("10.96.0.1/32", "kube-ipvs0"), address("fd00:96::1/128", "kube-ipvs0"), address("10.96.0.53/32", "nodelocaldns"),
		address("198.51.100.7/32", "kube-ipvs0"), address("172.30.0.12/24", "eth0"), address("172.30.0.12/32", "kube-ipvs0"),
	}}
	s := Settings{
		Wiring:  Wiring{Uplink: "eth0", Bridge: "breth0", Layout: verdict.Direct},
		Cluster: Cluster{ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("fd00:96::/112")}},
	}
	second := netip.MustParseAddr("172.30.0.12")

	n := nodeOf(h, s)
	for _, a := range n.HostCIDRs {
		if cluster.Contains(s.ServiceCIDRs, a.Addr()) {
			t.Errorf("host-cidrs %v", n.HostCIDRs)
		}
	}

	services := &Services{settings: s, source: Source{Zone: func() string { return "" }, Nodes: func() int { return 1 }}}

	sn := services.serviceNode(h, n, facts{})
	for _, a := range sn.Own {
		if cluster.Contains(s.ServiceCIDRs, a) {
			t.Errorf("sockets' own addresses %v", sn.Own)
		}
	}

	st := newState(h, n, s, facts{})
	for _, a := range h.Addresses {
		if st.addrs[a.Prefix.Addr()] != verdict.AddrHost {
			t.Errorf("%s is not the host's to the gateway", a.Prefix.Addr())
		}
	}

	st.config.ServiceCIDRs = s.ServiceCIDRs
	if got := st.hairpin().HostAddrs; !slices.Equal(got, []netip.Addr{second}) {
		t.Errorf("the hairpin has flows for %v, want for %s alone", got, second)
	}
}

// Peers are read once per change, not at each pass.
func TestPeersAreReadOnce(t *testing.T) {
	reads := 0
	i := &Inputs{wake: loop.NewSignal(), former: &formerAddresses{}, readPeers: func() (known, hosts []netip.Addr) {
		reads++
		return []netip.Addr{netip.MustParseAddr("192.0.2.7")}, nil
	}}

	for _, step := range []struct{ changed, want int }{{0, 0}, {1, 1}, {0, 1}, {2, 2}} {
		for range step.changed {
			i.PeersChanged()
		}

		if f := i.read(); reads != step.want || len(f.peers) != min(reads, 1) {
			t.Errorf("%d changes: %d reads and peers %v, want %d reads", step.changed, reads, f.peers, step.want)
		}
	}

	none := &Inputs{wake: loop.NewSignal(), former: &formerAddresses{}}
	none.PeersChanged()

	if f := none.read(); f.peers != nil {
		t.Errorf("peers %v without a source", f.peers)
	}
}

// OVN must not send from a former address of the host, unless a Service or another node has it now.
func TestFormerAddresses(t *testing.T) {
	addr := netip.MustParseAddr
	f := facts{vips: []netip.Addr{addr("192.0.2.3")}, peers: []netip.Addr{addr("192.0.2.2")}, former: []netip.Addr{addr("192.0.2.1"), addr("192.0.2.2"), addr("192.0.2.3"), addr("192.0.2.4")}}
	h := Host{Addresses: []link.Address{address("192.0.2.4/24", "eth0")}}
	st := newState(h, Node{}, Settings{}, f)

	want := map[netip.Addr]verdict.AddrKind{
		addr("192.0.2.1"): verdict.AddrFormer, addr("192.0.2.2"): verdict.AddrPeer, addr("192.0.2.3"): verdict.AddrVIP, addr("192.0.2.4"): verdict.AddrHost,
	}
	if !maps.Equal(st.addrs, want) {
		t.Errorf("addresses %v, want %v", st.addrs, want)
	}
}

// The number of former addresses is bounded. Those with the most flushes are dropped first.
func TestFormerAddressesAreBounded(t *testing.T) {
	f := newFormer("", loop.NewSignal(), slog.New(slog.DiscardHandler))
	f.add([]netip.Addr{netip.MustParseAddr("192.0.2.1")})

	f.addrs[netip.MustParseAddr("192.0.2.1")] = maxFlushes
	for i := range maxFormer {
		f.add([]netip.Addr{netip.AddrFrom4([4]byte{198, 51, 100, byte(i)})})
	}

	if list := f.list(); slices.Contains(list, netip.MustParseAddr("192.0.2.1")) || len(list) != maxFormer {
		t.Errorf("kept %v, without the oldest want %d", list, maxFormer)
	}
}

func TestOverlap(t *testing.T) {
	s := Settings{
		NotHost: []string{"breth0", "ovn-k8s-mp0"},
		Wiring:  Wiring{Encap: netip.MustParsePrefix("172.30.1.11/24")},
		Cluster: Cluster{
			PodCIDRs:     []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")},
			ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("fd00:10:96::/112")},
		},
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
		{"the encap address's network", address("eth0", "172.30.1.99/16"), "encap address 172.30.1.11/24 is in the network of host address 172.30.1.99/16 on eth0"},
		{"host's address", address("eth1", "10.1.2.3/24"), "network 10.0.0.0/8 of the cluster contains host address 10.1.2.3 on eth1"},
		{"a DNS cache on a service's address", address("nodelocaldns", "fd00:10:96::a/128"), ""},
		{
			"next hop",
			Host{Defaults: []link.DefaultRoute{{Device: "eth0", NextHop: netip.MustParseAddr("10.9.9.9")}}},
			"network 10.0.0.0/8 of the cluster contains next hop 10.9.9.9 of the host on eth0",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := ""
			if err := checkOverlap(tc.host, s); err != nil {
				got = err.Error()
			}

			if got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestEphemeralPortsRemain(t *testing.T) {
	want := Settings{Cluster: Cluster{SNATPorts: cluster.PortRange{First: 49152, Last: 65535}, NodePorts: true, NodePortRange: cluster.PortRange{First: 30000, Last: 32767}}}.reserved()
	for _, tc := range []struct{ name, local, have, want string }{
		{"Linux's own", "32768\t60999", "", ""},
		{"IANA's, which is the SNAT range", "49152\t65535", "", "only 0 of the host's ephemeral ports 49152-65535 would remain, need 1024: change sysctl net/ipv4/ip_local_port_range"},
		{"others have reserved the rest", "32768\t60999", "32768-49000", "only 151 of"},
		{"again, with ours reserved", "1024\t65535", "30000-32767,49152-65535", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			local, err := parsePorts(strings.ReplaceAll(tc.local, "\t", "-"))
			if err != nil {
				t.Fatal(err)
			}

			have, err := parsePorts(tc.have)
			if err != nil {
				t.Fatal(err)
			}

			err = checkRemaining(local, have, want)
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
		if got := (Node{Addresses: []netip.Prefix{v4, v6}, NextHops: tc.hops}).Stranded(); !slices.Equal(got, tc.want) {
			t.Errorf("%s: got %v, want %v", tc.name, got, tc.want)
		}
	}
}

func TestDedicated(t *testing.T) {
	s := Settings{Wiring: Wiring{
		Uplink: "eth1", Bridge: "breth1", Layout: verdict.Dedicated, Addresses: []netip.Prefix{netip.MustParsePrefix("192.0.2.5/24")},
		NextHops: []netip.Addr{netip.MustParseAddr("192.0.2.1")},
	}}

	h := Host{Uplink: link.Link{Name: "eth1", Index: 3, MAC: net.HardwareAddr{2, 0, 0, 0, 0, 2}}, Addresses: []link.Address{address("172.30.0.11/24", "eth0")}}
	if err := checkDedicatedUplink(h, s); err != nil {
		t.Error(err)
	}

	n := nodeOf(h, s)
	if len(n.Addresses) != 1 || n.Addresses[0] != s.Addresses[0] || len(n.HostCIDRs) != 1 || n.HostCIDRs[0].Addr().String() != "172.30.0.11" || n.NextHops[0] != s.NextHops[0] {
		t.Errorf("node %+v", n)
	}

	if got := nodeAddrs(n); len(got) != 2 {
		t.Errorf("addresses with NodePorts %v, want the host's and the gateway's", got)
	}

	if h := hostHairpin(n, s); len(h.Addresses) != 0 {
		t.Errorf("the host has no part in it, and gets %v", h)
	}

	for addr, want := range map[string]string{"192.0.2.9/24": "uplink eth1 has host address 192.0.2.9", "fe80::1/64": ""} {
		h.Addresses = []link.Address{address(addr, "eth1")}
		if err := checkDedicatedUplink(h, s); want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: got %v, want %q", addr, err, want)
		}
	}

	h.Addresses = []link.Address{address("192.0.2.5/24", "eth0")}
	if err := checkDedicatedUplink(h, s); err == nil || !strings.Contains(err.Error(), "gateway address 192.0.2.5 is a host address on eth0") {
		t.Errorf("the host's own address: %v", err)
	}
}

func TestHostHairpin(t *testing.T) {
	s := Settings{Cluster: Cluster{ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("fd00:96::/112")}}}
	n := Node{Uplink: link.Link{MTU: 1500}, Addresses: []netip.Prefix{netip.MustParsePrefix("172.30.0.11/24")}}
	h := hostHairpin(n, s)

	want := []link.Route{
		{Prefix: netip.MustParsePrefix("169.254.169.4/32"), Source: netip.MustParseAddr("169.254.169.2")},
		{Prefix: netip.MustParsePrefix("169.254.169.1/32"), NextHop: netip.MustParseAddr("169.254.169.4"), Source: netip.MustParseAddr("172.30.0.11")},
		{Prefix: netip.MustParsePrefix("10.96.0.0/16"), NextHop: netip.MustParseAddr("169.254.169.4"), Source: netip.MustParseAddr("169.254.169.2"), MTU: 1442},
	}
	if diff := cmp.Diff(want, h.Routes, cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})); diff != "" {
		t.Error(diff)
	}
}

// TestHostHairpin_mtuOfPods checks that routes of both families have the MTU of pods, which depends
// on the family of the tunnels.
func TestHostHairpin_mtuOfPods(t *testing.T) {
	n := Node{Uplink: link.Link{MTU: 1500}, Addresses: []netip.Prefix{netip.MustParsePrefix("172.30.0.11/24"), netip.MustParsePrefix("fd00::11/64")}}

	for tunnel, want := range map[string]int{"": 1442, "172.30.1.11": 1442, "fd00::11": 1422} {
		s := Settings{Cluster: Cluster{ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("fd00:96::/112")}}}
		s.Tunnel, _ = netip.ParseAddr(tunnel) // "" is the default

		services := 0

		for _, r := range hostHairpin(n, s).Routes {
			if !slices.Contains(s.ServiceCIDRs, r.Prefix) {
				continue
			}

			services++

			if r.MTU != want {
				t.Errorf("tunnel address %q: route to %v has the MTU %d, want %d", tunnel, r.Prefix, r.MTU, want)
			}
		}

		if services != 2 {
			t.Errorf("tunnel address %q: %d routes to Services, want 2", tunnel, services)
		}
	}
}

// TestWithoutServiceRoutes checks that routes that wait for Services are neither added nor removed.
func TestWithoutServiceRoutes(t *testing.T) {
	services := []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")}
	n := Node{Uplink: link.Link{MTU: 1500}, Addresses: []netip.Prefix{netip.MustParsePrefix("172.30.0.11/24")}}
	all := hostHairpin(n, Settings{Cluster: Cluster{ServiceCIDRs: services}})

	h := withoutServiceRoutes(all, services)
	if len(all.Routes) != 3 || len(h.Routes) != 2 || !slices.Equal(h.Keep, services) {
		t.Errorf("of the routes %v there are %v, kept are %v", all.Routes, h.Routes, h.Keep)
	}

	for _, r := range h.Routes {
		if slices.Contains(services, r.Prefix) {
			t.Errorf("route to Services %v", r)
		}
	}
}

func TestOwnPatchPort(t *testing.T) {
	for _, tc := range []struct {
		want  string
		names []string
	}{
		{"", nil},
		{"", []string{"patch-breth00_n-to-br-int", "patch-other"}},
		{"patch-breth0_n-to-br-int", []string{"patch-aux", "patch-breth0_n-to-br-int", "patch-breth0_o-to-br-int"}},
		{"patch-breth0_node1-to-br-int", []string{"patch-breth0_blue_node1-to-br-int", "patch-breth0_node1-to-br-int"}},
	} {
		if got := ownPatchPort(tc.names, "breth0"); got != tc.want {
			t.Errorf("%v: got %q, want %q", tc.names, got, tc.want)
		}
	}
}

func TestCheckEthernet(t *testing.T) {
	if err := checkEthernet(link.Link{Name: "eth0", MAC: net.HardwareAddr{2, 0, 0, 0, 0, 1}}); err != nil {
		t.Error(err)
	}

	for _, mac := range []net.HardwareAddr{nil, {1, 2}, make(net.HardwareAddr, 20)} { // tun, nothing, InfiniBand
		if err := checkEthernet(link.Link{Name: "tun0", MAC: mac}); err == nil || !strings.Contains(err.Error(), `uplink tun0: "`) {
			t.Errorf("%s: %v", mac, err)
		}
	}
}
