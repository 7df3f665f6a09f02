package agent

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovn-ebpf/ovn-ebpf/agent/environment"
	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
	"github.com/ovn-ebpf/ovn-ebpf/agent/status"
	"github.com/ovn-ebpf/ovn-ebpf/agent/testnode"
)

// TestEnvironment runs kube-proxy's mode endpoint beside the agent. Readiness, an Event about the
// Node and ovnkube status name it. The node is as ready as without it.
func TestEnvironment(t *testing.T) {
	r := newRig(t)

	l, err := net.Listen("tcp", "127.0.0.1:10249")
	if err != nil {
		t.Fatal(err)
	}

	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "iptables") })} //nolint:gosec // one client
	go func() { _ = server.Serve(l) }()

	t.Cleanup(func() { server.Close() })
	r.createNode()
	r.start()
	r.awaitFault(environment.KubeProxyRuns, environment.Prefix+"kube-proxy runs on this node, in mode iptables")
	r.awaitMissing("the controller has not given the node a subnet")
}

// TestOverlapIsWaitedFor gives the host an address inside the pods' network. The agent waits, names
// it in /readyz and for ovnkube status, and changes nothing. It goes on when the address is gone.
func TestOverlapIsWaitedFor(t *testing.T) {
	r := newRig(t)
	testnode.Run(t, "ip", "addr", "add", "10.244.9.9/32", "dev", "eth0")
	r.createNode()
	r.start()

	const text = "network 10.244.0.0/16 of the cluster contains host address 10.244.9.9 on eth0"
	r.awaitMissing(text)

	record, err := status.Read(r.cfg.RunDir)
	if err != nil {
		t.Fatal(err)
	}

	if report := status.Judge(status.Look(t.Context(), record)); !strings.Contains(fmt.Sprintf("%+v", report), text) {
		t.Errorf("status says %+v, want %q", report, text)
	}

	if bridges := testnode.Run(t, "ovs-vsctl", "--db="+r.sw.Address, "list-br"); strings.Contains(bridges, "breth0") {
		t.Errorf("bridges of a node whose address overlaps: %s", bridges)
	}

	testnode.Run(t, "ip", "addr", "del", "10.244.9.9/32", "dev", "eth0")
	r.awaitMissing("the controller has not given the node a subnet")
}

// TestHostChangesAreFollowed changes what the agent read of the host when it started: it adds an
// address in the pods' network, moves the default route to another device, and removes it. /readyz
// names each until it is over, and an Event names it.
func TestHostChangesAreFollowed(t *testing.T) {
	r := newRig(t)
	r.createNode()
	r.start()
	r.awaitMissing("the controller has not given the node a subnet")
	testnode.Run(t, "ip", "link", "add", "eth1", "type", "veth", "peer", "name", "eth1", "netns", r.peer)
	t.Cleanup(func() { testnode.Run(t, "ip", "link", "del", "eth1") })
	testnode.Run(t, "ip", "addr", "add", "172.31.0.11/24", "dev", "eth1")
	testnode.Run(t, "ip", "link", "set", "eth1", "up")

	const overlaps = environment.Prefix + "network 10.244.0.0/16 of the cluster contains host address 10.244.9.9 on eth1"

	testnode.Run(t, "ip", "addr", "add", "10.244.9.9/32", "dev", "eth1")
	r.awaitFault(environment.NetworksOverlap, overlaps)
	testnode.Run(t, "ip", "addr", "del", "10.244.9.9/32", "dev", "eth1")
	r.awaitNoFault(overlaps)

	const elsewhere = environment.Prefix + "the default route is on eth1, but the agent found uplink eth0 when it started"

	testnode.Run(t, "ip", "route", "replace", "default", "via", "172.31.0.1")
	r.awaitFault(environment.DefaultRouteElsewhere, elsewhere)
	r.awaitNoFault(environment.Prefix + "no default route")
	testnode.Run(t, "ip", "route", "replace", "default", "via", "172.30.0.200")
	r.awaitNoFault(elsewhere)

	const none = environment.Prefix + "no default route of IPv4 by eth0: pods" // the cluster has no IPv6 pods

	testnode.Run(t, "ip", "addr", "add", "fd00:172:30::11/64", "dev", "eth0", "nodad")
	testnode.Run(t, "ip", "route", "del", "default")
	r.awaitFault(environment.NoIPv4NextHop, none)
	testnode.Run(t, "ip", "route", "add", "default", "dev", "eth0")
	r.awaitNoFault(none)
}

// TestOtherNetworkIsNamed puts the CNI configuration of another network before ours. /readyz names
// it while the file exists, and an Event names it. A file that runtimes read after ours is not
// named.
func TestOtherNetworkIsNamed(t *testing.T) {
	r := newRig(t)
	write := func(name string) string {
		t.Helper()

		path := filepath.Join(r.cfg.CNIConfDir, name)
		if err := os.MkdirAll(r.cfg.CNIConfDir, 0o755); err != nil {
			t.Fatal(err)
		}

		if err := os.WriteFile(path, []byte(`{"cniVersion": "1.0.0", "name": "cbr0", "plugins": [{"type": "flannel"}]}`), 0o600); err != nil {
			t.Fatal(err)
		}

		return path
	}

	r.createNode()
	write("99-flannel.conflist")
	r.start()
	r.awaitMissing("the controller has not given the node a subnet")

	line := environment.Prefix + "new pods get another network: the container runtime takes "
	r.awaitNoFault(line)

	path := write("00-flannel.conflist")
	r.awaitFault(environment.OtherNetworkFirst, line+path+" before ")

	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}

	r.awaitNoFault(line)
}

// TestClusterNotFollowed: copies of the cluster's objects that are behind are a fault after 30 s,
// and no longer when they follow. The time begins again with each outage.
func TestClusterNotFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		behind := errors.New("pods have not been watched")
		err := behind
		check := clusterNotFollowed(func() error { return err })

		for _, step := range []struct {
			after time.Duration
			err   error
			fault bool
		}{
			{0, behind, false},
			{29 * time.Second, behind, false},
			{time.Second, behind, true},
			{time.Minute, behind, true},
			{time.Second, nil, false},
			{time.Minute, behind, false},
			{29 * time.Second, behind, false},
			{time.Second, behind, true},
		} {
			time.Sleep(step.after)
			err = step.err

			f := check(t.Context())
			if (f != nil) != step.fault || f != nil && !strings.Contains(f.Text, behind.Error()) {
				t.Errorf("%s later, error %v: fault %v", step.after, err, f)
			}
		}
	})
}

// TestKernelDatapathFaults: on a kernel with and without openvswitch, a node that started with the
// userspace datapath and a node configured for the kernel's have the right fault.
func TestKernelDatapathFaults(t *testing.T) {
	a := &agent{detected: detected{datapath: true}}

	a.cfg.Datapath = ovs.DatapathNetdev
	if got, want := a.kernelDatapathUnused(t.Context()) != nil, link.HasGenericFamily(ovs.KernelFamily); got != want {
		t.Errorf("fault %v, kernel has openvswitch %v", got, want)
	}

	if f := a.kernelDatapathMissing(t.Context()); f != nil {
		t.Errorf("fault of the userspace datapath: %v", f)
	}

	a.detected.datapath = false
	if f := a.kernelDatapathUnused(t.Context()); f != nil {
		t.Errorf("fault of a configured datapath: %v", f)
	}

	a.cfg.Datapath = ovs.DatapathSystem
	if got, want := a.kernelDatapathMissing(t.Context()) != nil, !link.HasGenericFamily(ovs.KernelFamily); got != want {
		t.Errorf("fault of the kernel's datapath %v, want %v", got, want)
	}
}

// awaitFault waits until /readyz has the line and the Node an Event with the reason.
func (r *rig) awaitFault(reason, line string) {
	r.t.Helper()
	testnode.Eventually(r.t, "line "+line, func() error {
		_, body, err := r.get("/readyz")
		if err == nil && !strings.Contains(body, line) {
			err = fmt.Errorf("/readyz: %s", body)
		}

		return err
	})
	testnode.Eventually(r.t, "event "+reason, func() error {
		events, err := r.client.CoreV1().Events("").List(r.t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=node1,reason=" + reason})
		if err == nil && len(events.Items) != 1 {
			err = fmt.Errorf("events %v, want one", events.Items)
		}

		return err
	})
}

// awaitNoFault waits until /readyz does not have the line.
func (r *rig) awaitNoFault(line string) {
	r.t.Helper()
	testnode.Eventually(r.t, "no line "+line, func() error {
		_, body, err := r.get("/readyz")
		if err == nil && strings.Contains(body, line) {
			err = fmt.Errorf("/readyz: %s", body)
		}

		return err
	})
}
