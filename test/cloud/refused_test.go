package cloud_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
	"github.com/ovn-ebpf/ovn-ebpf/controller/cloud"
	"github.com/ovn-ebpf/ovn-ebpf/controller/openstack"
	"github.com/ovn-ebpf/ovn-ebpf/controller/underlay"
	testcloud "github.com/ovn-ebpf/ovn-ebpf/test/cloud"
)

// quick makes a controller fast enough for tests that count no requests.
func quick(c *underlay.Config) { c.RequestRate, c.Workers = 100, 4 }

// atProxy makes a controller send its requests to the proxy.
func atProxy(c *underlay.Config) {
	quick(c)
	c.Cloud = testcloud.ProxyCloud
}

// awaitEvent waits for an Event about the Node whose message has all texts, and returns the
// message.
func (k *kube) awaitEvent(n *corev1.Node, reason cloud.Reason, texts ...string) string {
	k.t.Helper()

	var all []string
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		all = k.events(n, reason)
		for _, message := range all {
			if !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(message, text) }) {
				return message
			}
		}
	}

	k.t.Fatalf("no Event %s about %s with %q within a minute: %q", reason, n.Name, texts, all)

	return ""
}

// events returns the messages of the Events about the Node that have the reason, or any if it is
// "".
func (k *kube) events(n *corev1.Node, reason cloud.Reason) (messages []string) {
	k.t.Helper()

	list, err := k.client.CoreV1().Events(metav1.NamespaceDefault).List(k.ctx, metav1.ListOptions{})
	if err != nil {
		k.t.Fatal(err)
	}

	for _, e := range list.Items {
		if e.InvolvedObject.Kind == "Node" && e.InvolvedObject.Name == n.Name && (reason == "" || e.Reason == string(reason)) {
			messages = append(messages, e.Message)
		}
	}

	return messages
}

// deleteNode deletes the Node, and waits until its ConfigMap is gone.
func (k *kube) deleteNode(h *history, n *corev1.Node) {
	k.t.Helper()
	k.removeNode(n)
	h.await(k.t, n, -1)
}

// vifID returns the ID of the Neutron port of a Node.
func (k *kube) vifID(n *corev1.Node) string {
	k.t.Helper()

	vif, err := annotation.ParseUnderlay(n.Annotations)
	if err != nil {
		k.t.Fatal(err)
	}

	return vif.ID
}

// checkNothingLeft checks by the operator's list that Neutron has no pool of the cluster.
func (k *kube) checkNothingLeft() {
	k.t.Helper()

	if left := k.named(k.project.config.Cluster + "-"); len(left) > 0 {
		k.t.Errorf("left: %v", left)
	}
}

// Each refusal of Neutron is an Event about the Node with its remedy. The controller asks again
// every 30 seconds, and the pool is completed once Neutron accepts the request.
func TestRefused(t *testing.T) {
	say := func(method, path string, answer testcloud.Answer) func(*http.Request) testcloud.Answer {
		return func(r *http.Request) testcloud.Answer {
			if r.Method == method && strings.HasSuffix(r.URL.Path, path) {
				return answer
			}

			return testcloud.Answer{}
		}
	}
	for _, tt := range []struct {
		name   string
		answer func(*http.Request) testcloud.Answer // of the proxy; nil: Neutron refuses by itself
		refuse func(k *kube, n *corev1.Node) (cure func())
		reason cloud.Reason
		texts  []string
	}{
		{
			name: "quota",
			refuse: func(k *kube, _ *corev1.Node) func() {
				quotas, err := k.project.client.Quotas(k.ctx)
				if err != nil {
					k.t.Fatal(err)
				}

				k.portQuota(quotas.Ports.Used + 5)

				return func() { k.portQuota(-1) }
			},
			reason: cloud.QuotaExceeded, texts: []string{"quota of ports: limit ", "raise the project's quota"},
		},
		{
			name: "trunk disabled",
			refuse: func(k *kube, n *corev1.Node) func() {
				trunk, err := k.project.client.CreateTrunk(k.ctx, cloud.CreateTrunk{Name: "the operator's", Port: k.vifID(n)})
				if err != nil {
					k.t.Fatal(err)
				}

				set := func(up bool) {
					k.update(lab.Tenant, "trunks/"+trunk.ID, testcloud.Object{"trunk": testcloud.Object{"admin_state_up": up}})
				}
				set(false)
				k.t.Cleanup(func() {
					if _, err := lab.Tenant.Do(context.Background(), "DELETE", "/v2.0/trunks/"+trunk.ID, nil); err != nil {
						k.t.Error(err)
					}
				})

				return func() { set(true) }
			},
			reason: cloud.TrunkRefused, texts: []string{"TrunkDisabled", "openstack network trunk set --enable"},
		},
		{
			name:   "trunk on a running VM",
			answer: say("POST", "/trunks", testcloud.Answer{Status: 409, Type: openstack.TypeParentPortInUse}),
			reason: cloud.TrunkRefused, texts: []string{"make the trunk before the VM boots", "trunk: true"},
		},
		{
			name:   "trunks forbidden",
			answer: say("POST", "/trunks", testcloud.Answer{Status: 403, Type: "PolicyNotAuthorized"}),
			reason: cloud.RequestForbidden, texts: []string{"ask the cloud's operator", "underlay mode needs trunks"},
		},
		{
			name:   "subnet pool forbidden",
			answer: say("POST", "/subnets", testcloud.Answer{Status: 403, Type: "PolicyNotAuthorized"}),
			reason: cloud.RequestForbidden, texts: []string{"a subnet pool that is shared with the project"},
		},
		{
			name:   "credentials",
			answer: say("POST", "/networks", testcloud.Answer{Status: 401}),
			reason: cloud.CredentialsRefused, texts: []string{"write valid ones to clouds.yaml"},
		},
		{
			name:   "Neutron away",
			answer: say("POST", "/networks", testcloud.Answer{Status: 500, Type: "HTTPInternalServerError"}),
			reason: cloud.CloudAway, texts: []string{"OpenStack is away since 20", "check Keystone and Neutron"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := newProject(t)
			p.config.SubnetPool6 = ""
			k := newKube(p)
			h := k.watch()

			lab.Proxy.Set(tt.answer)
			t.Cleanup(func() { lab.Proxy.Set(nil) })

			c := k.controllerWith("one", atProxy)
			c.await("/readyz", "ok")

			n := k.node(28)

			cure := func() { lab.Proxy.Set(nil) }
			if tt.refuse != nil {
				cure = tt.refuse(k, n)
			}

			lab.Proxy.Set(tt.answer)
			k.join(n)
			message := k.awaitEvent(n, tt.reason, tt.texts...)
			c.await("/readyz", "node node1: "+string(tt.reason)+": ")
			t.Logf("after %d requests: %s: %s", len(lab.Proxy.Set(tt.answer)), tt.reason, message)

			cure()
			h.await(t, n, 13)

			if all := k.events(n, ""); len(all) != 1 {
				t.Errorf("%d Events, want one: %q", len(all), all)
			}

			k.deleteNode(h, n)
			c.stop()
			k.checkNothingLeft()
		})
	}
}

// A subnet pool without a free prefix is an Event with its remedy. After a prefix was added, the
// node gets its ports.
func TestEmptyPool(t *testing.T) {
	p := newProject(t)
	p.config.SubnetPool6 = ""
	p.config.SubnetPool = p.make("subnetpool", testcloud.Object{
		"name": "small", "prefixes": []string{"10.245.0.0/28"}, "default_prefixlen": 28, "min_prefixlen": 20,
	})
	k := newKube(p)
	h := k.watch()
	c := k.controllerWith("one", atProxy)
	first, second := k.node(28), k.node(28)
	k.join(first)
	h.await(t, first, 13)
	k.join(second)
	message := k.awaitEvent(second, cloud.SubnetPoolEmpty, "SubnetAllocationError", "openstack subnet pool set --pool-prefix")

	lab.Proxy.Set(nil)
	t.Log(message)

	k.update(lab.Tenant, "subnetpools/"+p.config.SubnetPool, testcloud.Object{"subnetpool": testcloud.Object{
		"prefixes": []string{"10.245.0.0/28", "10.245.0.16/28"},
	}})
	h.await(t, second, 13)
	t.Logf("%d requests until the node had its ports", len(lab.Proxy.Set(nil)))
	k.deleteNode(h, first)
	k.deleteNode(h, second)
	c.stop()
	k.checkNothingLeft()
}

// Of two Nodes with the same VIF, the first one has its ports, and the other one gets an Event.
// When the first one is gone, the other one gets the ports.
func TestVIFTaken(t *testing.T) {
	p := newProject(t)
	p.config.SubnetPool6 = ""
	k := newKube(p)
	h := k.watch()
	c := k.controllerWith("one", atProxy)
	first := k.node(28)
	k.join(first)
	h.await(t, first, 13)

	lab.Proxy.Set(nil)

	second := first.DeepCopy()
	second.Name = "renamed"
	k.join(second)
	t.Log(k.awaitEvent(second, cloud.VIFTaken, "is that of node node1: delete the Node that is wrong"))

	if requests := lab.Proxy.Set(nil); len(requests) > 0 {
		t.Errorf("requests for a Node whose VIF is taken: %v", requests)
	}

	k.deleteNode(h, first)
	h.await(t, second, 13)
	k.deleteNode(h, second)
	c.stop()
	k.checkNothingLeft()
}

// The proxy delays requests by five seconds, answers with errors, or drops answers after Neutron has
// done the work. The controller keeps to its request rate. Afterwards, the pools are complete, and
// nothing exists twice.
func TestSlowNeutron(t *testing.T) {
	for _, tt := range []struct {
		name   string
		answer func() func(*http.Request) testcloud.Answer
		nodes  int
	}{
		{"five seconds per change", func() func(*http.Request) testcloud.Answer {
			return func(r *http.Request) testcloud.Answer {
				if r.Method == http.MethodGet {
					return testcloud.Answer{}
				}

				return testcloud.Answer{Delay: 5 * time.Second}
			}
		}, 2},
		{"each third answer is lost", func() func(*http.Request) testcloud.Answer {
			changes := 0 // the proxy calls this under its lock

			return func(r *http.Request) testcloud.Answer {
				if r.Method == http.MethodGet {
					return testcloud.Answer{}
				}

				changes++

				return testcloud.Answer{Lost: changes%3 == 0}
			}
		}, 3},
		{"each third change is answered with 409, 429 or 503", func() func(*http.Request) testcloud.Answer {
			changes := 0

			return func(r *http.Request) testcloud.Answer {
				if r.Method == http.MethodGet {
					return testcloud.Answer{}
				}

				if changes++; changes%3 != 0 {
					return testcloud.Answer{}
				}

				a := testcloud.Answer{Status: []int{409, 429, 503}[changes/3%3], Type: "said"}
				if a.Status == 429 {
					a.Header = http.Header{"Retry-After": {"2"}}
				}

				return a
			}
		}, 3},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := newProject(t)
			p.config.SubnetPool6 = ""
			k := newKube(p)
			h := k.watch()

			t.Cleanup(func() { lab.Proxy.Set(nil) })

			const rate, workers = 8, 2

			c := k.controllerWith("one", func(c *underlay.Config) {
				atProxy(c)
				c.RequestRate, c.Workers = rate, workers
			})
			c.await("/readyz", "ok")

			answer := tt.answer()
			lab.Proxy.Set(answer)

			var nodes []*corev1.Node
			for range tt.nodes {
				n := k.node(28)
				k.join(n)
				nodes = append(nodes, n)
			}

			for _, n := range nodes {
				h.await(t, n, 13)
			}

			requests := lab.Proxy.Set(nil)
			checkRate(t, requests, rate)
			t.Logf("%d requests for %d nodes", len(requests), tt.nodes)

			const each = 1 + 1 + 1 + 13 // network, subnet, trunk and ports; those of router and metadata have no names
			if all := p.named(p.config.Cluster + "-"); len(all) != tt.nodes*each {
				t.Errorf("%d objects of %d pools, want %d: %v", len(all), tt.nodes, tt.nodes*each, all)
			}

			for _, n := range nodes {
				k.deleteNode(h, n)
			}

			c.stop()
			k.checkNothingLeft()
		})
	}
}

// checkRate checks that no second has more requests than the rate allows, with its burst.
func checkRate(t *testing.T, requests []testcloud.Request, rate int) {
	t.Helper()

	for i := range requests {
		for j := i; j < len(requests); j++ {
			if requests[j].At.Sub(requests[i].At) < time.Second && j-i >= 2*rate+1 {
				t.Errorf("%d requests within a second, want at most %d", j-i+1, 2*rate+1)
				return
			}
		}
	}
}

// machines is the number of machines that come and go in TestVMDeleted.
const machines = 20

// Cluster API deletes the VM, then the trunks with all subports, then the VM's port, and the Node
// last. Between any two of these steps, the controller looks at Neutron, and makes nothing again.
// When the Node is gone, nothing is left in Neutron ten seconds later, and Neutron has refused
// nothing.
func TestVMDeleted(t *testing.T) {
	p := newProject(t)
	p.config.SubnetPool6 = ""
	k := newKube(p)
	h := k.watch()
	c := k.controllerWith("one", func(c *underlay.Config) {
		atProxy(c)
		c.MaxPorts, c.ReleaseAfter = 13, time.Hour
	})
	c.await("/readyz", "ok")

	var nodes []*corev1.Node

	for range machines {
		n := k.node(26) // which has room for more than 13 ports
		k.join(n)
		nodes = append(nodes, n)
	}

	for _, n := range nodes {
		h.await(t, n, 13)
	}

	made := lab.Proxy.Set(nil)

	// look makes the controller look at each pool: a new leader does.
	leader := 1
	look := func() {
		t.Helper()
		c.stop()

		leader++
		c = k.controllerWith(fmt.Sprint("leader", leader), func(c *underlay.Config) {
			atProxy(c)
			c.MaxPorts, c.ReleaseAfter = 13, time.Hour
		})
		c.await("/metrics", "\n"+`ovnkube_controller_leader 1`)

		for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
			if c.requests()["get quotas"] > machines { // one per pool, and one at the start
				return
			}

			if time.Now().After(deadline) {
				t.Fatal("the controller has not looked at all pools within a minute")
			}
		}
	}
	each := func(do func(n *corev1.Node)) {
		t.Helper()

		for _, n := range nodes {
			do(n)
		}

		look()
	}
	each(func(n *corev1.Node) { // Nova
		k.update(lab.Admin, "ports/"+k.vifID(n), testcloud.Object{"port": testcloud.Object{"device_id": "", "device_owner": ""}})
	})

	for _, n := range nodes {
		k.awaitEvent(n, cloud.VIFWithoutVM, "nothing is made or repaired")
	}

	each(k.deleteTrunk)
	each(func(n *corev1.Node) { k.delete("ports/" + k.vifID(n)) })

	for _, r := range lab.Proxy.Set(nil) {
		if r.Method != http.MethodGet {
			t.Errorf("%s %s while Cluster API deletes machines", r.Method, r.Path)
		}
	}

	var longest time.Duration

	for _, n := range nodes {
		gone := time.Now()

		k.deleteNode(h, n)

		longest = max(longest, time.Since(gone))

		if left := k.named(k.name(n) + "-"); len(left) > 0 { // subnets and ports
			t.Errorf("left of %s: %v", n.Name, left)
		}
	}

	k.checkNothingLeft()
	t.Logf("%d requests to make %d pools; nothing was left at most %.1f s after a Node was deleted, %d requests",
		len(made), machines, longest.Seconds(), len(lab.Proxy.Set(nil)))

	if longest > 10*time.Second {
		t.Errorf("a pool was there for %s after its Node, want at most 10 s", longest)
	}

	c.requests() // none was refused
}

// name returns the name of a Node's network and trunk.
func (k *kube) name(n *corev1.Node) string { return k.project.config.Cluster + "-" + n.Name }

// delete deletes an object of the tenant's.
func (k *kube) delete(path string) {
	k.t.Helper()

	if _, err := lab.Tenant.Do(k.ctx, "DELETE", "/v2.0/"+path, nil); err != nil {
		k.t.Fatal(err)
	}
}

// deleteTrunk deletes the trunk of a Node with all subports, as Cluster API does: it takes the
// subports out, and deletes their ports.
func (k *kube) deleteTrunk(n *corev1.Node) {
	k.t.Helper()

	trunks, err := k.project.client.Trunks(k.ctx, openstack.TrunkFilter{Port: k.vifID(n)})
	if err != nil || len(trunks) != 1 {
		k.t.Fatalf("trunks %v, %v", trunks, err)
	}

	var ports []string
	for _, s := range trunks[0].Subports {
		ports = append(ports, s.Port)
	}

	if err := k.project.client.RemoveSubports(k.ctx, trunks[0].ID, ports); err != nil {
		k.t.Fatal(err)
	}

	for _, id := range ports {
		k.delete("ports/" + id)
	}

	k.delete("trunks/" + trunks[0].ID)
}
