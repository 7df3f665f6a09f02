package lab_test

import (
	"encoding/csv"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
	"github.com/ovn-ebpf/ovn-ebpf/test/lab"
	"github.com/ovn-ebpf/ovn-ebpf/test/lab/netns"
)

func TestVMs(t *testing.T) {
	o := options(t)
	o.BinDir, o.VMs = binDir(t), 2

	l, err := lab.Up(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}

	t.Run("driver", func(t *testing.T) { testVMDriver(t, l) })

	if !t.Run("pings", func(t *testing.T) { testVMPings(t, l) }) {
		t.FailNow() // the rest would wait for answers
	}

	t.Run("hypervisor", func(t *testing.T) { testHypervisorStack(t, l) })
	t.Run("traffic", func(t *testing.T) { testVMTraffic(t, l) })
	t.Run("security", func(t *testing.T) { testVMSecurity(t, l) })
	t.Run("ports", func(t *testing.T) { testVMPorts(t, l) })
	t.Run("vswitchd", func(t *testing.T) { testHypervisorRestart(t, l) })
	t.Run("reboot", func(t *testing.T) { testVMReboot(t, l) })
	t.Run("hosts", func(t *testing.T) { testVMHosts(t, l) })

	again, err := lab.Open(o.Dir)
	if err != nil {
		t.Fatal(err)
	}

	if diff := cmp.Diff(l.VMs(), again.VMs(), cmpopts.EquateComparable(netip.Addr{})); diff != "" {
		t.Errorf("VMs of the opened lab: %s", diff)
	}

	if err := again.Down(t.Context()); err != nil {
		t.Fatal(err)
	}

	noResidue(t, o)
}

// testVMDriver checks that VMs do not fall back to veths in a guest with virtio NICs.
func testVMDriver(t *testing.T, l *lab.Lab) {
	for name, pair := range map[string]int{"vm1": 1, "vm2": 2, "plain": 100} {
		want := "veth"
		if pairs, _ := strconv.Atoi(os.Getenv("VM_NICS")); pair <= pairs {
			want = "virtio_net"
		}

		if out := mustExec(t, l, name, "ethtool", "-i", "eth0"); !strings.HasPrefix(out, "driver: "+want+"\n") {
			t.Errorf("NIC of %s: %s, want driver %s", name, out, want)
		}
	}
}

// testVMPings sends the largest packets in both directions of each pair of hosts.
func testVMPings(t *testing.T, l *lab.Lab) {
	hosts := []struct{ name, address string }{
		{"vm1", "10.0.0.11"},
		{"vm2", "10.0.0.12"},
		{"plain", "10.0.0.100"},
		{"ext", lab.ExtIP4},
		{"central", lab.CentralIP4},
	}
	size := func(mtu int) []string { return []string{"-M", "do", "-s", strconv.Itoa(mtu - 20 - 8)} }

	var group sync.WaitGroup
	for _, from := range hosts {
		group.Go(func() {
			for _, to := range hosts {
				if from != to {
					pingAll(t, l, from.name, to.address, size(lab.VMMTU)...)
				}
			}
		})
	}

	group.Wait()

	if _, err := ping(t, l, "vm1", "10.0.0.12", append(size(lab.VMMTU+1), "-c", "1")...); err == nil {
		t.Error("a VM sends a packet that exceeds the MTU of the cloud")
	}
}

// pingAll fails the test unless each of three packets is answered once. With a deadline, ping waits
// for late answers, and repeats lost packets.
func pingAll(t *testing.T, l *lab.Lab, from, to string, flags ...string) {
	t.Helper()

	out, err := ping(t, l, from, to, append(flags, "-c", "3", "-i", "0.2", "-w", "10")...)
	if err != nil || !strings.Contains(out, "3 packets transmitted, 3 received, 0% ") {
		t.Errorf("%s to %s: %v, %s", from, to, err, out)
	}
}

func ping(t *testing.T, l *lab.Lab, from, to string, flags ...string) (string, error) {
	t.Helper()

	argv := slices.Concat([]string{"ping", "-n", "-q"}, flags, []string{to})
	out, err := l.Exec(t.Context(), from, argv...)

	return string(out), err
}

// testHypervisorStack shows that the kernel of a hypervisor sees each packet once: it answers a ping
// once, and it does not answer a VM on the wire, which is Open vSwitch's.
func testHypervisorStack(t *testing.T, l *lab.Lab) {
	pingAll(t, l, "ext", l.Node(1).IP4.String())

	onLink := []string{l.Node(1).IP4.String(), "dev", "eth0"}

	mustExec(t, l, "vm1", append([]string{"ip", "route", "add"}, onLink...)...)
	defer mustExec(t, l, "vm1", append([]string{"ip", "route", "del"}, onLink...)...)

	if out, err := ping(t, l, "vm1", onLink[0], "-c", "1", "-W", "1"); err == nil {
		t.Errorf("vm1 reaches the kernel of its hypervisor: %s", out)
	}

	neighbour := mustExec(t, l, "vm1", append([]string{"ip", "neighbour", "show"}, onLink...)...)
	if strings.Contains(neighbour, "lladdr") {
		t.Errorf("the kernel of the hypervisor answers ARP requests of vm1: %s", neighbour)
	}
}

// testVMTraffic sends TCP and UDP, and checks that the servers see the clients' own addresses.
func testVMTraffic(t *testing.T, l *lab.Lab) {
	for _, name := range []string{"ext", "central", "vm2", "plain"} {
		_, err := l.Serve(t.Context(), name, "serve-"+name, "-tcp", ":80", "-udp", ":80", "-name", name)
		if err != nil {
			t.Fatal(err)
		}
	}

	for i, c := range []struct{ from, address, to, server string }{
		{"vm1", "10.0.0.11", "10.0.0.12", "vm2"},
		{"vm1", "10.0.0.11", "10.0.0.100", "plain"},
		{"vm2", "10.0.0.12", "10.0.0.100", "plain"},
		{"vm1", "10.0.0.11", lab.BehindIP4, "ext"},
		{"vm2", "10.0.0.12", lab.ExtIP4, "ext"},
		{"vm2", "10.0.0.12", lab.CentralIP4, "central"},
		{"ext", lab.ExtIP4, "10.0.0.12", "vm2"},
		{"central", lab.CentralIP4, "10.0.0.100", "plain"},
	} {
		port := strconv.Itoa(5000 + i)
		for _, proto := range []string{"tcp", "udp"} {
			got, err := l.Traffic(t.Context(), c.from, proto, c.to+":80", "-sport", port)
			if want := c.server + " " + c.address + ":" + port; err != nil || got != want {
				t.Errorf("%s from %s to %s: %q, %v, want %q", proto, c.from, c.to, got, err, want)
			}
		}

		if got, err := l.Traffic(t.Context(), c.from, "stream", c.to+":80", "-duration", "100ms"); err != nil {
			t.Errorf("stream from %s to %s: %q, %v", c.from, c.to, got, err)
		}
	}
}

// testVMSecurity uses an address on a VM that its port does not have.
func testVMSecurity(t *testing.T, l *lab.Lab) {
	mustExec(t, l, "vm1", "ip", "address", "add", "10.0.0.77/24", "dev", "eth0")
	defer mustExec(t, l, "vm1", "ip", "address", "del", "10.0.0.77/24", "dev", "eth0")

	for source, works := range map[string]bool{"10.0.0.11": true, "10.0.0.77": false} {
		_, err := ping(t, l, "vm1", "10.0.0.12", "-c", "1", "-W", "1", "-I", source)
		if (err == nil) != works {
			t.Errorf("ping from %s: %v, want success: %t", source, err, works)
		}
	}
}

// testVMPorts compares OVN's nested ports with those of the VMs.
func testVMPorts(t *testing.T, l *lab.Lab) {
	out := mustExec(t, l, "central", "ovn-nbctl", "--format=csv", "--data=bare", "--no-headings",
		"--columns=name,parent_name,tag,addresses,port_security,up",
		"find", "Logical_Switch_Port", "parent_name!=[]")

	got, err := csv.NewReader(strings.NewReader(out)).ReadAll()
	if err != nil {
		t.Fatal(err)
	}

	var want [][]string

	for _, v := range l.VMs() {
		for _, p := range v.Ports() {
			own := p.MAC.String() + " " + p.Addresses[0].String()
			want = append(want, []string{p.ID, v.VIF, strconv.Itoa(p.Tag), own, own, "true"})
		}
	}

	slices.SortFunc(got, slices.Compare)

	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("nested ports: %s", diff)
	}

	first := []string{
		"00000000-0000-4000-8000-000200000002", "00000000-0000-4000-8000-000200000000", "2",
		"fa:16:3e:00:02:02 10.244.0.34", "fa:16:3e:00:02:02 10.244.0.34", "true",
	}
	if len(got) != 26 || !slices.Equal(got[13], first) {
		t.Errorf("%d nested ports, the first one of vm2 is %q, want 26 and %q", len(got), got[13], first)
	}
}

// testHypervisorRestart restarts Open vSwitch of a hypervisor, which then still forwards for VMs.
func testHypervisorRestart(t *testing.T, l *lab.Lab) {
	again, err := l.Kill("node1-ovs-vswitchd")
	if err != nil {
		t.Fatal(err)
	}

	if err := again(); err != nil {
		t.Fatal(err)
	}

	for _, to := range []string{"10.0.0.12", "10.0.0.100", lab.ExtIP4} {
		if _, err := ping(t, l, "vm1", to, "-c", "1", "-w", "30", "-i", "0.1"); err != nil {
			t.Error(err)
		}
	}
}

// testVMReboot reboots a VM: its processes end, its files stay, and its port works at once.
func testVMReboot(t *testing.T, l *lab.Lab) {
	p, err := l.Spawn("vm2", "sleep-vm2", "sleep", "1h")
	if err != nil {
		t.Fatal(err)
	}

	vm := l.VM(2)
	for _, file := range []string{"pool.db", "cni.sock"} {
		if err := os.WriteFile(filepath.Join(vm.RunDir, file), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}

	mustExec(t, l, "vm2", "ip", "link", "set", "eth0", "promisc", "on")

	if err := l.Reboot(t.Context(), 2); err != nil {
		t.Fatal(err)
	}

	if p.Alive() {
		t.Error("a process of the VM survives the reboot")
	}

	for file, stays := range map[string]bool{"pool.db": true, "cni.sock": false} {
		if _, err := os.Stat(filepath.Join(vm.RunDir, file)); (err == nil) != stays {
			t.Errorf("%s after the reboot: %v, want that it stays: %t", file, err, stays)
		}
	}

	pingAll(t, l, "plain", vm.IP4.String())
	testVMDriver(t, l)

	if flags := mustExec(t, l, "vm2", "ip", "link", "show", "eth0"); strings.Contains(flags, "PROMISC") {
		t.Errorf("the NIC of vm2 keeps a setting that its former system made: %s", flags)
	}
}

// testVMHosts checks the names and the environment of hosts.
func testVMHosts(t *testing.T, l *lab.Lab) {
	const want = "not vm1 to vm2, plain, node1 to node2, ext"
	if _, err := l.Command(t.Context(), "vm3", "true"); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("vm3: %v, want %q in it", err, want)
	}

	for host, want := range map[string]bool{"vm1": true, "plain": false, "node1": false} {
		cmd, err := l.Login(t.Context(), host, "true")
		if err != nil {
			t.Fatal(err)
		}

		if got := slices.Contains(cmd.Env, "OVNKUBE_MODE=underlay"); got != want {
			t.Errorf("%s has the environment of an agent: %t, want %t", host, got, want)
		}
	}

	var status strings.Builder

	const dead = "not running: serve-vm2, sleep-vm2" // since the reboot
	if err := l.Status(t.Context(), &status); err == nil || !strings.Contains(err.Error(), dead) {
		t.Errorf("status: %v, want %q in it", err, dead)
	}

	for _, want := range []string{"2 hypervisors, 2 VMs", "-vm2 ", "10.0.0.12", "-plain ", "10.0.0.100"} {
		if !strings.Contains(status.String(), want) {
			t.Errorf("%q is not in the status:\n%s", want, &status)
		}
	}
}

// VMs are the nodes of Kubernetes: they reach the API server, and it reaches their kubelets.
func TestVMs_areNodes(t *testing.T) {
	o := options(t)
	o.Nodes, o.VMs, o.Kube, o.BinDir, o.CacheDir = 1, 2, true, binDir(t), os.Getenv("OVN_EBPF_CACHE")

	l, err := lab.Up(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}

	config, err := clientcmd.BuildConfigFromFlags("", l.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}

	config.Dial, config.Timeout = netns.Dialer(l.VM(2).Netns), 10*time.Second

	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}

	t.Run("objects", func(t *testing.T) {
		nodes, err := client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}

		got := map[string][]corev1.NodeAddress{}
		for _, n := range nodes.Items {
			got[n.Name] = n.Status.Addresses
		}

		want := map[string][]corev1.NodeAddress{}
		for name, address := range map[string]string{"vm1": "10.0.0.11", "vm2": "10.0.0.12"} {
			want[name] = []corev1.NodeAddress{
				{Type: corev1.NodeInternalIP, Address: address}, {Type: corev1.NodeHostName, Address: name},
			}
		}

		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("nodes: %s", diff)
		}
	})
	t.Run("pools", func(t *testing.T) {
		for _, v := range l.VMs() {
			testPool(t, l, client, v)
		}
	})
	t.Run("kubelet", func(t *testing.T) { testVMKubelet(t, l, client) })
}

// testPool reads the pool of a VM as its agent does.
func testPool(t *testing.T, l *lab.Lab, client *kubernetes.Clientset, v *lab.VM) {
	pools := client.CoreV1().ConfigMaps(annotation.PoolNamespace)

	object, err := pools.Get(t.Context(), annotation.PoolPrefix+v.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}

	pool, err := annotation.ParsePool(object.Data[annotation.PoolNode])
	if err != nil {
		t.Fatal(err)
	}

	ports, err := annotation.ParsePoolPorts(object.Data[annotation.PoolPorts])
	if err != nil {
		t.Fatal(err)
	}

	if pool.Cluster != "lab" || pool.Node != v.Name || pool.VIF != v.VIF || pool.MTU != lab.VMMTU {
		t.Errorf("pool of %s: %+v", v.Name, pool)
	}

	if pool.Trunk == "" || pool.Network == "" || pool.Trunk == pool.Network {
		t.Errorf("pool of %s has trunk %q and network %q", v.Name, pool.Trunk, pool.Network)
	}

	if diff := cmp.Diff(v.Ports(), ports, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
		t.Errorf("ports of %s: %s", v.Name, diff)
	}

	router := mustExec(t, l, "central", "ovn-nbctl", "--bare", "--columns=mac,networks",
		"list", "Logical_Router_Port", "cloud-pods-"+v.Name)
	for gateway, mac := range pool.Gateways {
		if got := strings.Fields(router); !slices.Equal(got, []string{mac, gateway.String()}) {
			t.Errorf("the router of %s has %q, want %s and %s", v.Name, got, mac, gateway)
		}
	}

	if len(pool.Gateways) != 1 {
		t.Errorf("gateways of %s: %v, want one", v.Name, pool.Gateways)
	}
}

// testVMKubelet runs a pod on the host's network of a VM, and reads its log by the API server.
func testVMKubelet(t *testing.T, l *lab.Lab, client *kubernetes.Clientset) {
	program := filepath.Join(binDir(t), "ovnlab")
	if _, err := l.Spawn("vm1", "kubelet-vm1", program, "kubelet", "--dir", l.Dir(), "vm1"); err != nil {
		t.Fatal(err)
	}

	no := false
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "greeter"},
		Spec: corev1.PodSpec{
			NodeName: "vm1", HostNetwork: true, AutomountServiceAccountToken: &no,
			RestartPolicy: corev1.RestartPolicyNever,
			Containers: []corev1.Container{{
				Name: "ip", Image: "none", Command: strings.Fields("ip -br address show eth0"),
			}},
		},
	}

	pods := client.CoreV1().Pods(metav1.NamespaceDefault)
	if _, err := pods.Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}

	var log string

	await(t, "log of the pod", func() error {
		stream, err := pods.GetLogs("greeter", &corev1.PodLogOptions{}).Stream(t.Context())
		if err != nil {
			return err
		}
		defer stream.Close()

		b, err := io.ReadAll(stream)
		if log = string(b); err == nil && !strings.Contains(log, "10.0.0.11/24") {
			err = fmt.Errorf("log %q, want the address of vm1", log)
		}

		return err
	})
	await(t, "status of the pod", func() error { // kubelet may write it after the log
		got, err := pods.Get(t.Context(), "greeter", metav1.GetOptions{})
		if err == nil && (got.Status.HostIP != "10.0.0.11" || len(got.Status.HostIPs) != 1) {
			err = fmt.Errorf("host addresses %s, %v, want that of vm1", got.Status.HostIP, got.Status.HostIPs)
		}

		return err
	})
}

// await waits until the condition holds.
func await(t *testing.T, what string, condition func() error) {
	t.Helper()

	end := time.Now().Add(30 * time.Second)

	for {
		err := condition()
		if err == nil {
			return
		}

		if time.Now().After(end) {
			t.Fatalf("%s: %v", what, err)
		}

		time.Sleep(10 * time.Millisecond)
	}
}
