package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/ovn-ebpf/ovn-ebpf/agent/environment"
	"github.com/ovn-ebpf/ovn-ebpf/test/lab"
)

// testRestoredEtcd restores etcd from a copy, as an administrator does after a loss of data: API
// server and etcd are stopped, etcd's data are replaced, both are started. Controller and agents
// then follow the restored cluster without a restart: Services and pods that it lacks are gone,
// changes are undone, and new Services and pods work.
func testRestoredEtcd(t *testing.T, c *Cluster) {
	r := &restoredEtcd{Cluster: c, t: t, events: map[string]int{}}
	for _, n := range c.Nodes() { // tests before this one may have caused some
		r.events[n.Name] = len(c.nodeEvents(t, n.Name, environment.NotReady))
	}

	r.serves("changed", c.Pods["a"])
	r.isRight()

	start := r.stopAPI()

	backup := filepath.Join(t.TempDir(), "etcd")
	if err := os.CopyFS(backup, os.DirFS(r.data())); err != nil {
		t.Fatal(err)
	}

	start()
	r.isRight()

	r.raiseRevision(700)
	r.serves("lost", c.Pods["a"])

	if err := c.SetEndpoints(t.Context(), c.Services["changed"], lab.ServiceSpec{Pods: []*lab.Pod{c.Pods["c"]}}); err != nil {
		t.Fatal(err)
	}

	for _, from := range []string{host("b"), "node1"} {
		c.sees(t, from, c.cluster("changed"), servicePort, "c")
	}

	lost := r.runPod("lost")
	balancer, switchPort := "external_ids:k8s.ovn.org/owner=default/lost", "name=default_lost"
	r.hasRows("Load_Balancer", balancer, true)
	r.hasRows("Logical_Switch_Port", switchPort, true)

	start = r.stopAPI()

	within(t, "the controller is not ready without API server", func() error {
		if err := r.controllerReady(); err == nil || !strings.Contains(err.Error(), "API server") {
			return fmt.Errorf("readyz: %w", err)
		}

		return nil
	})
	r.isHealthy(r.t)
	r.sees(t, host("b"), c.cluster("changed"), servicePort, "c") // agents and OVN continue with what they know
	r.replaceData(backup)
	start()

	began := time.Now()

	// New objects come first: they do not wait until the others are right.
	r.runPod("new")
	r.serves("new", c.Pods["new"])
	t.Logf("a new pod and its Service work after %.1f s", time.Since(began).Seconds())
	within(t, "the controller is ready", r.controllerReady)
	r.hasRows("Load_Balancer", balancer, false)
	r.hasRows("Logical_Switch_Port", switchPort, false)

	for _, from := range []string{host("b"), "node1"} {
		c.sees(t, from, c.cluster("changed"), servicePort, "a")

		for _, v6 := range []bool{false, true} {
			within(t, "the Service that the restored cluster lacks", func() error {
				// Its address does not answer, while its server answers this client.
				if err := isUnanswered(c.ask(t, from, port(c.cluster("lost")(v6), servicePort))); err != nil {
					return fmt.Errorf("from %s: %w", from, err)
				}

				return c.ask(t, from, port(c.pod("a")(v6), podPort))
			})
		}
	}

	r.isRight()

	took := time.Since(began)
	t.Logf("everything is right after %.1f s", took.Seconds())

	if limit := time.Minute * patience(); took > limit {
		t.Errorf("everything is right after %s, want %s at most", took, limit)
	}

	if err := c.DelPod(t.Context(), lost); err != nil { // as kubelet does with pods that the cluster lacks
		t.Error(err)
	}

	r.isRight()
}

// restoredEtcd is a cluster whose etcd a test restores.
type restoredEtcd struct {
	*Cluster
	t      *testing.T
	events map[string]int // about nodes that were not ready, before the test
}

func (r *restoredEtcd) data() string { return filepath.Join(r.dir, "kube", "etcd") }

// replaceData replaces the data of etcd, which does not run.
func (r *restoredEtcd) replaceData(backup string) {
	r.t.Helper()

	if err := os.RemoveAll(r.data()); err != nil {
		r.t.Fatal(err)
	}

	if err := os.CopyFS(r.data(), os.DirFS(backup)); err != nil {
		r.t.Fatal(err)
	}
}

// stopAPI stops API server and etcd. The returned function starts both and waits for the API
// server.
func (r *restoredEtcd) stopAPI() (start func()) {
	r.t.Helper()

	var again []func() error

	for _, name := range []string{"kube-apiserver", "etcd"} {
		f, err := r.Kill(name)
		if err != nil {
			r.t.Fatal(err)
		}

		again = append(again, f)
	}

	return func() {
		r.t.Helper()

		if err := errors.Join(again[1](), again[0]()); err != nil {
			r.t.Fatal(err)
		}

		client := r.kubernetes()
		withinTime(r.t, time.Minute*patience(), "API server", func() error {
			_, err := client.CoreV1().RESTClient().Get().AbsPath("/readyz").DoRaw(r.t.Context())
			return err
		})
	}
}

func (r *restoredEtcd) kubernetes() *kubernetes.Clientset {
	r.t.Helper()

	config, err := r.RestConfig()
	if err != nil {
		r.t.Fatal(err)
	}

	config.QPS = -1

	return kubernetes.NewForConfigOrDie(config)
}

// raiseRevision raises etcd's revision by creating n ConfigMaps.
func (r *restoredEtcd) raiseRevision(n int) {
	r.t.Helper()
	maps := r.kubernetes().CoreV1().ConfigMaps(metav1.NamespaceDefault)

	var group sync.WaitGroup
	for i := range 4 {
		group.Go(func() {
			for j := i; j < n; j += 4 {
				m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("revision-", j)}}
				if _, err := maps.Create(r.t.Context(), m, metav1.CreateOptions{}); err != nil {
					r.t.Error(err)
					return
				}
			}
		})
	}

	group.Wait()
}

// serves creates a Service and waits until it is served for a pod and for a host's sockets.
func (r *restoredEtcd) serves(name string, pod *lab.Pod) {
	r.t.Helper()

	if err := r.addService(r.t.Context(), lab.ServiceSpec{Name: name, Ports: servicePorts(podPort, 0), Pods: []*lab.Pod{pod}}); err != nil {
		r.t.Fatal(err)
	}

	r.t.Cleanup(func() {
		if err := r.DelService(context.WithoutCancel(r.t.Context()), "default", name); err != nil && name != "lost" {
			r.t.Error(err)
		}

		delete(r.Services, name)
	})

	for _, from := range []string{host("b"), "node1"} {
		r.sees(r.t, from, r.cluster(name), servicePort, pod.Name)
	}
}

// runPod adds a pod with a server. It must run within a minute.
func (r *restoredEtcd) runPod(name string) *lab.Pod {
	r.t.Helper()

	ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute*patience())
	defer cancel()

	if err := r.addPod(ctx, name, "node2"); err != nil {
		r.t.Fatal(err)
	}

	pod := r.Pods[name]
	r.t.Cleanup(func() {
		if err := r.DelPod(context.WithoutCancel(r.t.Context()), pod); err != nil {
			r.t.Error(err)
		}

		delete(r.Pods, name)
	})

	return pod
}

// hasRows checks whether OVN's Northbound database has such rows.
func (r *restoredEtcd) hasRows(table, condition string, want bool) {
	r.t.Helper()

	out := r.execute(r.t, "central", "ovn-nbctl", "--db="+r.NBAddress(), "--bare", "--columns=_uuid", "find", table, condition)
	if has := strings.TrimSpace(out) != ""; has != want {
		r.t.Errorf("rows of %s with %s: %t, want %t", table, condition, has, want)
	}
}

func (r *restoredEtcd) controllerReady() error {
	client, err := r.Client("central")
	if err != nil {
		return err
	}

	return lab.Healthy(r.t.Context(), client, "http://127.0.0.1:9409/readyz")
}

// isRight waits until the controller is ready and nothing is wrong on the nodes.
func (r *restoredEtcd) isRight() {
	r.t.Helper()
	within(r.t, "the controller is ready", r.controllerReady)
	r.isHealthy(r.t)

	for _, n := range r.Nodes() {
		if events := r.nodeEvents(r.t, n.Name, environment.NotReady); len(events) > r.events[n.Name] {
			r.t.Errorf("Events about %s: %q, want %d, as before the test", n.Name, events, r.events[n.Name])
		}
	}
}
