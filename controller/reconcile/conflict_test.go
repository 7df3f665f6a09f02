package reconcile_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/ovn-ebpf/ovn-ebpf/cluster"
	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
	"github.com/ovn-ebpf/ovn-ebpf/controller/ipam"
	"github.com/ovn-ebpf/ovn-ebpf/controller/nb"
	"github.com/ovn-ebpf/ovn-ebpf/controller/nb/nbtest"
	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
	"github.com/ovn-ebpf/ovn-ebpf/controller/reconcile"
	"github.com/ovn-ebpf/ovn-ebpf/test/kube/kubetest"
)

// overtaken calls before ahead of each patch of the path, as a quicker writer would.
type overtaken struct {
	http.RoundTripper
	path   string
	before func()
	busy   *atomic.Bool
}

func (o overtaken) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodPatch && strings.HasPrefix(r.URL.Path, o.path) && o.busy.CompareAndSwap(false, true) {
		o.before()
	}

	return o.RoundTripper.RoundTrip(r)
}

// An annotation is for the version of the object that it was planned from. What others change
// meanwhile is not lost, nor is the annotation; addresses that the last leader has given meanwhile
// are the pod's, for a pod's interface may have them already.
func TestPatchesAreForOneVersion(t *testing.T) {
	config := kubetest.Start(t).RestConfig()
	client := kubernetes.NewForConfigOrDie(config)
	s := nbtest.Start(t)
	ctx := t.Context()
	addr := netip.MustParsePrefix("10.244.0.200/24")
	quicker := annotation.Pod{Addresses: []netip.Prefix{addr}, MAC: annotation.DerivedMAC(addr.Addr()), Gateways: []netip.Addr{netip.MustParseAddr("10.244.0.1")}}
	patchPod := func(name string, metadata map[string]any) {
		body, err := json.Marshal(map[string]any{"metadata": metadata})
		if err == nil {
			_, err = client.CoreV1().Pods("default").Patch(ctx, name, types.MergePatchType, body, metav1.PatchOptions{})
		}

		if err != nil {
			t.Error(err)
		}
	}
	overtake := func(path string, before func()) func(http.RoundTripper) http.RoundTripper {
		busy := &atomic.Bool{}
		return func(inner http.RoundTripper) http.RoundTripper { return overtaken{inner, path, before, busy} }
	}
	slow := rest.CopyConfig(config)
	slow.Wrap(overtake("/api/v1/namespaces/default/pods/labelled", func() {
		patchPod("labelled", map[string]any{"labels": map[string]string{"kubelet": "was-here"}})
	}))
	slow.Wrap(overtake("/api/v1/namespaces/default/pods/given", func() {
		patchPod("given", map[string]any{"annotations": map[string]string{annotation.PodNetworks: annotation.FormatPod(quicker)}})
	}))
	slow.Wrap(overtake("/api/v1/namespaces/default/pods/another", func() {
		deletePod(t, client, "another")
		createPod(t, client, "another", nil)
	}))
	slow.Wrap(overtake("/api/v1/nodes/node1", func() {
		body := []byte(`{"metadata":{"annotations":{"` + annotation.NodeID + `":"7"}}}`)
		if _, err := client.CoreV1().Nodes().Patch(ctx, "node1", types.MergePatchType, body, metav1.PatchOptions{}); err != nil {
			t.Error(err)
		}
	}))
	loop := startLoopWith(t, slow, s.Endpoint, func(o *reconcile.Options) {
		all := netip.MustParsePrefix("10.244.0.0/16")
		o.Plan.ClusterCIDRs, o.Subnets = []netip.Prefix{all}, []ipam.Subnet{{Prefix: all, HostLen: 24}}
	})
	createNode(t, client, "node1")

	for _, name := range []string{"labelled", "given", "another"} {
		createPod(t, client, name, nil)
	}

	nbtest.Eventually(t, "all have addresses, and ports with them", func() bool {
		for name, a := range addresses(t, client) {
			if a == "" || !strings.Contains(s.Nbctl("--bare", "--columns=addresses", "find", "logical_switch_port", "name=default_"+name), " "+a) {
				return false
			}
		}

		return loop.Ready() == nil
	})

	if got := addresses(t, client)["given"]; got != addr.Addr().String() {
		t.Errorf("the pod that had an address already got %s", got)
	}

	pod, err := client.CoreV1().Pods("default").Get(ctx, "labelled", metav1.GetOptions{})
	if err != nil || pod.Labels["kubelet"] == "" {
		t.Errorf("labels %v (%v): what others changed is lost", pod.Labels, err)
	}

	if n := values(t, loop)["ovnkube_controller_northbound_transactions_total"]; n == 0 {
		t.Error("nothing was written")
	}
}

// Without an election a controller gives way to the next that claims the database, and says so;
// a database that is made anew is claimed again.
func TestLeadWithoutElection(t *testing.T) {
	config := kubetest.Start(t).RestConfig()
	s := nbtest.Start(t)
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	db := nb.New([]string{s.Endpoint}, log)
	loop := reconcile.New(reconcile.Options{
		Log: log, Client: kubernetes.NewForConfigOrDie(config), Objects: newClient(t, config), DB: db, Identity: "first",
		Plan: plan.Config{ClusterCIDRs: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/28")}, JoinSubnets: []netip.Prefix{netip.MustParsePrefix("100.64.0.0/16")}, SNATPorts: cluster.PortRange{First: 1, Last: 2}, MTU: 1400},
	})

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()

	database, ended := make(chan error, 1), make(chan error, 1)
	go func() { database <- db.Run(ctx) }()
	go func() { ended <- loop.Run(ctx) }()

	ready := func() bool { return loop.Ready() == nil }
	nbtest.Eventually(t, "leads", ready)
	s.Nbctl("destroy", "Address_Set", "ovn-ebpf-leader", "--", "--all", "destroy", "Logical_Router")
	nbtest.Eventually(t, "claims a database without a term", func() bool {
		return ready() && values(t, loop)["ovnkube_controller_term"] == 2 && s.Nbctl("--bare", "--columns=name", "list", "Logical_Router") != ""
	})

	other := nb.New([]string{s.Endpoint}, log)
	go func() { _ = other.Run(ctx) }()

	<-other.Connected()

	if _, err := other.Claim(ctx, "second"); err != nil {
		t.Fatal(err)
	}

	s.Nbctl("--all", "destroy", "Logical_Router")

	select {
	case err := <-ended:
		if !errors.Is(err, nb.ErrFenced) || !strings.Contains(fmt.Sprint(err), "second") || !strings.Contains(err.Error(), "--leader-elect") {
			t.Errorf("Run: %v, want an error that names the other and what to do", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("it goes on")
	}

	if rows := s.Nbctl("--bare", "--columns=name", "list", "Logical_Router"); rows != "" {
		t.Errorf("it has written all the same: %s", rows)
	}

	cancel()

	if err := <-database; err != nil {
		t.Error(err)
	}
}
