package reconcile_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/ovn-ebpf/ovn-ebpf/cluster"
	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
	"github.com/ovn-ebpf/ovn-ebpf/controller/election"
	"github.com/ovn-ebpf/ovn-ebpf/controller/ipam"
	"github.com/ovn-ebpf/ovn-ebpf/controller/nb"
	"github.com/ovn-ebpf/ovn-ebpf/controller/nb/nbtest"
	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
	"github.com/ovn-ebpf/ovn-ebpf/controller/reconcile"
	"github.com/ovn-ebpf/ovn-ebpf/test/kube/kubetest"
)

// startLoop runs a loop until the test ends, on one IPv4 subnet with room for
// two nodes of four pods.
func startLoop(t *testing.T, config *rest.Config, endpoint string, election *election.Config) *reconcile.Loop {
	t.Helper()
	return startLoopWith(t, config, endpoint, func(o *reconcile.Options) { o.Election, o.FirstAnnotation = election, true })
}

// startLoopWith is startLoop with other options.
func startLoopWith(t *testing.T, config *rest.Config, endpoint string, change func(*reconcile.Options)) *reconcile.Loop {
	t.Helper()

	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}

	cidr := netip.MustParsePrefix("10.244.0.0/28")
	options := reconcile.Options{
		Log:    slog.New(slog.NewTextHandler(t.Output(), nil)),
		Client: client, Objects: newClient(t, config), Subnets: []ipam.Subnet{{Prefix: cidr, HostLen: 29}},
		Plan: plan.Config{
			Hosts:        annotation.TrustAll(),
			ClusterCIDRs: []netip.Prefix{cidr}, JoinSubnets: []netip.Prefix{netip.MustParsePrefix("100.64.0.0/16")},
			SNATPorts: cluster.PortRange{First: 49152, Last: 65535}, MTU: 1400,
		},
	}
	change(&options)

	if options.Election != nil {
		options.Log = options.Log.With("replica", options.Election.Identity)
	}

	db := nb.New([]string{endpoint}, options.Log)
	options.DB = db
	loop := reconcile.New(options)
	ctx, cancel := context.WithCancel(context.Background())

	var group errgroup.Group
	group.Go(func() error { return db.Run(ctx) })
	group.Go(func() error { return loop.Run(ctx) })
	t.Cleanup(func() {
		cancel()

		if err := group.Wait(); err != nil {
			t.Errorf("Run: %v", err)
		}
	})

	return loop
}

func newClient(t *testing.T, config *rest.Config) rest.Interface {
	t.Helper()

	client, err := reconcile.NewClient(config)
	if err != nil {
		t.Fatal(err)
	}

	return client
}

func createNode(t *testing.T, client kubernetes.Interface, name string) {
	t.Helper()

	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func createPod(t *testing.T, client kubernetes.Interface, name string, annotations map[string]string) {
	t.Helper()

	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", Annotations: annotations},
		Spec:       corev1.PodSpec{NodeName: "node1", Containers: []corev1.Container{{Name: "c", Image: "none"}}},
	}
	if _, err := client.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func deletePod(t *testing.T, client kubernetes.Interface, name string) {
	t.Helper()

	now := int64(0)
	if err := client.CoreV1().Pods("default").Delete(t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
		t.Fatal(err)
	}
}

// addresses are what pods of node1 have, by name; "" if none.
func addresses(t *testing.T, client kubernetes.Interface) map[string]string {
	t.Helper()

	pods, err := client.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}

	out := map[string]string{}
	for _, p := range pods.Items {
		out[p.Name] = ""
		if network, err := annotation.ParsePod(p.Annotations); err == nil {
			out[p.Name] = network.Addresses[0].Addr().String()
		}
	}

	return out
}

func TestLoopAllocates(t *testing.T) {
	config := kubetest.Start(t).RestConfig()
	client := kubernetes.NewForConfigOrDie(config)
	s := nbtest.Start(t)
	loop := startLoop(t, config, s.Endpoint, nil)
	createNode(t, client, "node1")

	for i := range 4 {
		createPod(t, client, fmt.Sprint("p", i), nil)
	}

	nbtest.Eventually(t, "four pods have different addresses", func() bool {
		seen := map[string]bool{}
		for _, a := range addresses(t, client) {
			seen[a] = a != ""
		}

		return len(seen) == 4 && !seen[""]
	})

	t.Log("one more is told why it has none")
	createPod(t, client, "more", nil)
	nbtest.Eventually(t, "an event on the pod", func() bool {
		events, err := client.CoreV1().Events("default").List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=more,reason=CannotAllocate"})
		return err == nil && len(events.Items) > 0 && strings.Contains(events.Items[0].Message, "10.244.0.0/29")
	})
	nbtest.Eventually(t, "it does not keep the rest from being ready", func() bool { return loop.Ready() == nil })

	t.Log("an address is free once the pod's port is gone, and then it heals")
	freed := addresses(t, client)["p2"]
	deletePod(t, client, "p2")
	nbtest.Eventually(t, "the waiting pod gets the freed address", func() bool { return addresses(t, client)["more"] == freed })
	nbtest.Eventually(t, "and a port", func() bool {
		return strings.Contains(s.Nbctl("--bare", "--columns=addresses", "find", "logical_switch_port", "name=default_more"), freed)
	})

	t.Log("an annotation that came with the pod does not take another's address")
	stolen := addresses(t, client)["p0"]
	deletePod(t, client, "p3")
	createPod(t, client, "thief", map[string]string{
		annotation.PodNetworks: annotation.FormatPod(annotation.Pod{
			Addresses: []netip.Prefix{netip.MustParsePrefix(stolen + "/29")}, MAC: net.HardwareAddr{2, 0, 0, 0, 0, 1},
		}),
	})
	nbtest.Eventually(t, "the pod gets an address of its own", func() bool {
		a := addresses(t, client)["thief"]
		return a != "" && a != stolen
	})

	t.Log("a completed pod's address is free")

	pod, err := client.CoreV1().Pods("default").Get(t.Context(), "p1", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}

	pod.Status.Phase = corev1.PodSucceeded
	if _, err := client.CoreV1().Pods("default").UpdateStatus(t.Context(), pod, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}

	createPod(t, client, "last", nil)
	nbtest.Eventually(t, "the next pod gets it", func() bool { return addresses(t, client)["last"] != "" })
}

// A leader that is cut off, and cannot give its lease back, stops writing and
// is replaced; the new one writes its term, and nothing else but what changed.
func TestFailover(t *testing.T) {
	config := kubetest.Start(t).RestConfig()
	client := kubernetes.NewForConfigOrDie(config)
	s := nbtest.Start(t)
	election := func(identity string) *election.Config {
		return &election.Config{Identity: identity, Namespace: "kube-system", Lease: 3 * time.Second}
	}

	var path kubetest.Link

	first := startLoop(t, path.Config(config), s.Endpoint, election("first"))
	nbtest.Eventually(t, "the first leads", func() bool { return first.Leading() && first.Ready() == nil })
	createNode(t, client, "node1")
	createPod(t, client, "a", nil)
	nbtest.Eventually(t, "the first writes", func() bool {
		return s.Nbctl("--bare", "--columns=name", "find", "logical_switch_port", "name=default_a") != ""
	})
	second := startLoop(t, config, s.Endpoint, election("second"))
	nbtest.Eventually(t, "the second stands by", func() bool { return second.Ready() == nil })

	before, written := s.Normal(), s.Transactions()

	path.Cut()
	nbtest.Eventually(t, "the second leads", func() bool { return second.Leading() && second.Ready() == nil })

	if first.Leading() {
		t.Error("two lead")
	}

	if diff := cmp.Diff(before, s.Normal()); diff != "" {
		t.Errorf("the takeover wrote something (-before +after):\n%s", diff)
	}

	if n := s.Transactions() - written; n != 1 {
		t.Errorf("the takeover wrote %d transactions, want the term's alone", n)
	}

	createPod(t, client, "b", nil)
	nbtest.Eventually(t, "the second writes", func() bool {
		return s.Nbctl("--bare", "--columns=name", "find", "logical_switch_port", "name=default_b") != ""
	})
	nbtest.Eventually(t, "the first says what it lacks", func() bool {
		err := first.Ready()
		return err != nil && strings.Contains(err.Error(), "API server")
	})
}
