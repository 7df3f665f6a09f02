package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
	"github.com/ovn-ebpf/ovn-ebpf/cluster/masquerade"
	"github.com/ovn-ebpf/ovn-ebpf/test/lab"
)

// predecessor stands in for ovn-kubernetes on node1, gateway mode shared: it leaves there
// what a node of it has, and then does nothing any more. Of the Northbound database it
// has nothing: there the lab's controller has written what it plans from the node's
// annotations, under the same names, and is stopped.
type predecessor struct {
	*Cluster
	mac           string
	uplink, patch string // their numbers on the bridge
	subnets       []netip.Prefix
}

const (
	oldBridge = "breth0"
	oldCookie = "0xdeff105"
)

// family is what the predecessor needs to know of an IP version.
type family struct {
	ip                            string // the word of ovs-ofctl
	src, dst                      string
	node, ovn, host, hop, service string
	hostPrefix                    string
}

func (p *predecessor) families() []family {
	n := p.Node(1)

	return []family{
		{"ip", "nw_src", "nw_dst", n.IP4.String(), "169.254.169.1", "169.254.169.2", "169.254.169.4", "10.96.0.0/16", "29"},
		{"ipv6", "ipv6_src", "ipv6_dst", n.IP6.String(), "fd69::1", "fd69::2", "fd69::4", "fd00:10:96::/112", "125"},
	}
}

// standinOVNKubernetes makes node1 such a node, before there is an agent, and starts the
// controller.
func standinOVNKubernetes(t *testing.T, c *Cluster) *predecessor {
	t.Helper()

	p := &predecessor{Cluster: c, subnets: []netip.Prefix{netip.MustParsePrefix("10.244.7.0/24"), netip.MustParsePrefix("fd00:10:244:7::/64")}}
	_, rest, _ := strings.Cut(c.execute(t, "node1", "ip", "-o", "link", "show", lab.UplinkPlain), "link/ether ")
	p.mac, _, _ = strings.Cut(rest, " ")
	p.annotate(t)

	if err := c.StartController(t.Context()); err != nil {
		t.Fatal(err)
	}

	p.wire(t)

	if err := c.AwaitController(t.Context()); err != nil {
		t.Fatal(err)
	}

	p.manage(t)
	within(t, "patch port", func() error {
		out, err := c.Exec(t.Context(), "node1", "ovs-vsctl", "get", "Interface", "patch-"+oldBridge+"_node1-to-br-int", "ofport")

		p.patch = strings.TrimSpace(string(out))
		if err == nil && p.patch == "[]" { // its row is there before ovs-vswitchd has seen it
			err = errors.New("it has no number yet")
		}

		return err
	})
	p.uplink = strings.TrimSpace(c.execute(t, "node1", "ovs-vsctl", "get", "Interface", lab.UplinkPlain, "ofport"))
	p.program(t)

	return p
}

// sh runs lines on node1.
func (p *predecessor) sh(t *testing.T, lines ...string) string {
	t.Helper()
	return p.execute(t, "node1", "bash", "-c", "set -e\n"+strings.Join(lines, "\n"))
}

// annotate writes what the node's ovn-kubernetes, and its controller, have told the cluster.
func (p *predecessor) annotate(t *testing.T) {
	t.Helper()

	n := p.Node(1)
	cidrs := []netip.Prefix{netip.PrefixFrom(n.IP4, 24), netip.PrefixFrom(n.IP6, 64)}

	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{
		annotation.NodeSubnets:    annotation.FormatNodeSubnets(p.subnets),
		annotation.ChassisID:      n.Name,
		annotation.HostCIDRs:      annotation.FormatHostCIDRs(cidrs),
		annotation.ManagementMACs: `{"default":"0a:58:0a:f4:07:02"}`,
		annotation.GatewayConfig: moreWords(annotation.FormatGateway(annotation.Gateway{
			Mode: annotation.GatewayModeShared, InterfaceID: oldBridge + "_" + n.Name, MAC: p.mac, Addresses: cidrs, NodePorts: true,
			NextHops: []netip.Addr{netip.MustParseAddr(lab.ExtIP4), netip.MustParseAddr(lab.ExtIP6)},
		})),
		// Ours, but an old NAT has no range: the kernel's for connections, so that ports are before ours.
		annotation.SNATPortRange:                      "32768-40959",
		"k8s.ovn.org/node-encap-ips":                  `["` + n.IP4.String() + `"]`,
		"k8s.ovn.org/zone-name":                       "global",
		"k8s.ovn.org/remote-zone-migrated":            "global",
		"k8s.ovn.org/node-primary-ifaddr":             `{"ipv4":"` + cidrs[0].String() + `","ipv6":"` + cidrs[1].String() + `"}`,
		"k8s.ovn.org/node-transit-switch-port-ifaddr": `{"ipv4":"100.88.0.2/16"}`,
	}}})
	if err != nil {
		t.Fatal(err)
	}

	client, err := p.Kubernetes()
	if err != nil {
		t.Fatal(err)
	}

	if _, err := client.CoreV1().Nodes().Patch(t.Context(), n.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

func moreWords(gateway string) string {
	return strings.Replace(gateway, `"mode"`, `"bridge-id":"`+oldBridge+`","mode"`, 1)
}

// annotations are those of ovn-kubernetes on the node, sorted.
func (p *predecessor) annotations(t *testing.T) []string {
	t.Helper()

	var out []string

	for k, v := range nodeAnnotations(t, p.Lab, "node1") {
		if strings.HasPrefix(k, "k8s.ovn.org/") {
			out = append(out, k+": "+v)
		}
	}

	slices.Sort(out)

	return out
}

// wire makes the bridge, with the NIC and its addresses.
func (p *predecessor) wire(t *testing.T) {
	t.Helper()

	n := p.Node(1)
	p.sh(t,
		"ovs-vsctl --timeout=60 --may-exist add-br br-int -- set Bridge br-int fail_mode=secure datapath_type="+p.Datapath()+" other_config:disable-in-band=true",
		"ovs-vsctl --timeout=60 add-br "+oldBridge+" -- br-set-external-id "+oldBridge+" bridge-id "+oldBridge+
			" -- br-set-external-id "+oldBridge+" bridge-uplink eth0 -- set Bridge "+oldBridge+" fail_mode=standalone datapath_type="+p.Datapath()+
			" other_config:hwaddr="+p.mac+" -- add-port "+oldBridge+" eth0 -- set Port eth0 other_config:transient=true",
		"ip link set "+oldBridge+" up",
		p.deaf("eth0"),
		fmt.Sprintf("ip addr add %s/24 dev %s; ip -6 addr add %s/64 dev %[2]s nodad", n.IP4, oldBridge, n.IP6),
		fmt.Sprintf("ip addr del %s/24 dev eth0; ip -6 addr del %s/64 dev eth0", n.IP4, n.IP6),
		fmt.Sprintf("ip route replace default via %s dev %s; ip -6 route replace default via %s dev %[2]s", lab.ExtIP4, oldBridge, lab.ExtIP6),
		"nft 'table inet ovn-kubernetes { chain mgmtport-snat { type nat hook postrouting priority 100; }; }'",
	)

	for _, f := range p.families() {
		p.sh(t,
			fmt.Sprintf("ip addr add %s/%s dev %s nodad", f.host, f.hostPrefix, oldBridge),
			fmt.Sprintf("ip neigh replace %s lladdr %s dev %s nud permanent", f.hop, masquerade.MAC, oldBridge),
			fmt.Sprintf("ip route add %s dev %s src %s mtu 1400", f.ovn, oldBridge, f.node),
			fmt.Sprintf("ip route add %s via %s dev %s src %s mtu 1400", f.service, f.hop, oldBridge, f.host),
		)
	}

	p.sh(t, "ovs-vsctl set Open_vSwitch . external_ids:ovn-remote="+p.SBAddress()+" external_ids:ovn-encap-type=geneve external_ids:ovn-encap-ip="+n.IP4.String()+
		" external_ids:hostname="+n.Name+" external_ids:ovn-bridge-datapath-type="+p.Datapath()+" external_ids:ovn-monitor-all=true"+
		" external_ids:ovn-enable-lflow-cache=true external_ids:ovn-bridge-mappings=physnet:"+oldBridge)
}

// deaf keeps the host's stack from what OVS on the userspace datapath reads from a device.
func (p *predecessor) deaf(device string) string {
	if p.Datapath() == "system" {
		return "true"
	}

	return fmt.Sprintf("nft 'table netdev standin { chain of_%s { type filter hook ingress device \"%s\" priority 0; policy drop; }; }'", device, device)
}

// manage makes the management port.
func (p *predecessor) manage(t *testing.T) {
	t.Helper()

	const port = "ovn-k8s-mp0"
	p.sh(t,
		"ovs-vsctl --timeout=60 add-port br-int "+port+" -- set Interface "+port+` type=internal mtu_request=1400 mac=\"0a:58:0a:f4:07:02\" external_ids:iface-id=k8s-node1`,
		"ip link set "+port+" up",
		"ip addr add 10.244.7.2/24 dev "+port+"; ip -6 addr add fd00:10:244:7::2/64 dev "+port+" nodad",
		"ip route add 10.244.0.0/16 via 10.244.7.1 dev "+port+"; ip -6 route add fd00:10:244::/48 via fd00:10:244:7::1 dev "+port,
		"ip route add 169.254.169.3 via 10.244.7.1 dev "+port,
	)
}

// plug is its CNI plugin.
func (p *predecessor) plug(ctx context.Context, pod *lab.Pod) error {
	veth := pod.UID[:8] + "_" + pod.UID[9:13]
	enter := "nsenter --net=/run/netns/" + pod.Netns + " "
	lines := []string{
		"set -e", "ip link add " + veth + " mtu 1400 type veth peer name eth0 mtu 1400 address " + pod.MAC.String() + " netns " + pod.Netns,
		"ip link set " + veth + " up", p.deaf(veth), enter + "sysctl -qw net.ipv4.ip_local_port_range='32768 40959'", enter + "ip link set eth0 up", enter + "ethtool -K eth0 tx off >/dev/null",
	}

	var with []string

	for i, a := range pod.IPs {
		s := p.subnets[i]
		router := s.Addr().Next()
		with = append(with, netip.PrefixFrom(a, s.Bits()).String())
		lines = append(lines, fmt.Sprintf("%sip addr add %s dev eth0%s", enter, with[i], map[bool]string{true: " nodad"}[a.Is6()]),
			fmt.Sprintf("%sip route add default via %s", enter, router))
	}

	lines = append(lines, fmt.Sprintf(`ovs-vsctl --timeout=60 add-port br-int %s other_config:transient=true -- set Interface %[1]s external_ids:attached_mac=\"%s\" external_ids:iface-id=%s_%s external_ids:iface-id-ver=%s external_ids:ip_addresses=\"%s\" external_ids:sandbox=%s`,
		veth, pod.MAC, pod.Namespace, pod.Name, pod.UID, strings.Join(with, ","), strings.Repeat(pod.UID[:8], 8)),
		"timeout 60 bash -c 'until [ \"$(ovs-vsctl get Interface "+veth+" external_ids:ovn-installed 2>/dev/null)\" = \\\"true\\\" ]; do sleep 0.1; done'")
	_, err := p.Exec(ctx, "node1", "bash", "-c", strings.Join(lines, "\n"))

	return err
}

// program writes the flows.
func (p *predecessor) program(t *testing.T) {
	t.Helper()

	flows := strings.NewReplacer("UPLINK", p.uplink, "PATCH", p.patch, "MAC", p.mac).Replace(oldCommon)
	for _, f := range p.families() {
		flows += strings.NewReplacer("UPLINK", p.uplink, "PATCH", p.patch, "MAC", p.mac, "IP", f.ip, "SRC", f.src, "DST", f.dst,
			"NODE", f.node, "MASQOVN", f.ovn, "MASQHOST", f.host, "SERVICES", f.service).Replace(oldFamily)
		six := map[bool]string{true: "6"}[f.ip == "ipv6"]
		flows += fmt.Sprintf("priority=110,in_port=%s,tcp%s,tp_dst=%d,actions=output:%s\n", p.uplink, six, nodePort, p.patch)
	}

	var lines []string

	for line := range strings.Lines(flows) {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, "cookie="+oldCookie+","+line)
		}
	}

	file := filepath.Join(t.TempDir(), "flows")
	if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}

	p.sh(t, "ovs-ofctl -O OpenFlow13 --bundle replace-flows "+oldBridge+" "+file)
}

// The flows in the order of what they are for, not those of the project itself: its tables,
// priorities, zones and marks.
const (
	oldCommon = `
priority=10,in_port=UPLINK,dl_dst=MAC,actions=output:PATCH,LOCAL
priority=10,in_port=PATCH,dl_src=MAC,actions=NORMAL
priority=9,in_port=PATCH,actions=drop
priority=0,actions=NORMAL
table=1,priority=10,dl_dst=MAC,actions=LOCAL
table=1,priority=0,actions=NORMAL
table=1,priority=14,icmp6,icmp_type=134,actions=FLOOD
table=1,priority=14,icmp6,icmp_type=136,actions=FLOOD
table=2,actions=set_field:MAC->eth_dst,output:PATCH
table=3,actions=move:NXM_OF_ETH_DST[]->NXM_OF_ETH_SRC[],set_field:MAC->eth_dst,LOCAL
`
	oldFamily = `
priority=500,IP,in_port=LOCAL,DST=SERVICES,actions=ct(commit,zone=64001,nat(src=MASQHOST),table=2)
priority=500,IP,in_port=PATCH,SRC=SERVICES,DST=MASQHOST,actions=ct(zone=64001,nat,table=3)
priority=500,IP,in_port=LOCAL,DST=MASQOVN,actions=ct(zone=64002,nat,table=5)
priority=500,IP,in_port=PATCH,SRC=NODE,DST=MASQHOST,actions=ct(commit,zone=64001,nat(dst=NODE),table=4)
priority=105,IP,pkt_mark=0x3f0,in_port=PATCH,actions=ct(commit,zone=64000,nat(src=NODE),exec(set_field:0x1->ct_mark)),output:UPLINK
priority=100,IP,in_port=PATCH,actions=ct(commit,zone=64000,exec(set_field:0x1->ct_mark)),output:UPLINK
priority=100,IP,in_port=LOCAL,actions=ct(commit,zone=64000,exec(set_field:0x2->ct_mark)),output:UPLINK
priority=50,IP,in_port=UPLINK,actions=ct(zone=64000,nat,table=1)
table=1,priority=100,IP,ct_state=+est+trk,ct_mark=0x1,actions=output:PATCH
table=1,priority=100,IP,ct_state=+est+trk,ct_mark=0x2,actions=LOCAL
table=1,priority=100,IP,ct_state=+rel+trk,ct_mark=0x1,actions=output:PATCH
table=1,priority=100,IP,ct_state=+rel+trk,ct_mark=0x2,actions=LOCAL
table=4,IP,actions=ct(commit,zone=64002,nat(src=MASQOVN),table=3)
table=5,IP,actions=ct(commit,zone=64001,nat,table=2)
`
)

// left is all that the predecessor has on the node, a line each.
func (p *predecessor) left(t *testing.T) []string {
	t.Helper()

	n := p.Node(1)

	out := p.sh(t,
		"ovs-vsctl --columns=external_ids,other_config list Open_vSwitch",
		`ovs-vsctl --columns=name,datapath_type,fail_mode,other_config,external_ids list Bridge | sed 's/ovn-nb-cfg[a-z-]*="[0-9]*"//g'`,
		"for b in br-int "+oldBridge+"; do ovs-vsctl list-ports $b; done",
		"ovs-vsctl --columns=name,other_config,external_ids,tag list Port",
		"ovs-vsctl --columns=name,type,mac,mtu_request,ofport,options list Interface",
		"ovs-vsctl --columns=name,external_ids list Interface | sed 's/, ovn-installed-ts=\"[0-9]*\"//'",
		"ovs-ofctl -O OpenFlow13 --no-stats dump-flows "+oldBridge+" | grep cookie="+oldCookie+" | sort",
		"ip -d addr show | sed 's/ promiscuity.*//; s/ state [A-Z]*//; s/ qlen [0-9]*//; s/ *$//'", // a qdisc that was there and is empty leaves that
		"ip route show table all", "ip -6 route show table all | grep -v multicast", "ip rule", "ip neigh show nud permanent", "nft list ruleset",
		"for d in "+oldBridge+" eth0 ovn-k8s-mp0; do echo rp_filter $d $(cat /proc/sys/net/ipv4/conf/$d/rp_filter); done",
		"for d in eth0 "+oldBridge+"; do tc filter show dev $d ingress 2>/dev/null || true; done", "for d in "+n.PinDir+" "+n.CNIConfDir+"; do ls -A $d 2>/dev/null || true; done",
	)
	for _, table := range strings.Fields("NAT Logical_Router Logical_Router_Port Logical_Router_Static_Route Logical_Router_Policy Logical_Switch Load_Balancer") {
		out += p.execute(t, "central", "ovn-nbctl", "list", table)
	}

	return append(slices.Collect(strings.Lines(out)), p.annotations(t)...)
}
