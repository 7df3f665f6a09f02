package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/bench"
	"github.com/ovn-ebpf/ovn-ebpf/test/platform"
)

const (
	ovnDir      = "/run/ovn"
	ovnServices = 100       // Services besides those of the tests
	joinIP6     = "fd98::2" // of the gateway router in the join network

	// Addresses of the node's management port, and of routers in the join network.
	nodeManagementIP, nodeManagementIP6 = "10.244.0.2", "fd00:10:244::2"
	clusterJoinMAC, nodeJoinMAC         = "0a:58:64:40:00:01", "0a:58:64:40:00:02"
)

// onOVN returns o with real OVN behind breth0's patch port: databases, northd, and two chassis with
// a pod each, which are the node and the machine outside.
func (o ovs) onOVN() ovs {
	o.ovn = true
	return o
}

// limit returns the traits of a variant on o. On real OVN, it limits the tests to those in which
// OVN takes part, and a test of the host, which OVN must not affect.
func (o ovs) limit(t traits) traits {
	if !o.ovn {
		return t
	}

	t.name += bench.OnOVN
	t.tests = []string{bench.HostUDPRR, bench.OverlayUDPRR, bench.NSUDPRR, bench.NSTCPRR, bench.NSTCPCRR, bench.NodePortLocal, bench.NodePortRemote}
	t.ipv6 = []string{bench.NSUDPRR, bench.NSTCPCRR}

	return t
}

// realOVN starts OVN and connects breth0 and the pods. snatPorts and uplink are as in integration.
func (o ovs) realOVN(ctx context.Context, snatPorts, uplink string) error {
	if err := os.MkdirAll(ovnDir, 0o755); err != nil {
		return fmt.Errorf("start OVN: %w", err)
	}

	if err := startCentral(ctx); err != nil {
		return err
	}

	if err := o.chassis(ctx, "node1", nodeIP, "physnet:"+uplink); err != nil {
		return err
	}

	if err := o.vsctl(ctx, "add-port br-int pod0 -- set interface pod0 external_ids:iface-id=pod"); err != nil {
		return err
	}

	if err := farChassis(ctx, o); err != nil {
		return err
	}

	rows := "ovn-nbctl --db=unix:" + ovnDir + "/nb.sock --timeout=300 --wait=hv " + strings.Join(ovnRows(snatPorts), " -- ")
	if _, err := command(ctx, rows, "sh", "-e"); err != nil {
		return err
	}

	return eventually(ctx, func() error {
		_, _, err := o.patchPort(ctx)
		return err
	})
}

// eventually calls f until it returns nil, for up to a minute. A minute of an idle guest takes no
// real time.
func eventually(ctx context.Context, f func() error) error {
	var err error
	for range 120 {
		if err = f(); err == nil || ctx.Err() != nil {
			return err
		}

		time.Sleep(500 * time.Millisecond)
	}

	return err
}

// startCentral starts the databases and northd.
func startCentral(ctx context.Context) error {
	_, err := command(ctx, `
		cd `+ovnDir+`
		export OVN_RUNDIR=`+ovnDir+`
		for db in nb sb; do
			ovsdb-tool create $db.db "$(eval echo \$$db)"
			ovsdb-server $db.db --remote=punix:`+ovnDir+`/$db.sock --unixctl=`+ovnDir+`/$db.ctl --pidfile=`+ovnDir+`/$db.pid --detach --no-chdir --log-file=`+ovnDir+`/$db.log -vconsole:off
		done
		ovn-northd --ovnnb-db=unix:`+ovnDir+`/nb.sock --ovnsb-db=unix:`+ovnDir+`/sb.sock --pidfile=`+ovnDir+`/northd.pid --detach --no-chdir --log-file=`+ovnDir+`/northd.log -vconsole:off
	`, "env", "nb="+platform.OVNFile("ovn-nb.ovsschema"), "sb="+platform.OVNFile("ovn-sb.ovsschema"), "sh", "-e")

	return err
}

// chassis creates br-int and starts ovn-controller for the chassis name with the tunnel address ip.
// mappings is the value of ovn-bridge-mappings, or "".
func (o ovs) chassis(ctx context.Context, name, ip, mappings string) error {
	words := fmt.Sprintf(`add-br br-int -- set bridge br-int fail-mode=secure -- set Open_vSwitch . external_ids:system-id=%[1]s external_ids:hostname=%[1]s
		external_ids:ovn-remote=unix:%[3]s/sb.sock external_ids:ovn-encap-type=geneve external_ids:ovn-encap-ip=%[2]s`, name, ip, ovnDir)
	if mappings != "" {
		words += " external_ids:ovn-bridge-mappings=" + mappings
	}

	if err := o.vsctl(ctx, words); err != nil {
		return err
	}

	return script(ctx, o.netns, fmt.Sprintf(`
		export OVS_RUNDIR=%[1]s OVN_RUNDIR=%[1]s
		ovn-controller unix:%[1]s/db.sock --pidfile=%[1]s/ovn-controller.pid --detach --no-chdir --log-file=%[1]s/ovn-controller.log -vconsole:off
	`, o.dir))
}

// farChassis makes the machine outside the second node. far0 becomes the pod's device on its
// br-int.
func farChassis(ctx context.Context, node ovs) error {
	far := ovs{netns: outsideNS, dir: node.dir + "-far", log: node.log, ovn: true}
	if err := ipBatch(ctx, outsideNS, "link del far0"); err != nil {
		return err
	}

	if err := far.start(ctx); err != nil {
		return err
	}

	if err := far.chassis(ctx, "node2", outsideIP, ""); err != nil {
		return err
	}

	if err := far.vsctl(ctx, "add-port br-int far0 -- set interface far0 type=internal external_ids:iface-id=farpod"); err != nil {
		return err
	}

	return ipBatch(ctx, outsideNS, "link set far0 address "+farPodMAC+" mtu 1400"+farPod)
}

// reached waits, on real OVN, until the pod reaches the machine outside and the pod of the other
// node.
func (o ovs) reached(ctx context.Context) error {
	if !o.ovn {
		return nil
	}

	err := eventually(ctx, func() error {
		return inNetns(podNS, func() error {
			for _, ip := range []string{outsideIP, farPodIP} {
				if _, err := command(ctx, "", "ping", "-n", "-c1", "-W1", ip); err != nil {
					return err
				}
			}

			return nil
		})
	})
	if err != nil {
		return fmt.Errorf("check: OVN does not forward: %w", err)
	}

	return nil
}

// ovnRows returns the commands of ovn-nbctl, quoted for a shell, that write what the controller
// plans for two nodes with a pod each (controller/plan/testdata): cluster router, join switch, a
// switch for each node, the gateway router of the first node with SNAT, a policy that allows the
// pods, and Services.
func ovnRows(snatPorts string) []string {
	rows := []string{
		"lr-add ovn_cluster_router",
		"set logical_router ovn_cluster_router options:always_learn_from_arp_request=false options:dynamic_neigh_routers=false",
		"ls-add join",
		"lrp-add ovn_cluster_router rtoj-ovn_cluster_router " + clusterJoinMAC + " 100.64.0.1/16 fd98::1/64",
	}
	rows = append(rows, routerPort("join", "jtor-ovn_cluster_router", "rtoj-ovn_cluster_router")...)
	rows = append(rows, switchRows("node1", routerMAC, routerIP, routerIP6, nodeManagementIP, nodeManagementIP6)...)

	rows = append(rows, switchRows("node2", farRouterMAC, farRouterIP, farRouterIP6, "10.244.1.2", "fd00:10:244:1::2")...)

	for _, p := range []struct{ node, port, addresses string }{
		{"node1", "pod", podMAC + " " + podIP + " " + podIP6},
		{"node2", "farpod", farPodMAC + " " + farPodIP + " " + farPodIP6},
	} {
		rows = append(rows,
			fmt.Sprintf("lsp-add %s %s", p.node, p.port),
			fmt.Sprintf("lsp-set-addresses %s '%s'", p.port, p.addresses),
			fmt.Sprintf("lsp-set-port-security %s '%s'", p.port, p.addresses))
	}

	rows = append(rows, gatewayRows(strings.TrimPrefix(snatPorts, ":"))...)
	rows = append(rows,
		"pg-add pods pod farpod",
		"acl-add pods to-lport 1000 'outport==@pods && ip' drop",
		"acl-add pods to-lport 1001 'outport==@pods && ip' allow-related",
		"--apply-after-lb acl-add pods from-lport 1000 'inport==@pods && ip' drop",
		"--apply-after-lb acl-add pods from-lport 1001 'inport==@pods && ip' allow-related",
	)

	return append(rows, serviceRows()...)
}

// routerPort returns the commands for a switch's port to a router.
func routerPort(ls, port, peer string) []string {
	return []string{
		"lsp-add " + ls + " " + port,
		"lsp-set-type " + port + " router",
		"lsp-set-addresses " + port + " router",
		"lsp-set-options " + port + " router-port=" + peer,
	}
}

// switchRows returns the commands for a node's switch, with its management port.
func switchRows(node, mac, ip, ip6, management, management6 string) []string {
	rows := []string{
		"ls-add " + node,
		fmt.Sprintf("lrp-add ovn_cluster_router rtos-%s %s %s/24 %s/64", node, mac, ip, ip6),
		fmt.Sprintf("lrp-set-gateway-chassis rtos-%[1]s %[1]s 1", node),
		fmt.Sprintf("lsp-add %[1]s k8s-%[1]s", node),
		fmt.Sprintf("lsp-set-addresses k8s-%s '0a:58:00:00:00:02 %s %s'", node, management, management6),
		fmt.Sprintf("acl-add %s to-lport 1001 'ip4.src=={%s,169.254.169.5} || ip6.src=={%s,fd69::5}' allow-related", node, management, management6),
		fmt.Sprintf("--apply-after-lb acl-add %s from-lport 1002 'ip4.dst==169.254.169.0/29 || ip6.dst==fd69::/125' drop", node),
	}

	return append(rows, routerPort(node, "stor-"+node, "rtos-"+node)...)
}

// gatewayRows returns the commands for the gateway router of node1. ports is its port range for
// SNAT, or "".
func gatewayRows(ports string) []string {
	rows := []string{
		"lr-add GR_node1",
		"set logical_router GR_node1 options:chassis=node1 options:lb_force_snat_ip=router_ip options:always_learn_from_arp_request=false options:dynamic_neigh_routers=true",
		"lrp-add GR_node1 rtoj-GR_node1 " + nodeJoinMAC + " " + joinIP + "/16 " + joinIP6 + "/64",
		"set logical_router_port rtoj-GR_node1 options:gateway_mtu=1400",
		"lrp-add GR_node1 rtoe-GR_node1 " + nodeMAC + " " + nodeIP + "/24 " + nodeIP6 + "/64",
		"ls-add ext_node1",
		"lsp-add ext_node1 breth0_node1",
		"lsp-set-type breth0_node1 localnet",
		"lsp-set-addresses breth0_node1 unknown",
		"lsp-set-options breth0_node1 network_name=physnet",
	}
	rows = append(rows, routerPort("join", "jtor-GR_node1", "rtoj-GR_node1")...)
	rows = append(rows, routerPort("ext_node1", "etor-GR_node1", "rtoe-GR_node1")...)
	rows = append(rows, "lsp-set-addresses etor-GR_node1 "+nodeMAC)

	if ports != "" {
		ports = " external_port_range=" + ports
	}

	// up and down are the addresses of the cluster router and of the gateway router in the join
	// network.
	for _, f := range []struct{ family, cluster, up, down, all, next, external, pods, management string }{
		{"4", "10.244.0.0/16", "100.64.0.1", joinIP, "0.0.0.0/0", outsideIP, nodeIP, podNet, nodeManagementIP},
		{"6", "fd00:10:244::/48", "fd98::1", joinIP6, "::/0", outsideIP6, nodeIP6, podNet6, nodeManagementIP6},
	} {
		rows = append(rows,
			"lr-route-add GR_node1 "+f.cluster+" "+f.up,
			"lr-route-add GR_node1 "+f.all+" "+f.next+" rtoe-GR_node1",
			"lr-route-add ovn_cluster_router "+f.down+" "+f.down,
			"--policy=src-ip lr-route-add ovn_cluster_router "+f.pods+" "+f.down,
			fmt.Sprintf("lr-policy-add ovn_cluster_router 1004 'inport==\"rtos-node1\" && ip%s.dst==%s' reroute %s", f.family, f.external, f.management),
			fmt.Sprintf(`--id=@nat%s create nat type=snat 'external_ip="%s"' 'logical_ip="%s"'%s`, f.family, f.external, f.cluster, ports),
			fmt.Sprintf("add logical_router GR_node1 nat @nat%s", f.family),
			macBinding("out"+f.family, "rtoe-GR_node1", f.next, outsideMAC),
			macBinding("up"+f.family, "rtoj-GR_node1", f.up, clusterJoinMAC),
		)
	}

	return rows
}

// macBinding returns the command for a static neighbour of a router's port.
func macBinding(id, port, ip, mac string) string {
	return fmt.Sprintf(`--id=@%s create Static_MAC_Binding logical_port=%s 'ip="%s"' 'mac="%s"' override_dynamic_mac=true`, id, port, ip, mac)
}

// serviceRows returns the commands for the load balancers: Services, and the tests' NodePorts.
func serviceRows() []string {
	vips := fmt.Sprintf(`"%[1]s:%[2]d"="%[3]s:%[6]d","%[1]s:%[4]d"="%[5]s:%[6]d"`,
		nodeIP, localNodePort, podIP, remoteNodePort, farPodIP, podPort)

	rows := []string{loadBalancer("nodeports", vips)}
	all := "@nodeports"

	for i := range ovnServices {
		rows = append(rows, loadBalancer(fmt.Sprintf("service%d", i), fmt.Sprintf(`"10.96.1.%d:80"="%s:8080,%s:8080"`, i, podIP, farPodIP)))
		all += fmt.Sprintf(",@service%d", i)
	}

	return append(rows,
		"--id=@all create Load_Balancer_Group name=clusterLBGroup load_balancer="+all,
		"set logical_switch node1 load_balancer_group=@all",
		"set logical_switch node2 load_balancer_group=@all",
		"set logical_router GR_node1 load_balancer_group=@all",
	)
}

// loadBalancer returns the command for a load balancer with the name as the ID of its row.
func loadBalancer(name, vips string) string {
	return fmt.Sprintf(`--id=@%[1]s create Load_Balancer name=%[1]s protocol=tcp 'vips={%[2]s}' options:event=false `+
		`options:reject=true options:neighbor_responder=none options:skip_snat=false `+
		`'options:hairpin_snat_ip="169.254.169.5 fd69::5"'`, name, vips)
}
