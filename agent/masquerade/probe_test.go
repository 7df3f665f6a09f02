package masquerade

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
	"github.com/ovn-ebpf/ovn-ebpf/agent/testnode"
)

// newProbe returns a Probe of the node whose frames a pod sends.
func newProbe(t *testing.T, n testNode) *Probe {
	t.Helper()

	var fd int

	err := link.InNetns("/proc/"+n.pods+"/ns/net", func() error {
		device, err := net.InterfaceByName("p0")
		if err != nil {
			return err
		}

		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0); err != nil {
			return err
		}

		return unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: device.Index})
	})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { unix.Close(fd) })

	return &Probe{Port: "mp0", Send: func(_ context.Context, frame []byte) error {
		_, err := unix.Write(fd, frame)
		return err
	}}
}

// TestProbe_namesChains has chains of other programs on a node between pods and a peer.
func TestProbe_namesChains(t *testing.T) {
	n := newNode(t, "ip route add default via 192.0.2.1\nip -6 route add default via 2001:db8::1")

	p := newProbe(t, n)
	if _, err := p.Look(t.Context()); !errors.Is(err, ErrNoTable) {
		t.Errorf("without the table: error %v", err)
	}

	syncs(t, config)
	server := serve(t, n.world)

	const (
		drop   = "type filter hook forward priority filter; policy drop; "
		accept = "type filter hook forward priority filter; policy accept; "
	)

	var others string // removes the other tables
	for _, table := range []string{"ip x", "ip y", "ip6 x", "inet x", "inet y", "ip filter", "ip6 filter"} {
		others += fmt.Sprintf("table %s\ndelete table %[1]s\n", table)
	}

	for i, tc := range []struct {
		name     string
		commands string   // one a line
		want     []string // families and chains
		dials    bool     // a pod connects to a peer
	}{
		{name: "no other chain", dials: true},
		{name: "nft, ip", commands: "nft table ip x { chain f { " + drop + "}; }", want: []string{"IPv4: ip x f (policy drop)"}},
		{name: "nft, ip6", commands: "nft table ip6 x { chain f { " + drop + "}; }", want: []string{"IPv6: ip6 x f (policy drop)"}},
		{name: "nft, inet", commands: "nft table inet x { chain f { " + drop + "}; }", want: []string{"IPv4: inet x f (policy drop)", "IPv6: inet x f (policy drop)"}},
		{name: "the port is accepted", commands: "nft table inet x { chain f { " + drop + "iifname mp0 accept; oifname mp0 accept; }; }", dials: true},
		{name: "IPv4 pods are accepted", commands: "nft table inet x { chain f { " + drop + "ip saddr 10.244.0.0/16 accept; ct state established accept; }; }", want: []string{"IPv6: inet x f (policy drop)"}, dials: true},
		{name: "connections are accepted by their state", commands: "nft table inet x { chain f { " + drop + "ct state new,established accept; }; }", dials: true},
		{name: "DNS is accepted", commands: "nft table inet x { chain f { " + drop + "udp dport 53 accept; }; }"},
		{name: "networks of the node are accepted", commands: "nft table inet x { chain f { " + drop + "ip daddr 192.0.2.0/24 accept; ip6 daddr 2001:db8::/64 accept; ct state established accept; }; }", dials: true},
		{name: "another network is dropped", commands: "nft table inet x { chain f { " + accept + "ip saddr 10.9.0.0/16 drop; }; }", dials: true},
		{
			name: "the last rule rejects", commands: "nft table inet x { chain f { " + accept + "counter reject with icmpx admin-prohibited; }; }",
			want: []string{"IPv4: inet x f (rule reject with icmpx admin-prohibited)", "IPv6: inet x f (rule reject with icmpx admin-prohibited)"},
		},
		{
			name: "a chain that the base chain calls", commands: "nft table inet x { chain sub { ip saddr 10.0.0.0/8 drop; }; chain f { " + accept + "jump sub; }; }",
			want: []string{"IPv4: inet x f (rule ip saddr 10.0.0.0/8 drop in chain sub)"},
		},
		{
			name: "two chains", commands: "nft table ip x { chain f { " + drop + "}; }; table inet y { chain g { type filter hook forward priority 10; policy drop; }; }",
			want: []string{"IPv4: ip x f (policy drop) inet y g (policy drop)", "IPv6: inet y g (policy drop)"},
		},
		{
			name: "a chain accepts, and a later chain drops", commands: "nft table ip x { chain f { " + accept + "iifname mp0 accept; }; }; table ip y { chain g { type filter hook forward priority 10; policy drop; }; }",
			want: []string{"IPv4: ip y g (policy drop)"},
		},
		{name: "iptables-nft", commands: "iptables-nft -P FORWARD DROP", want: []string{"IPv4: ip filter FORWARD (policy drop)"}},
		{name: "ip6tables-nft", commands: "ip6tables-nft -P FORWARD DROP", want: []string{"IPv6: ip6 filter FORWARD (policy drop)"}},
		{
			name: "iptables-nft, as with Docker", dials: true,
			commands: "iptables-nft -P FORWARD DROP\niptables-nft -N DOCKER-USER\niptables-nft -A FORWARD -j DOCKER-USER\niptables-nft -A DOCKER-USER -i mp0 -j ACCEPT\niptables-nft -A DOCKER-USER -o mp0 -j ACCEPT",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if i%3 != 0 && testing.Short() {
				t.Skip("-short: .ci/full has it, part packages")
			}

			for line := range strings.Lines(tc.commands) {
				testnode.Run(t, strings.Fields(line)...)
			}

			looks(t, p, tc.want...)

			if tc.dials {
				dial(t, n.pods, netip.MustParseAddrPort("10.244.1.5:0"), net.JoinHostPort("192.0.2.1", server))
			}

			if err := nft(t.Context(), others); err != nil {
				t.Fatal(err)
			}

			looks(t, p)
		})
	}

	t.Run("iptables-legacy", func(t *testing.T) {
		if out, err := exec.Command("ip6tables-legacy", "-S").CombinedOutput(); err != nil {
			t.Skipf("the kernel has no tables of iptables-legacy: %s", out)
		}

		for _, tc := range []struct{ program, want string }{
			{"ip6tables-legacy", "IPv6: ip6tables-legacy filter FORWARD"}, // first, without tables of IPv4
			{"iptables-legacy", "IPv4: iptables-legacy filter FORWARD"},
		} {
			testnode.Run(t, tc.program, "-P", "FORWARD", "DROP")
			looks(t, p, tc.want)
			testnode.Run(t, tc.program, "-P", "FORWARD", "ACCEPT")
			looks(t, p)
		}
	})
}

// looks checks which families and chains a look names.
func looks(t *testing.T, p *Probe, want ...string) {
	t.Helper()

	r, err := p.Look(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	var got []string
	for _, d := range r.Dropped {
		got = append(got, d.Family+": "+strings.Join(d.By, " "))
	}

	if !slices.Equal(got, want) || r.Forwards != 2 {
		t.Errorf("dropped %q, want %q; forwarded families %d, want 2", got, want, r.Forwards)
	}
}

// TestProbe_seesPodsPackets has firewalls that probes alone do not reveal.
func TestProbe_seesPodsPackets(t *testing.T) {
	n := newNode(t, "ip route add default via 192.0.2.1\nip -6 route add default via 2001:db8::1")
	p := newProbe(t, n)
	syncs(t, config)
	server := serve(t, n.world)
	looks(t, p)

	dials := func() {
		dial(t, n.pods, netip.MustParseAddrPort("10.244.1.5:0"), net.JoinHostPort("192.0.2.1", server))
	}

	t.Cleanup(func() { testnode.Run(t, "nft", "table ip x; delete table ip x") })

	// The firewall allows the pod's connection, but not the probes.
	testnode.Run(t, "nft", "table ip x { chain f { type filter hook forward priority 0; policy drop; ct state established accept; tcp dport "+server+" accept; }; }")
	dials()

	if r, err := p.Look(t.Context()); err != nil || len(r.Dropped) > 0 || !r.Unsure {
		t.Errorf("pods connect: %+v, error %v; want an unsure result", r, err)
	}

	looks(t, p, "IPv4: ip x f (policy drop)")

	// The firewall lets pass what pods send, and drops replies.
	testnode.Run(t, "nft", "flush chain ip x f; add rule ip x f iifname mp0 accept")
	looks(t, p)
	udp := listen(t, "/proc/"+n.world+"/ns/net", netip.MustParseAddrPort("192.0.2.1:4000"))
	pod := listen(t, "/proc/"+n.pods+"/ns/net", netip.MustParseAddrPort("10.244.1.5:4000"))
	sendFrom(t, pod, netip.MustParseAddrPort("192.0.2.1:4000"))

	_, from, err := udp.ReadFromUDPAddrPort(make([]byte, 100))
	if err != nil {
		t.Fatal(err)
	}

	for range minReplies {
		sendFrom(t, udp, from)
	}

	r, err := p.Look(t.Context())
	if err != nil || len(r.Dropped) != 1 || !r.Dropped[0].Replies || !slices.Equal(r.Dropped[0].By, []string{"ip x f (policy drop)"}) {
		t.Errorf("replies are dropped: %+v, error %v", r, err)
	}

	looks(t, p)

	// Without forwarding, no probe reaches the hook. The next Sync restores it.
	testnode.Run(t, "sysctl", "-qw", "net.ipv4.conf.mp0.forwarding=0")

	if r, err := p.Look(t.Context()); err != nil || r.Forwards != 1 || len(r.Dropped) > 0 {
		t.Errorf("without forwarding: %+v, error %v; want one family that the host forwards", r, err)
	}

	syncs(t, config)
	looks(t, p)
}

func TestDescribe(t *testing.T) {
	by := []string{"inet x f (policy drop)"}
	for _, tc := range []struct {
		all  []Dropped
		want string
	}{
		{nil, ""},
		{[]Dropped{{Family: "IPv4", By: by}}, "IPv4 packets of pods are dropped by inet x f (policy drop): "},
		{[]Dropped{{Family: "IPv4", By: by}, {Family: "IPv6", By: by}}, "IPv4 and IPv6 packets of pods are dropped by inet x f (policy drop): "},
		{
			[]Dropped{{Family: "IPv4", By: by}, {Family: "IPv6", By: by, Replies: true}},
			"IPv4 packets of pods are dropped by inet x f (policy drop), IPv6 replies to pods are dropped by inet x f (policy drop): ",
		},
		{[]Dropped{{Family: "IPv6", By: []string{"ip6 a b", "ip6 c d"}}}, "IPv6 packets of pods are dropped by ip6 a b and ip6 c d: "},
	} {
		if got := Describe(tc.all, "mp0"); !strings.HasPrefix(got, tc.want) || (got == "") != (tc.want == "") {
			t.Errorf("%+v: %q, want %q…", tc.all, got, tc.want)
		}
	}
}

// TestProbe_throughOpenVSwitch sends probes to a port of OVN's bridge, on the datapath that the
// kernel allows.
func TestProbe_throughOpenVSwitch(t *testing.T) {
	s := testnode.StartSwitch(t, true)
	datapath, reason := ovs.DetectDatapath(link.HasGenericFamily)
	t.Logf("datapath %s: %s", datapath, reason)

	s.Vsctl(t, "add-br", ovs.IntegrationBridge, "--", "set", "Bridge", ovs.IntegrationBridge, "datapath_type="+datapath, "fail_mode=secure",
		"--", "add-port", ovs.IntegrationBridge, "mp0", "--", "set", "Interface", "mp0", "type=internal")
	defer func() {
		s.Vsctl(t, "del-br", ovs.IntegrationBridge)
		testnode.Eventually(t, "the kernel's datapath is removed", func() error {
			if _, err := link.Get("mp0"); !errors.Is(err, link.ErrNotFound) {
				return fmt.Errorf("mp0 is there: %w", err)
			}

			return nil
		})
	}()

	t.Cleanup(func() { _ = link.Delete("up0") })
	testnode.Eventually(t, "the port's device", func() error {
		_, err := link.Get("mp0")
		return err
	})

	for line := range strings.Lines(`ip link set mp0 up
ip addr add 10.244.1.2/24 dev mp0
ip addr add fd00:10:244:1::2/64 dev mp0 nodad
ip link add up0 type veth peer name w0
ip link set up0 up
ip addr add 192.0.2.2/24 dev up0
ip addr add 2001:db8::2/64 dev up0 nodad
ip route add default via 192.0.2.1
ip -6 route add default via 2001:db8::1`) {
		testnode.Run(t, strings.Fields(line)...)
	}

	testnode.Run(t, "ip", "link", "set", "w0", "up")
	syncs(t, config)

	p := NewProbe("mp0", s.Dir)
	tracked := func() int { // in conntrack
		text, err := link.ReadSysctl("net/netfilter/nf_conntrack_count")

		n, err2 := strconv.Atoi(text)
		if err := errors.Join(err, err2); err != nil {
			t.Fatal(err)
		}

		return n
	}
	before := tracked()

	looks(t, p)

	if now := tracked(); now > before {
		t.Errorf("%d connections are tracked after probes, before %d", now, before)
	}

	testnode.Run(t, "nft", "table inet x { chain f { type filter hook forward priority 0; policy drop; }; }")
	looks(t, p, "IPv4: inet x f (policy drop)", "IPv6: inet x f (policy drop)")
	testnode.Run(t, "nft", "delete table inet x")
	looks(t, p)
}
