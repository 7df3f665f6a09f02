package e2e

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/agent/podnet"
	"github.com/ovn-ebpf/ovn-ebpf/test/lab"
	"github.com/ovn-ebpf/ovn-ebpf/test/lab/netns"
)

// testNestedControlPlane: a new pod needs neither OVN's databases nor northd, and a sandbox can be
// deleted without the API server.
func testNestedControlPlane(t *testing.T, n *nested) {
	t.Run("new pod without OVN's databases", func(t *testing.T) {
		// OVN resolves a new neighbour of its router through the Southbound database.
		n.exchange(t, n.podEnd("a"), end{"ext", "ext", outside(false)}, extent{requests: 3})

		n.without(t, []string{"central-ovn-northd", "central-ovnnb_db", "central-ovnsb_db"}, func() {
			n.startPods(t, map[string]string{"late": "vm1"})
			n.talks(t, "late", n.peers())
		})
	})

	t.Run("DEL without the API server", func(t *testing.T) {
		was := n.portOf(t, "vm1", "late")
		n.without(t, []string{"kube-apiserver"}, func() {
			if err := n.CallPlugin(t.Context(), "DEL", n.sandbox("late")); err != nil {
				t.Error(err)
			}

			n.awaitState(t, "vm1", was.tag, "resting")
			n.exchange(t, n.podEnd("a"), n.podEnd("c"), extent{requests: 3})
		})
		within(t, "API server", func() error {
			_, err := n.get(t, "late")
			return err
		})
		n.deletePods(t, "late")
	})
}

// without kills processes of the lab for the time of a function.
func (n *nested) without(t *testing.T, processes []string, run func()) {
	t.Helper()

	for _, name := range processes {
		if err := n.StopProcess(name, true); err != nil {
			t.Fatal(err)
		}
	}
	defer func() { // also if run ends the test
		for _, name := range slices.Backward(processes) {
			if err := n.StartProcess(name); err != nil {
				t.Error(err)
			}
		}
	}()

	run()
}

// testNestedKills: the agent of vm1 is killed while pods come and go. Running pods lose no packet, no
// two pods ever have the same tag, and nothing is left of the pods that went.
func testNestedKills(t *testing.T, n *nested) {
	n.deploy(t, "web", "vm1")
	dropped := n.dropped(t)
	ext := end{"ext", "ext", outside(false)}
	ways := [][2]end{{n.podEnd("a"), n.podEnd("c")}, {n.podEnd("b"), ext}}

	var held []*background

	for _, way := range ways {
		to := port(way[1].address, podPort)
		client := n.hold(t, "datagrams", way[0].on, to, time.Hour, "-udp", "-interval", "10ms")
		held = append(held, client)
	}

	tags := watchTags(n.VM(1))

	for _, replicas := range []int{4, 1, 6, 2, 5} {
		n.scale(t, "web", replicas)

		if err := n.StopAgent(1, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}

		if err := n.StartAgent(t.Context(), 1); err != nil {
			t.Fatal(err)
		}

		if err := n.AwaitAgent(t.Context(), 1); err != nil {
			t.Fatal(err)
		}

		n.awaitSomeReady(t, "web")
	}

	n.scale(t, "web", 3)

	within(t, "only running pods have parts", func() error { return n.consistent(t, n.VM(1)) })
	n.awaitUsed(t, "vm1", 5)

	if err := tags.end(); err != nil {
		t.Error(err)
	}

	lost := 0

	for i, b := range held {
		b.stop(t)
		lost += b.delivered(t, ways[i][0], ways[i][1])
	}

	n.explained(t, "datagrams of running pods", lost, dropped)
}

// awaitSomeReady waits until a pod of a Deployment is ready.
func (n *nested) awaitSomeReady(t *testing.T, name string) {
	t.Helper()
	within(t, "pods of deployment "+name, func() error {
		deployments := n.client.AppsV1().Deployments(metav1.NamespaceDefault)

		d, err := deployments.Get(t.Context(), name, metav1.GetOptions{})
		if err == nil && d.Status.ReadyReplicas == 0 {
			err = errors.New("none is ready")
		}

		return err
	})
}

// tagWatch reads the records of a VM's pods all the time.
type tagWatch struct {
	stop chan struct{}
	done sync.WaitGroup
	err  error // valid after done
}

// watchTags watches until end is called.
func watchTags(vm *lab.VM) *tagWatch {
	w := &tagWatch{stop: make(chan struct{})}
	w.done.Go(func() {
		reads := 0

		for w.err == nil {
			select {
			case <-w.stop:
				w.err = cmp.Or(w.err, enough(reads))
				return
			case <-time.After(2 * time.Millisecond):
			}

			reads++
			w.err = uniqueTags(vm)
		}
	})

	return w
}

func enough(reads int) error {
	if reads < 100 {
		return fmt.Errorf("watch tags: the records were read %d times only", reads)
	}

	return nil
}

// end ends the watch and returns an error if two pods had the same tag at a time.
func (w *tagWatch) end() error {
	close(w.stop)
	w.done.Wait()

	return w.err
}

// uniqueTags returns an error if two records of a VM have the same tag.
func uniqueTags(vm *lab.VM) error {
	pods, err := podnet.Recorded(filepath.Join(vm.RunDir, podnet.RecordDir))
	if err != nil {
		return err
	}

	owners := map[int]podnet.Pod{}
	for _, p := range pods {
		if other, taken := owners[p.Tag]; taken {
			return fmt.Errorf("tag %d has the pods %s and %s", p.Tag, other.Name(), p.Name())
		}

		owners[p.Tag] = p
	}

	return nil
}

// consistent returns an error unless ports, devices and programs of a VM are those of its running pods.
func (n *nested) consistent(t *testing.T, vm *lab.VM) error {
	t.Helper()

	onNode := metav1.ListOptions{FieldSelector: "spec.nodeName=" + vm.Name}

	pods, err := n.client.CoreV1().Pods(metav1.NamespaceDefault).List(t.Context(), onNode)
	if err != nil {
		return err
	}

	running := map[string]bool{}

	for _, p := range pods.Items {
		if p.Status.Phase != corev1.PodRunning || p.DeletionTimestamp != nil {
			return fmt.Errorf("pod %s is %s", p.Name, p.Status.Phase)
		}

		running["default/"+p.Name] = true
	}

	used := map[string]bool{}

	for _, l := range n.pool(t, vm.Name) {
		if l.pod != "-" {
			used[l.pod] = true
		}
	}

	devices, err := podDevices(vm)
	if err != nil {
		return err
	}

	programs, err := podPrograms(vm)
	if err != nil {
		return err
	}

	switch {
	case !maps.Equal(used, running):
		return fmt.Errorf("pods %v have ports, want %v", used, running)
	case len(devices) != len(running):
		return fmt.Errorf("devices %v for the pods %v", devices, running)
	case !slices.Equal(devices, programs):
		return fmt.Errorf("programs for the devices %v, want %v", programs, devices)
	}

	return nil
}

// podDevices returns the interface indices of the VM's ends of its pods, sorted.
func podDevices(vm *lab.VM) (list []int, err error) {
	err = netns.Do(vm.Netns, func() error {
		names, err := link.PodDevices()
		if err != nil {
			return err
		}

		for _, name := range names {
			l, err := link.Get(name)
			if err != nil {
				return err
			}

			list = append(list, l.Index)
		}

		return nil
	})

	slices.Sort(list)

	return list, err
}

// podPrograms returns the interface indices for which a VM has pinned programs, sorted.
func podPrograms(vm *lab.VM) ([]int, error) {
	pins, err := filepath.Glob(filepath.Join(vm.PinDir, podPins+"*"))
	if err != nil {
		return nil, err
	}

	var list []int

	for _, pin := range pins {
		index, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(pin), podPins))
		if err != nil {
			return nil, fmt.Errorf("pinned program %s: %w", pin, err)
		}

		list = append(list, index)
	}

	slices.Sort(list)

	return list, nil
}

// Names of pinned programs, without and with an interface index.
const (
	nicPin  = "nested_wire"
	podPins = "nested_pod_"
)

// testNestedRepairs: the agent restores every part that is removed. Each pod loses one part only,
// because the agent repairs a pod as a whole.
func testNestedRepairs(t *testing.T, n *nested) {
	vm, lost := n.VM(1), []string{"program", "route", "neighbour", "gateway", "link", "device"}

	nodes := map[string]string{}
	for _, part := range lost {
		nodes[part] = vm.Name
	}

	n.startPods(t, nodes)
	within(t, "all parts", func() error { return n.repaired(t, vm) })

	pin := podPins + strconv.Itoa(n.deviceOf(t, "program").Index)
	for _, name := range []string{nicPin, pin} {
		if err := os.Remove(filepath.Join(vm.PinDir, name)); err != nil {
			t.Fatal(err)
		}
	}

	address := func(pod string) string { return n.sandbox(pod).IP4().String() }
	for _, command := range []struct{ on, command string }{
		{vm.Name, "ip route del " + address("route") + " dev " + n.deviceOf(t, "route").Name},
		{vm.Name, "ip neigh del " + address("neighbour") + " dev " + n.deviceOf(t, "neighbour").Name},
		{host("gateway"), "ip neigh del " + n.gatewayOf(t, "gateway") + " dev eth0"},
		{vm.Name, "ip link set " + n.deviceOf(t, "link").Name + " down"},
		{vm.Name, "ip link del " + n.deviceOf(t, "device").Name},
		{vm.Name, "ip link set eth0 promisc off"},
	} {
		n.execute(t, command.on, strings.Fields(command.command)...)
	}

	began := time.Now()

	within(t, "repairs", func() error { return n.repaired(t, vm) })
	t.Logf("repaired after %s", time.Since(began).Round(100*time.Millisecond))

	for _, pod := range lost {
		n.exchange(t, n.podEnd(pod), n.podEnd("c"), extent{requests: 3})
		n.exchange(t, n.podEnd(pod), end{vm.Name, vm.Name, vm.IP4}, extent{requests: 3})
	}

	n.deletePods(t, lost...)
}

// gatewayOf returns the address of a pod's gateway.
func (n *nested) gatewayOf(t *testing.T, pod string) string {
	t.Helper()
	out := n.execute(t, host(pod), "ip", "route", "show", "default")
	_, rest, _ := strings.Cut(out, "via ")

	gateway, _, found := strings.Cut(rest, " ")
	if !found {
		t.Fatalf("pod %s has no gateway: %s", pod, out)
	}

	return gateway
}

// deviceOf returns the VM's end of the interface of a pod on vm1.
func (n *nested) deviceOf(t *testing.T, pod string) (l link.Link) {
	t.Helper()

	records, err := podnet.Recorded(filepath.Join(n.VM(1).RunDir, podnet.RecordDir))
	if err != nil {
		t.Fatal(err)
	}

	i := slices.IndexFunc(records, func(p podnet.Pod) bool { return p.Name() == "default/"+pod })
	if i < 0 {
		t.Fatalf("pod %s has no record", pod)
	}

	err = netns.Do(n.VM(1).Netns, func() (err error) {
		l, err = link.Get(podnet.HostName(records[i].ContainerID, records[i].Interface))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}

	return l
}

// repaired returns an error that names each missing part of the VM and of the pods of testNestedRepairs.
func (n *nested) repaired(t *testing.T, vm *lab.VM) error {
	t.Helper()

	errs := []error{n.consistent(t, vm)}
	if _, err := os.Stat(filepath.Join(vm.PinDir, nicPin)); err != nil {
		errs = append(errs, err)
	}

	for _, want := range []struct{ on, command, text string }{
		{vm.Name, "ip route show " + n.sandbox("route").IP4().String(), "dev veth"},
		{vm.Name, "ip neigh show " + n.sandbox("neighbour").IP4().String(), "PERMANENT"},
		{host("gateway"), "ip neigh show " + n.gatewayOf(t, "gateway"), "PERMANENT"},
		{vm.Name, "ip link show eth0", "PROMISC"},
	} {
		out := n.execute(t, want.on, strings.Fields(want.command)...)
		if !strings.Contains(out, want.text) {
			errs = append(errs, fmt.Errorf("%s on %s: no %s: %s", want.command, want.on, want.text, out))
		}
	}

	devices := n.execute(t, vm.Name, "ip", "-br", "link", "show", "type", "veth")
	if strings.Contains(devices, " DOWN ") {
		errs = append(errs, fmt.Errorf("a device is down: %s", devices))
	}

	return errors.Join(errs...)
}
