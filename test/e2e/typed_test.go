package e2e

import (
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/ovn-ebpf/ovn-ebpf/test/lab"
	"github.com/ovn-ebpf/ovn-ebpf/test/lab/netns"
)

// Names of the nodes in the first generation's documents, and of the gateway with a shared NIC.
var firstNames = []string{"kube-master", "kube-minion1", "kube-minion2"}

// The outside network of the documents' gateway with a dedicated NIC.
const (
	firstGateway = "10.33.74.138"
	firstNextHop = "10.33.74.253/24"
)

// TestTyped sets up a cluster with the exact command lines of the first generation's documents: a
// master, a minion and the watcher. On the kernel datapath, which these layouts need, it adds a
// gateway with a dedicated NIC and one with a shared NIC.
func TestTyped(t *testing.T) {
	o := labOptions(t, lab.Options{Nodes: 2, Kube: true, Hosts: true, NodeNames: firstNames})
	if lab.KernelDatapath() {
		o.Nodes, o.Uplink = 4, lab.UplinkOwn
	}

	l, err := lab.Up(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}

	downAfter(t, l, o)
	k := newOperatorShell(t, l, filepath.Join(o.BinDir, "ovnkube"))
	c := &Cluster{Lab: l, Pods: map[string]*lab.Pod{}, Services: map[string]*corev1.Service{}, dir: o.Dir, bin: o.BinDir, wiring: wiringOf(o)}
	c.tool = trafficTool(c)

	k.servePlain(t)
	k.introduce(t)
	k.join(t)

	gateways := map[int]netip.Addr{}
	if l.Datapath() == "system" {
		k.gateways(t)
		gateways = map[int]netip.Addr{3: netip.MustParseAddr(firstGateway), 4: l.Node(4).IP4}
	}

	t.Run("a gateway-init that fails leaves nothing", func(t *testing.T) { k.failsToInit(t) })
	t.Run("again is no change, with TLS as well", func(t *testing.T) {
		minion := k.block(t, 4, 2)[1]
		k.first(t, 2, k.block(t, 5, 1)[0])

		if out, err := k.try(t.Context(), 2, minion); err != nil || !strings.Contains(out, "part of the overlay") {
			t.Errorf("%v: %s", err, out)
		}

		_, err := k.try(t.Context(), 2, strings.ReplaceAll(minion, "192.168.2.0/24", "192.168.7.0/24"))
		if err == nil || !strings.Contains(err.Error(), "has the subnet 192.168.2.0/24") {
			t.Errorf("another subnet: %v", err)
		}
	})
	t.Run("traffic", func(t *testing.T) { k.traffic(t, c, gateways) })
	t.Run("the node is cleaned up", func(t *testing.T) {
		k.types(t, 2, "kill $(cat /run/ovn-ebpf/agent.pid); while [ -e /run/ovn-ebpf/agent.pid ]; do sleep 0.1; done; ovnkube agent --cleanup --node-name kube-minion1 2>&1")

		if out := k.types(t, 2, "ovs-vsctl get Open_vSwitch . external_ids"); strings.Contains(out, " ovn-ebpf-") || !strings.Contains(out, "k8s-api-server") {
			t.Errorf("external_ids are %s", out)
		}
	})
}

// first runs a line of the first generation unchanged, with this lab's values for its variables.
func (k *operatorShell) first(t *testing.T, i int, line string) {
	t.Helper()

	n, server := k.Node(i), k.apiServer
	if strings.Contains(line, `"https://$K8S_API_SERVER_IP"`) {
		server = lab.CentralIP4 + ":6443"
	}

	k.types(t, i, "%s", "export CENTRAL_IP="+lab.CentralIP4+" LOCAL_IP="+n.IP4.String()+" ENCAP_TYPE=geneve"+
		" K8S_API_SERVER_IP="+server+" CA_CRT='"+k.caCert+"' API_TOKEN="+k.token+
		" CLUSTER_IP_SUBNET=192.168.0.0/16 PHYSICAL_IP="+n.IP4.String()+"/24 NODE_NAME="+n.Name+" EXTERNAL_GATEWAY="+lab.ExtIP4+"\n"+line)
}

// servePlain serves the API by plain HTTP on the master, as old API servers and kubectl proxy do,
// and creates a token for the other nodes.
func (k *operatorShell) servePlain(t *testing.T) {
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

	target, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}

	transport, err := rest.TransportFor(config)
	if err != nil {
		t.Fatal(err)
	}

	var l net.Listener

	if err := netns.Do(k.Node(1).Netns, func() (err error) {
		l, err = net.Listen("tcp4", "0.0.0.0:8080")
		return err
	}); err != nil {
		t.Fatal(err)
	}

	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }, Transport: transport, FlushInterval: -1}

	server := &http.Server{Handler: proxy, ErrorLog: log.New(io.Discard, "", 0)}
	go func() { _ = server.Serve(l) }()

	t.Cleanup(func() { _ = server.Close() })

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

	k.apiServer, k.caCert, k.token = k.Node(1).IP4.String(), string(config.CAData), token.Status.Token
}

// introduce configures the databases and the gateway's network in every node's OVS, and settings
// that only this lab needs: its nodes share a file system, and the userspace datapath needs an
// address for its tunnels and a gateway, as tunnels use its bridge.
func (k *operatorShell) introduce(t *testing.T) {
	t.Helper()

	for _, n := range k.Nodes() {
		k.first(t, n.Index, k.block(t, 1, 1)[0])
		k.first(t, n.Index, k.block(t, 2, 1)[0])

		needs := "external_ids:ovn-ebpf-cni-socket=" + n.CNISocket
		if n.Encap.IsValid() {
			needs += " external_ids:ovn-ebpf-gateway-mode=shared external_ids:ovn-ebpf-gateway-interface=" + lab.UplinkPlain + " external_ids:ovn-ebpf-encap-ip=" + n.Encap.String()
		}

		k.types(t, n.Index, "ovs-vsctl set Open_vSwitch . %s", needs)
	}
}

// join runs the commands on master and minion, each of which acts as controller until the watcher
// starts.
func (k *operatorShell) join(t *testing.T) {
	t.Helper()

	for _, line := range k.block(t, 3, 3) {
		k.first(t, 1, line)
	}

	for _, line := range k.block(t, 4, 2) {
		k.first(t, 2, line)
	}

	if out := k.types(t, 1, "cat /var/run/openvswitch/ovn-k8s-watcher.pid; grep -c . /var/log/openvswitch/ovn-k8s-watcher.log"); len(strings.Fields(out)) != 2 {
		t.Errorf("pid file and log: %s", out)
	}
}

// gateways runs the commands on the gateways with a dedicated and a shared NIC.
func (k *operatorShell) gateways(t *testing.T) {
	t.Helper()

	if out, err := k.Exec(t.Context(), "ext", "ip", "addr", "add", firstNextHop, "dev", "eth0"); err != nil {
		t.Fatal(err, string(out))
	}

	for _, i := range []int{3, 4} {
		k.first(t, i, k.block(t, 4, 2)[0])
	}

	k.first(t, 3, k.block(t, 6, 1)[0])

	for _, line := range k.block(t, 7, 3) {
		k.first(t, 4, line)
	}

	within(t, "the helper is the node's agent, and ready", func() error {
		_, err := k.try(t.Context(), 4, "[ $(cat /var/run/openvswitch/ovn-k8s-gateway-helper.pid) = $(cat /run/ovn-ebpf/agent.pid) ] && ovnkube status")
		return err
	})
}

// traffic checks one path of each kind: between pods, out through the gateways, in to a Service
// through each gateway, and from and to every host. The documents' network has one family.
func (k *operatorShell) traffic(t *testing.T, c *Cluster, gateways map[int]netip.Addr) {
	for name, node := range map[string]int{"a": 1, "c": 2} {
		if err := c.addPod(t.Context(), name, k.Node(node).Name); err != nil {
			t.Fatal(err)
		}
	}

	if err := c.serve(t.Context(), "ext", "ext", outsidePort); err != nil {
		t.Fatal(err)
	}

	if err := c.addService(t.Context(), lab.ServiceSpec{
		Name: "web", Type: corev1.ServiceTypeNodePort, Pods: []*lab.Pod{c.Pods["a"], c.Pods["c"]}, Ports: servicePorts(podPort, nodePort),
		Change: func(s *corev1.ServiceSpec) {
			s.IPFamilyPolicy, s.IPFamilies = new(corev1.IPFamilyPolicySingleStack), []corev1.IPFamily{corev1.IPv4Protocol}
		},
	}); err != nil {
		t.Fatal(err)
	}

	asks := func(what, from, want string, to netip.AddrPort) {
		t.Helper()
		within(t, what, func() error {
			out, err := c.Exec(t.Context(), from, c.traffic("tcp", "-timeout", "3s", to.String())...)
			if server, _, _ := strings.Cut(strings.TrimSpace(string(out)), " "); err == nil && !strings.Contains(","+want+",", ","+server+",") {
				return fmt.Errorf("answered by %q, want one of %s", out, want)
			}

			return err
		})
	}
	asks("pod to pod", host("a"), "c", port(c.pod("c")(false), podPort))
	asks("pod to cluster IP", host("a"), "a,c", port(c.cluster("web")(false), servicePort))
	asks("node to pod", "node1", "c", port(c.pod("c")(false), podPort))

	if len(gateways) > 0 {
		asks("pod to outside", host("c"), "ext", port(outside(false), outsidePort))
	}

	for _, n := range c.Nodes() {
		name := fmt.Sprintf("node%d", n.Index)
		if err := c.serve(t.Context(), name, name, sshPort); err != nil {
			t.Fatal(err)
		}

		asks("outside to "+name+", port 22", "ext", name, port(n.IP4, sshPort))
		asks(name+" to outside", name, "ext", port(outside(false), outsidePort))
	}

	for i, at := range gateways {
		asks(fmt.Sprintf("outside to a NodePort of node%d", i), "ext", "a,c", port(at, nodePort))
	}
}
