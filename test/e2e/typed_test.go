package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovn-ebpf/ovn-ebpf/test/lab"
)

// TestTyped: a cluster that is set up by what the first generation's documents tell the
// operator to type: a master, a minion and the watcher, and on the kernel datapath, which these
// layouts need, a gateway with a NIC of OVN's own and one that shares its NIC.
func TestTyped(t *testing.T) {
	o := labOptions(t, lab.Options{Nodes: 2, Kube: true, Hosts: true})
	if lab.KernelDatapath() {
		o.Nodes, o.Uplink = 4, lab.UplinkOwn
	}
	l, err := lab.Up(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	downAfter(t, l, o)
	k := newTypist(t, l, filepath.Join(o.BinDir, "ovnkube"))
	c := &Cluster{Lab: l, Pods: map[string]*lab.Pod{}, Services: map[string]*corev1.Service{}, dir: o.Dir, bin: o.BinDir, wiring: wiringOf(o)}
	c.tool = trafficTool(c)
	k.introduce(t, o.Dir)
	k.join(t)
	var gateways []int
	if l.Datapath() == "system" {
		k.gateways(t)
		gateways = []int{3, 4}
	}
	t.Run("again is no change", func(t *testing.T) {
		minion := k.here(k.block(t, 2, 3)[1], 2)
		if out, err := k.try(t.Context(), 2, minion); err != nil || !strings.Contains(out, "part of the overlay") {
			t.Errorf("%v: %s", err, out)
		}
		_, err := k.try(t.Context(), 2, strings.ReplaceAll(minion, "10.244.2.0/24", "10.244.7.0/24"))
		if err == nil || !strings.Contains(err.Error(), "has the subnet 10.244.2.0/24") {
			t.Errorf("another subnet: %v", err)
		}
	})
	t.Run("traffic", func(t *testing.T) { k.traffic(t, c, gateways) })
	t.Run("the node is given back", func(t *testing.T) {
		k.types(t, 2, "kill $(cat /run/ovn-ebpf/agent.pid); while [ -e /run/ovn-ebpf/agent.pid ]; do sleep 0.1; done; ovnkube agent --cleanup --node-name node2 2>&1")
		if out := k.types(t, 2, "ovs-vsctl get Open_vSwitch . external_ids"); strings.Contains(out, " ovn-ebpf-") || !strings.Contains(out, "k8s-api-server") {
			t.Errorf("external_ids are %s", out)
		}
	})
}

// introduce tells every node's OVS what the documents say: where API server and databases are.
func (k *typist) introduce(t *testing.T, dir string) {
	t.Helper()
	client, err := k.Kubernetes()
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	const name, namespace = "ovn-k8s", "kube-system"
	config, err := k.RestConfig()
	if err != nil {
		t.Fatal(err)
	}
	ca := filepath.Join(dir, "ca.crt")
	if err := os.WriteFile(ca, config.CAData, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().ServiceAccounts(namespace).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: name, Namespace: namespace}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	token, err := client.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range k.Nodes() {
		line := k.block(t, 1, 1)[0]
		k.types(t, n.Index, "CENTRAL_IP=%s TOKEN=%s; %s", lab.CentralIP4, token.Status.Token, strings.ReplaceAll(line, "/etc/kubernetes/ca.crt", ca))
	}
}

// here makes of a line of the document what it is on the i-th node of this lab: its names and
// addresses, two families, and what must be said besides: the userspace datapath wants an
// address for its tunnels, and a gateway, whose bridge they go through; the lab's Services have networks of their own, and its nodes, which
// share a file system, sockets.
func (k *typist) here(line string, i int) string {
	n := k.Node(i)
	at4, at6 := k.GatewayIP(i, false), k.GatewayIP(i, true)
	if strings.Contains(line, "--bridge-interface") {
		at4, at6 = n.IP4, n.IP6
	}
	line = strings.NewReplacer(
		"192.168.0.0/16", "10.244.0.0/16,fd00:10:244::/48", fmt.Sprintf("192.168.%d.0/24", i), fmt.Sprintf("10.244.%d.0/24,fd00:10:244:%d::/64", i, i),
		"kube-master", n.Name, "kube-minion1", n.Name, "kube-gateway", n.Name, "eth1", lab.UplinkOwn, "eth0", lab.UplinkPlain,
		"10.33.74.138/24", fmt.Sprintf("%s/24,%s/64", at4, at6), "10.33.74.139/24", fmt.Sprintf("%s/24,%s/64", at4, at6),
		"10.33.74.253", lab.ExtIP4+","+lab.ExtIP6,
	).Replace(line)
	if strings.HasPrefix(line, "ovn-k8s-overlay ") {
		line += " --k8s-service-cidrs " + lab.ServiceCIDRs + " --cni-socket " + n.CNISocket
		if n.Encap.IsValid() {
			line += " --gateway-mode shared --gateway-interface " + lab.UplinkPlain + " --encap-ip " + n.Encap.String()
		}
	}
	return line
}

// join types on master and minion, each of which leads until the watcher does.
func (k *typist) join(t *testing.T) {
	t.Helper()
	lines := k.block(t, 2, 3)
	k.types(t, 1, "%s", k.here(lines[0], 1))
	k.types(t, 2, "%s", k.here(lines[1], 2))
	k.types(t, 1, "%s", lines[2])
	if out := k.types(t, 1, "cat /var/run/openvswitch/ovn-k8s-watcher.pid; grep -c . /var/log/openvswitch/ovn-k8s-watcher.log"); len(strings.Fields(out)) != 2 {
		t.Errorf("pid file and log: %s", out)
	}
}

// gateways types on the gateway with a NIC of OVN's own, and on the one that shares its NIC.
func (k *typist) gateways(t *testing.T) {
	t.Helper()
	lines := k.block(t, 3, 4)
	k.types(t, 3, "%s", k.here(lines[0], 3))
	for _, line := range lines[1:] {
		k.types(t, 4, "%s", k.here(line, 4))
	}
	within(t, "the helper is the node's agent, and ready", func() error {
		_, err := k.try(t.Context(), 4, "[ $(cat /var/run/openvswitch/ovn-k8s-gateway-helper.pid) = $(cat /run/ovn-ebpf/agent.pid) ] && ovnkube status")
		return err
	})
}

// traffic goes between pods, out through the gateways, and in to a Service by each.
func (k *typist) traffic(t *testing.T, c *Cluster, gateways []int) {
	for name, node := range map[string]string{"a": "node1", "c": "node2"} {
		if err := c.addPod(t.Context(), name, node); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.serve(t.Context(), "ext", "ext", outsidePort); err != nil {
		t.Fatal(err)
	}
	if err := c.addService(t.Context(), lab.ServiceSpec{
		Name: "web", Type: corev1.ServiceTypeNodePort, Pods: []*lab.Pod{c.Pods["a"], c.Pods["c"]}, Ports: servicePorts(podPort, nodePort),
	}); err != nil {
		t.Fatal(err)
	}
	bothFamilies(t, func(t *testing.T, v6 bool) {
		asks := func(what, from, want string, to func(bool) string) {
			t.Helper()
			within(t, what, func() error {
				out, err := c.Exec(t.Context(), from, c.traffic("tcp", "-timeout", "3s", to(v6))...)
				if server, _, _ := strings.Cut(strings.TrimSpace(string(out)), " "); err == nil && !strings.Contains(","+want+",", ","+server+",") {
					return fmt.Errorf("answered by %q, want one of %s", out, want)
				}
				return err
			})
		}
		asks("pod to pod", host("a"), "c", func(v6 bool) string { return port(c.pod("c")(v6), podPort).String() })
		asks("pod to cluster IP", host("a"), "a,c", func(v6 bool) string { return port(c.cluster("web")(v6), servicePort).String() })
		asks("node to pod", "node1", "c", func(v6 bool) string { return port(c.pod("c")(v6), podPort).String() })
		if len(gateways) > 0 {
			asks("pod to outside", host("c"), "ext", func(v6 bool) string { return port(outside(v6), outsidePort).String() })
		}
		for _, i := range gateways {
			at := c.gateway(i)
			if i == 4 {
				at = c.node(i)
			}
			asks(fmt.Sprintf("outside to a NodePort of node%d", i), "ext", "a,c", func(v6 bool) string { return port(at(v6), nodePort).String() })
		}
	})
}
