package agent

import (
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/ovn-ebpf/ovn-ebpf/agent/gateway"
	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/cluster"
	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

func valid() Config {
	return Config{
		NodeName: "node1", RestConfig: &rest.Config{}, OVSDB: "unix:/run/openvswitch/db.sock", OVNRunDir: "/run/ovn", CNISocket: "/run/x/cni.sock",
		Settings: gateway.Settings{
			Cluster: gateway.Cluster{
				PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")}, ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")},
				SNATPorts: cluster.PortRange{First: 49152, Last: 65535}, NodePortRange: cluster.PortRange{First: 30000, Last: 32767},
			},
			PinDir: "/sys/fs/bpf/x", RunDir: "/run/x", OVSRunDir: "/run/openvswitch",
		},
	}
}

func TestValidate(t *testing.T) {
	if err := valid().Validate(); err != nil {
		t.Fatal(err)
	}

	for _, tc := range []struct {
		name   string
		change func(*Config)
		want   string
	}{
		{"no node", func(c *Config) { c.NodeName = "" }, "node name"},
		{"no API", func(c *Config) { c.RestConfig = nil }, "kubeconfig"},
		{"OVSDB", func(c *Config) { c.OVSDB = "/run/db.sock" }, `OVSDB address "/run/db.sock"`},
		{"datapath", func(c *Config) { c.Datapath = "dpdk" }, `datapath "dpdk"`},
		{"no subnets", func(c *Config) { c.PodCIDRs = nil }, "cluster subnets"},
		{"overlap", func(c *Config) { c.ServiceCIDRs = []netip.Prefix{netip.MustParsePrefix("10.244.9.0/24")} }, "cluster subnet 10.244.0.0/16 overlaps service CIDR 10.244.9.0/24"},
		{"empty port range", func(c *Config) { c.SNATPorts = cluster.PortRange{First: 9, Last: 8} }, "SNAT port range 9-8"},
		{"overlaps the NodePorts", func(c *Config) { c.SNATPorts.First = 32000 }, "overlaps the NodePort range"},
		{"privileged ports", func(c *Config) { c.SNATPorts = cluster.PortRange{First: 1, Last: 29999} }, "ports below 1024 are the host's"},
		{"southbound", func(c *Config) { c.SBAddress = "tcp:10.0.0.1:6642,10.0.0.2:6642" }, `southbound database address "10.0.0.2:6642"`},
		{"encap address", func(c *Config) { c.EncapIP = netip.MustParseAddr("0.0.0.0") }, "encap address 0.0.0.0"},
		{"metrics", func(c *Config) { c.MetricsAddr = "nonsense" }, "metrics address: address nonsense"},
		{"MTU", func(c *Config) { c.MTU = 575 }, "MTU 575: want 576..65535"},
		{"MTU of IPv6", func(c *Config) {
			c.MTU, c.PodCIDRs = 1279, append(c.PodCIDRs, netip.MustParsePrefix("fd00:10:244::/48"))
		}, "MTU 1279: want 1280..65535"},
		{"layout", func(c *Config) { c.Layout = verdict.Dedicated + 1 }, `gateway layout 3: want direct, bridged or dedicated`},
		{"backend", func(c *Config) { c.Backend = "xdp" }, `gateway backend "xdp"`},
		{"openflow without a bridge", func(c *Config) { c.Backend = gateway.OpenFlow }, "openflow: only in layout bridged"},
		{"VLAN without a bridge", func(c *Config) { c.VLAN = 5 }, "gateway VLAN 5: not in layout direct"},
		{"VLAN", func(c *Config) { c.VLAN = 4095 }, "gateway VLAN 4095: want 1..4094"},
		{"eBPF behind OVS", func(c *Config) { c.Layout, c.Datapath = verdict.Bridged, "netdev" }, "use backend openflow"},
		{"gateway address without a dedicated NIC", func(c *Config) { c.Addresses = []netip.Prefix{netip.MustParsePrefix("192.0.2.5/24")} }, "only in layout dedicated"},
		{"dedicated NIC", func(c *Config) { c.Layout = verdict.Dedicated }, "gateway interface: layout dedicated wants one"},
		{"dedicated address", func(c *Config) { c.Layout, c.Uplink = verdict.Dedicated, "eth1" }, "gateway address: layout dedicated needs one"},
		{"dedicated next hop", func(c *Config) {
			c.Layout, c.Uplink = verdict.Dedicated, "eth1"
			c.Addresses = []netip.Prefix{netip.MustParsePrefix("192.0.2.5/24")}
		}, "gateway next hop"},
		{"relative path", func(c *Config) { c.PinDir = "x" }, `pin directory "x"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := valid()
			tc.change(&c)

			if err := c.Validate(); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}

func TestRunRefuses(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	c := valid()

	c.NodeName = ""
	if err := Run(t.Context(), c, log); err == nil || !strings.Contains(err.Error(), "node name") {
		t.Errorf("bad configuration: %v", err)
	}

	c = valid()

	c.Uplink = "nothere0"
	if err := Run(t.Context(), c, log); err == nil || !strings.Contains(err.Error(), "nothere0") || strings.Contains(err.Error(), "\n") {
		t.Errorf("missing uplink: got %v, want one line that names it", err)
	}

	c.Uplink, c.Datapath = "lo", "netdev"
	if err := Run(t.Context(), c, log); err == nil || !strings.Contains(err.Error(), "encap address") {
		t.Errorf("userspace datapath without encap address: %v", err)
	}
}

// TestRunNeedsPrivileges runs this binary with one capability less.
func TestRunNeedsPrivileges(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}

	for _, capability := range []string{"sys_admin", "net_admin"} {
		cmd := exec.Command("setpriv", "--bounding-set", "-"+capability, self)

		cmd.Env = append(os.Environ(), privilegesEnv+"=1")

		out, err := cmd.CombinedOutput()
		if want := "missing CAP_" + strings.ToUpper(capability); err != nil || !strings.Contains(string(out), want) || strings.Count(string(out), "\n") != 1 {
			t.Errorf("without %s: %q, error %v, want one line with %q", capability, out, err, want)
		}
	}
}

func TestMTU(t *testing.T) {
	e4, e6 := netip.MustParseAddr("1.2.3.4"), netip.MustParseAddr("fd00::1")
	if got := (Config{}).PodMTU(1500, e4); got != 1442 {
		t.Errorf("over IPv4: %d", got)
	}

	if got := (Config{}).PodMTU(1500, e6); got != 1422 {
		t.Errorf("over IPv6: %d", got)
	}

	if got := (gateway.Cluster{MTU: 1400}).PodMTU(9000, e4); got != 1400 {
		t.Errorf("configured: %d", got)
	}
}

func TestNodeAnnotations(t *testing.T) {
	cfg := valid()
	cfg.NodePorts = true
	n := gateway.Node{
		Uplink:    link.Link{Name: "eth0", MAC: net.HardwareAddr{2, 0, 0, 0, 0, 1}},
		Addresses: []netip.Prefix{netip.MustParsePrefix("172.30.0.11/24")},
		NextHops:  []netip.Addr{netip.MustParseAddr("172.30.0.200")},
		HostCIDRs: []netip.Prefix{netip.MustParsePrefix("172.30.0.11/24")},
	}
	cfg.Bridge = "breth0"
	tunnel := netip.MustParseAddr("192.0.2.7") // in layout dedicated it is not the gateway's

	got := nodeAnnotations(cfg, n, nil, chassis{"chassis1", tunnel}, nil)
	if _, ok := got[annotation.ManagementMACs]; ok {
		t.Error("got a management port address before the node has a subnet")
	}

	got = nodeAnnotations(cfg, n, nil, chassis{"chassis1", tunnel}, []netip.Prefix{netip.MustParsePrefix("10.244.1.0/24")})

	gw, err := annotation.ParseGateway(got)
	if err != nil || gw.InterfaceID != "breth0_node1" || gw.MAC != "02:00:00:00:00:01" || !gw.NodePorts || gw.Mode != "shared" {
		t.Errorf("gateway %+v, error %v", gw, err)
	}

	if mac, err := annotation.ParseManagementMAC(got); err != nil || mac.String() != "0a:58:0a:f4:01:02" {
		t.Errorf("management MAC %s, error %v", mac, err)
	}

	if got[annotation.SNATPortRange] != "49152-65535" || got[annotation.PodMTU] == "" || got[annotation.ChassisID] != "chassis1" || got[annotation.TunnelAddress] != "192.0.2.7" {
		t.Errorf("annotations %v", got)
	}

	cfg.Local, cfg.VLAN, cfg.Routable = true, 5, true

	other := nodeAnnotations(cfg, n, nil, chassis{"chassis1", tunnel}, nil)
	if gw, err := annotation.ParseGateway(other); err != nil || gw.Mode != "local" || gw.VLAN != 5 || other[annotation.RoutablePods] != "true" {
		t.Errorf("local gateway mode: %+v, error %v, routable %q", gw, err, other[annotation.RoutablePods])
	}

	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"foreign": "1"}}}
	for k, v := range got {
		node.Annotations[k] = v
	}

	if d := differing(node, got); len(d) != 0 {
		t.Errorf("differing %v", d)
	}

	delete(node.Annotations, annotation.ChassisID)

	if d := differing(node, got); len(d) != 1 || d[annotation.ChassisID] != "chassis1" {
		t.Errorf("differing %v, want the removed one", d)
	}
}
