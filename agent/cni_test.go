package agent

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovn-ebpf/ovn-ebpf/agent/cniconf"
	"github.com/ovn-ebpf/ovn-ebpf/agent/testnode"
	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
	"github.com/ovn-ebpf/ovn-ebpf/cni"
)

// TestCNI sends the plugin, through libcni, all requests that a runtime may send.
func TestCNI(t *testing.T) {
	r := newCNIRig(t)
	latest := r.network("1.1.0", "")
	status := func() error { return r.runtime("cache").GetStatusNetworkList(t.Context(), latest) }
	wantCode(t, status(), cni.CodeNotAvailable, r.cfg.CNISocket) // the agent is not running yet
	wantCode(t, <-r.add(t.Context(), latest, r.sandbox(r.createPod("early"), "c-early")), types.ErrTryAgainLater, r.cfg.CNISocket)
	r.start()
	r.awaitMissing("the controller has not given the node a subnet")
	testnode.Eventually(t, "STATUS", func() error { // without a gateway, the code differs
		err := status()
		if e := (*types.Error)(nil); errors.As(err, &e) && e.Code == cni.CodeNotAvailable && strings.Contains(e.Msg, "the controller has not given the node a subnet") {
			return nil
		}

		return fmt.Errorf("STATUS says %w", err)
	})
	r.getReady()

	if err := status(); err != nil {
		t.Errorf("STATUS of a ready node: %v", err)
	}

	for _, part := range []struct {
		name string
		test func(*testing.T, *cniRig)
	}{
		{"versions", testVersions},
		{"check", testCheck},
		{"readdress", testReaddress},
		{"gc", testGC},
		{"errors", testErrors},
		{"giving up", testGivingUp},
		{"sandboxes", testSandboxes},
		{"forged annotations", testForged},
	} {
		t.Run(part.name, func(t *testing.T) {
			of := *r
			own := *r.rig
			own.t, of.rig = t, &own
			part.test(t, &of)
		})
	}
}

// mustMeasure checks whether the metrics list the pod.
func (r *cniRig) mustMeasure(pod string, there bool) {
	r.t.Helper()
	_, body, err := r.get("/metrics")

	is := strings.Contains(body, fmt.Sprintf(`ovnkube_node_pod_network_transmit_packets_total{interface="eth0",namespace="default",pod=%q} `, pod))
	if err != nil || is != there {
		r.t.Errorf("pod %s in metrics: %t, want %t, error %v", pod, is, there, err)
	}
}

func testVersions(t *testing.T, r *cniRig) {
	info, err := r.runtime("cache").GetVersionInfo(t.Context(), cniconf.Plugin)
	if err != nil {
		t.Fatal(err)
	}

	all := []string{"0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"}
	if !slices.Equal(info.SupportedVersions(), all) {
		t.Errorf("VERSION says %v", info.SupportedVersions())
	}

	pod := r.createPod("versions")

	address := r.give(pod, 3)
	for i, version := range all {
		s, list := r.sandbox(pod, "c-"+version), r.network(version, "")

		result, err := r.runtime("cache").AddNetworkList(t.Context(), list, s.RuntimeConf)
		if err != nil {
			t.Fatalf("%s: %v", version, err)
		}

		if result.Version() != version {
			t.Errorf("%s: result of version %s", version, result.Version())
		}

		now, err := current.NewResultFromResult(result)
		if err != nil || len(now.IPs) != 1 || now.IPs[0].Address.String() != address || now.IPs[0].Gateway.String() != "10.244.1.1" || len(now.Routes) != 1 {
			t.Errorf("%s: result %v, error %v", version, now, err)
		}

		if i >= 2 && (len(now.Interfaces) != 2 || now.Interfaces[1].Sandbox != s.NetNS || now.Interfaces[1].Name != "eth0" || now.Interfaces[0].Name != s.host()) {
			t.Errorf("%s: interfaces %v", version, now.Interfaces)
		}

		if err := r.runtime("cache").CheckNetworkList(t.Context(), list, s.RuntimeConf); (err == nil) != (i >= 4) {
			t.Errorf("%s: CHECK: %v", version, err)
		}

		r.mustHold(s)
		r.mustMeasure(pod.Name, true)

		if version == "1.0.0" {
			s.NetNS = "" // a runtime may no longer know it
		}

		for range 2 {
			if err := r.runtime("cache").DelNetworkList(t.Context(), list, s.RuntimeConf); err != nil {
				t.Errorf("%s: DEL: %v", version, err)
			}
		}

		r.mustHold()
		r.mustMeasure(pod.Name, false)
	}
	// The library reads the agent's own configuration as 1.1.0.
	list, err := libcni.ConfListFromFile(r.cfg.CNIConfDir + "/" + cniconf.File)
	if err != nil || list.CNIVersion != "1.1.0" {
		t.Errorf("configuration of the agent: %+v, error %v", list, err)
	}
}

func testCheck(t *testing.T, r *cniRig) {
	defer r.standin.resume() // for the parts that follow a failure

	pod, list := r.createPod("check"), r.network("1.1.0", "")
	r.give(pod, 3)
	s := r.sandbox(pod, "c-check")
	inside := []string{"nsenter", "--net=" + s.NetNS, "ip"}
	check := func() error { return r.runtime("cache").CheckNetworkList(t.Context(), list, s.RuntimeConf) }

	for _, tc := range []struct {
		what   string
		change []string
		want   string
	}{
		{"address", append(inside, "addr", "flush", "dev", "eth0"), "no address 10.244.1.3/24"},
		{"default route", append(inside, "route", "del", "default"), "no default route"},
		{"device down", append(inside, "link", "set", "eth0", "down"), "up false"},
		{"MTU", append(inside, "link", "set", "eth0", "mtu", "1280"), "MTU 1280"},
		{"MAC", append(inside, "link", "set", "eth0", "address", "02:00:00:00:00:01"), "02:00:00:00:00:01"},
		{"host end down", []string{"ip", "link", "set", s.host(), "down"}, "is down"},
		{"device", append(inside, "link", "del", "eth0"), "no such device"},
		{"ovn-installed", []string{"ovs-vsctl", "--db=" + r.sw.Address, "--no-wait", "remove", "Interface", s.host(), "external_ids", "ovn-installed"}, "ovn-installed"},
	} {
		// The agent sets a device up that it finds down. If that precedes CHECK, the next try has
		// the fault again.
		var err error

		testnode.Eventually(t, tc.what, func() error {
			if _, err := r.runtime("cache").AddNetworkList(t.Context(), list, s.RuntimeConf); err != nil {
				t.Fatalf("%s: ADD: %v", tc.what, err)
			}

			if err := check(); err != nil {
				t.Errorf("before %s: %v", tc.what, err)
			}

			r.standin.pause()
			testnode.Run(t, tc.change...)

			for range 50 { // the agent's copy of the database may be older
				if err = check(); err != nil {
					break
				}
			}

			r.standin.resume()

			if err := r.runtime("cache2").DelNetworkList(t.Context(), list, s.RuntimeConf); err != nil {
				t.Fatal(err)
			}

			if err == nil || !strings.Contains(err.Error(), tc.want) {
				return fmt.Errorf("CHECK: %w, want %q", err, tc.want)
			}

			return nil
		})
		wantCode(t, err, cni.CodeCheckFailed, tc.want)
	}

	r.give(pod, 4) // the controller assigns another address
	wantCode(t, check(), cni.CodeCheckFailed, "")
	// A pod that never existed is recognised at once.
	never := r.sandbox(pod, "c-never")
	never.Args[2][1] = "never"
	wantCode(t, r.runtime("cache").CheckNetworkList(t.Context(), list, never.RuntimeConf), cni.CodePodGone, "default/never")
	r.mustHold()
}

func testGC(t *testing.T, r *cniRig) {
	list := r.network("1.1.0", "")

	var all []sandbox

	for i, name := range []string{"gc-a", "gc-b"} {
		pod := r.createPod(name)
		r.give(pod, byte(3+i))

		s := r.sandbox(pod, "c-"+name)
		if err := <-r.add(t.Context(), list, s); err != nil {
			t.Fatal(err)
		}

		all = append(all, s)
	}

	testnode.Run(t, "ip", "link", "add", "vethleft", "group", "7304814", "type", "veth", "peer", "name", "xleft")
	// The runtime has forgotten all attachments: the plugin must find them.
	if err := r.runtime("forgotten").GCNetworkList(t.Context(), list, &libcni.GCArgs{ValidAttachments: []types.GCAttachment{{ContainerID: "c-gc-a", IfName: "eth0"}}}); err != nil {
		t.Fatal(err)
	}

	r.mustHold(all[0])

	if err := r.runtime("cache").CheckNetworkList(t.Context(), list, all[0].RuntimeConf); err != nil {
		t.Errorf("GC has damaged a valid attachment: %v", err)
	}

	if err := r.runtime("cache").GCNetworkList(t.Context(), list, nil); err != nil {
		t.Fatal(err)
	}

	r.mustHold()
}

func testErrors(t *testing.T, r *cniRig) {
	pod := r.createPod("errors")
	r.give(pod, 3)
	list := r.network("1.0.0", "")
	add := func(list *libcni.NetworkConfigList, change func(*libcni.RuntimeConf)) error {
		s := r.sandbox(pod, "c-errors")
		if change != nil {
			change(s.RuntimeConf)
		}

		return <-r.add(t.Context(), list, s)
	}
	wantCode(t, add(list, func(rt *libcni.RuntimeConf) { rt.Args = nil }), types.ErrInvalidEnvironmentVariables, "K8S_POD_NAME")
	wantCode(t, add(list, func(rt *libcni.RuntimeConf) { rt.NetNS = "/run/netns/nowhere" }), types.ErrInvalidNetNS, "/run/netns/nowhere")
	wantCode(t, add(r.network("1.0.0", `,"ipam":{"type":"host-local"}`), nil), types.ErrInvalidNetworkConfig, "remove ipam")
	wantCode(t, add(r.network("1.0.0", `,"serverSocket":7`), nil), types.ErrDecodingFailure, "serverSocket")
	wantCode(t, add(list, func(rt *libcni.RuntimeConf) { rt.Args[3][1] = "0000-0000" }), cni.CodePodGone, "delete the sandbox")
	r.annotate("kubernetes.io/ingress-bandwidth", "fast", pod.Name)

	for range 2 {
		wantCode(t, add(list, nil), cni.CodeBadPod, `kubernetes.io/ingress-bandwidth="fast"`)
	}

	events, err := r.client.CoreV1().Events("default").List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=errors"})
	if err != nil || len(events.Items) != 1 || events.Items[0].Reason != "InvalidBandwidth" {
		t.Errorf("events %v, error %v", events, err)
	}

	r.mustHold()
}

// testGivingUp: an ADD ends as soon as its result is of no use, and leaves no parts.
func testGivingUp(t *testing.T, r *cniRig) {
	list := r.network("1.0.0", "")
	failed := func() (n int) {
		_, body, err := r.get("/metrics")
		if err != nil {
			t.Fatal(err)
		}

		for line := range strings.Lines(body) {
			if rest, ok := strings.CutPrefix(line, `ovnkube_node_cni_request_duration_seconds_count{command="ADD",err="true"} `); ok {
				_, _ = fmt.Sscan(rest, &n)
			}
		}

		return n
	}
	// The runtime kills the plugin before the pod has an address.
	pod := r.createPod("slow")
	before := failed()
	ctx, cancel := context.WithCancel(t.Context())
	answered := r.add(ctx, list, r.sandbox(pod, "c-slow"))

	time.AfterFunc(300*time.Millisecond, cancel)

	if err := <-answered; err == nil {
		t.Error("ADD succeeded without an address")
	}

	testnode.Eventually(t, "agent gives up", func() error {
		if n := failed(); n == before {
			return fmt.Errorf("%d failed requests", n)
		}

		return nil
	})
	// The pod is deleted before it has an address, or before its flows are installed.
	answered = r.add(t.Context(), list, r.sandbox(pod, "c-slow"))
	r.deletePod("slow")
	wantCode(t, <-answered, cni.CodePodGone, "default/slow")
	r.standin.pause()
	again := r.createPod("slow")
	r.give(again, 3)
	s := r.sandbox(again, "c-again")
	answered = r.add(t.Context(), list, s)
	r.awaitPort(s)
	r.deletePod("slow")
	wantCode(t, <-answered, cni.CodePodGone, "default/slow")
	r.mustHold()
	// The runtime deletes the sandbox.
	third := r.createPod("slow")
	r.give(third, 3)
	s = r.sandbox(third, "c-third")
	answered = r.add(t.Context(), list, s)
	r.awaitPort(s)

	if err := r.runtime("other").DelNetworkList(t.Context(), list, s.RuntimeConf); err != nil {
		t.Error(err)
	}

	wantCode(t, <-answered, cni.CodeSuperseded, "the runtime requested deletion of the sandbox")
	r.standin.resume()
	r.mustHold()
}

// testSandboxes: several sandboxes of one pod, and several pods of one name.
func testSandboxes(t *testing.T, r *cniRig) {
	list := r.network("1.0.0", "")
	pod := r.createPod("twice")
	r.give(pod, 3)
	first, second := r.sandbox(pod, "c-first"), r.sandbox(pod, "c-second")
	r.standin.pause()
	answered := r.add(t.Context(), list, first)
	r.awaitPort(first)
	later := r.add(t.Context(), list, second)
	wantCode(t, <-answered, cni.CodeSuperseded, "a later sandbox")
	r.standin.resume()

	if err := <-later; err != nil {
		t.Fatal(err)
	}

	if err := r.runtime("cache").DelNetworkList(t.Context(), list, first.RuntimeConf); err != nil {
		t.Error(err)
	}

	r.mustHold(second)
	// A new pod of the same name is created while the old pod's sandbox still exists.
	r.deletePod("twice")
	recreated := r.createPod("twice")
	r.give(recreated, 4)
	wantCode(t, <-r.add(t.Context(), list, r.sandbox(pod, "c-late")), cni.CodePodGone, "default/twice")

	third := r.sandbox(recreated, "c-third")
	if err := <-r.add(t.Context(), list, third); err != nil {
		t.Fatal(err)
	}

	if err := r.runtime("cache").DelNetworkList(t.Context(), list, second.RuntimeConf); err != nil {
		t.Error(err)
	}

	if err := r.runtime("cache").DelNetworkList(t.Context(), list, first.RuntimeConf); err != nil {
		t.Error(err)
	}

	if got := r.sw.Vsctl(t, "get", "Interface", third.host(), "external_ids:iface-id-ver"); !strings.Contains(got, string(recreated.UID)) {
		t.Errorf("iface-id-ver %s, want %s", got, recreated.UID)
	}

	r.mustHold(third)

	if err := r.runtime("cache").DelNetworkList(t.Context(), list, third.RuntimeConf); err != nil {
		t.Error(err)
	}

	r.mustHold()
}

// testForged: an annotation that the controller cannot have written is not applied. ADD waits until
// the controller restores it.
func testForged(t *testing.T, r *cniRig) {
	pod, list := r.createPod("forged"), r.network("1.1.0", "")
	s := r.sandbox(pod, "c-forged")
	router := netip.MustParseAddr("10.244.1.1")
	r.annotate(annotation.PodNetworks, annotation.FormatPod(annotation.Pod{
		Addresses: []netip.Prefix{netip.MustParsePrefix("10.244.1.9/24")}, MAC: annotation.DerivedMAC(router), Gateways: []netip.Addr{router},
	}), pod.Name)

	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()

	if err := <-r.add(ctx, list, s); err == nil {
		t.Error("a pod got the router's MAC address")
	}

	r.mustHold()
	r.give(pod, 9)

	if err := <-r.add(t.Context(), list, s); err != nil {
		t.Error(err)
	}

	r.mustHold(s)

	if err := r.runtime("cache").DelNetworkList(t.Context(), list, s.RuntimeConf); err != nil {
		t.Error(err)
	}
}
