package cloud_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
	testkube "github.com/ovn-ebpf/ovn-ebpf/test/kube"
	testlab "github.com/ovn-ebpf/ovn-ebpf/test/lab"
)

// startLab brings a lab up whose VMs have their network from a Neutron of its own.
func startLab(t *testing.T, name string, o testlab.Options) *testlab.Lab {
	t.Helper()
	needCloud(t)

	o.Dir, o.Name, o.Owned, o.Cloud = "/run/ovn-ebpf-"+name, name, true, true

	o.BinDir = os.Getenv("BIN_DIR")
	if o.BinDir == "" {
		t.Fatal("BIN_DIR is not set: the directory of the built programs")
	}

	o.Progress = t.Output()

	l, err := testlab.Up(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if err := l.Down(context.Background()); err != nil {
			t.Error(err)
		}

		if residue, err := testlab.Residue(o.Dir, o.Name); len(residue) > 0 || err != nil {
			t.Errorf("left behind: %v, %v", residue, err)
		}
	})

	return l
}

// neutronRequests returns the number of requests in the log of the lab's Neutron.
func neutronRequests(t *testing.T, l *testlab.Lab) int {
	t.Helper()

	log, err := os.ReadFile(filepath.Join(l.Dir(), "cloud/neutron.log"))
	if err != nil {
		t.Fatal(err)
	}

	return strings.Count(string(log), ` HTTP/1.1" status: `)
}

// awaitPool waits until the API server has a pool of this many ports.
func awaitPool(t *testing.T, l *testlab.Lab, node string, ports int) {
	t.Helper()

	client, err := l.Kubernetes()
	if err != nil {
		t.Fatal(err)
	}

	pools := client.CoreV1().ConfigMaps(annotation.PoolNamespace)
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(100 * time.Millisecond) {
		object, err := pools.Get(t.Context(), annotation.PoolPrefix+node, metav1.GetOptions{})

		have := 0
		if err == nil {
			have = strings.Count(object.Data[annotation.PoolPorts], "\n")
		}

		if have == ports {
			return
		}

		if time.Now().After(end) {
			t.Fatalf("pool of %s has %d ports, want %d: %v", node, have, ports, err)
		}
	}
}

// typed runs a command of docs/underlay.md as ovnlab exec does. Its output must have the text.
func typed(t *testing.T, l *testlab.Lab, on, command, want string) {
	t.Helper()

	out, err := l.Typed(t.Context(), on, strings.Fields(command)...)
	if err != nil || !strings.Contains(out, want) {
		t.Errorf("%s on %s: %v, want %q in it:\n%s", command, on, err, want, out)
	}
}

// TestNoCalls: pods come and go without a request to Neutron.
func TestNoCalls(t *testing.T) {
	const pods = 200

	needCloud(t)

	if _, err := testkube.BuildForPods(t.Context(), testkube.CacheDir(), t.Output()); err != nil { // kubectl
		t.Fatal(err)
	}

	l := startLab(t, "nocalls", testlab.Options{Nodes: 1, VMs: 1, Cluster: true})
	awaitPool(t, l, "vm1", 13)

	typed(t, l, "central", "kubectl get configmap -n ovn-ebpf-pools underlay-vm1 -o yaml", "name: underlay-vm1")
	typed(t, l, "cloud", "openstack port list --network k8s-vm1", "k8s-vm1-10.244.0.2 ")

	before := neutronRequests(t, l)

	for i := range pods {
		spec := testlab.PodSpec{Name: fmt.Sprint("nocalls-", i), Node: "vm1"}

		pod, err := l.AddPod(t.Context(), spec)
		if err == nil {
			err = l.DelPod(t.Context(), pod)
		}

		if err != nil {
			t.Fatal(err)
		}
	}

	if n := neutronRequests(t, l) - before; n != 0 {
		t.Errorf("%d ADDs and DELs made %d requests to Neutron, want none", pods, n)
	}

	// The log would have had them.
	if _, err := l.OpenStack().Tenant.Do(t.Context(), "GET", "/v2.0/ports", nil); err != nil {
		t.Fatal(err)
	}

	for end := time.Now().Add(10 * time.Second); neutronRequests(t, l) == before; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal(errors.New("a request is not in Neutron's log"))
		}
	}
}
