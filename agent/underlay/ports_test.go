package underlay

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/agent/cluster"
	"github.com/ovn-ebpf/ovn-ebpf/agent/podnet"
	"github.com/ovn-ebpf/ovn-ebpf/agent/pool"
	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
)

const vif = "00000000-0000-4000-8000-000000000001"

// portID returns the UUID of the port with a tag.
func portID(tag int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", 100+tag) }

// poolData returns the data of a ConfigMap with n ports, whose first has tag 2.
func poolData(t testing.TB, n int, change func(*annotation.Pool, []annotation.PoolPort)) map[string]string {
	t.Helper()

	node := annotation.Pool{
		Cluster: "lab", Node: "vm1", VIF: vif, Trunk: portID(800), Network: portID(900), MTU: 1400,
		Gateways: map[netip.Prefix]string{netip.MustParsePrefix("10.244.0.17/28"): "fa:16:3e:00:01:01"},
	}

	var ports []annotation.PoolPort
	for i := range n {
		ports = append(ports, annotation.PoolPort{
			ID: portID(i + 2), Tag: i + 2, MAC: net.HardwareAddr{0xfa, 0x16, 0x3e, 0, 1, byte(i + 2)},
			Addresses: []netip.Addr{netip.AddrFrom4([4]byte{10, 244, 0, byte(18 + i)})},
		})
	}

	if change != nil {
		change(&node, ports)
	}

	text, err := annotation.FormatPoolPorts(ports)
	if err != nil {
		t.Fatal(err)
	}

	return map[string]string{annotation.PoolNode: annotation.FormatPool(node), annotation.PoolPorts: text}
}

func newPorts(t testing.TB, cfg Config) *ports {
	t.Helper()

	p, err := openPorts(cfg, time.Now(), slog.New(slog.NewTextHandler(t.Output(), nil)))
	if err != nil {
		t.Fatal(err)
	}

	return p
}

func testConfig(t testing.TB) Config {
	t.Helper()
	return Config{NodeName: "vm1", VIF: vif, RunDir: t.TempDir(), Rest: time.Minute}
}

func at(container string) podnet.Attachment {
	return podnet.Attachment{ContainerID: container, Interface: "eth0"}
}

func mustTake(t testing.TB, p *ports, container string) podnet.Pod {
	t.Helper()

	pod, err := p.take(at(container), "default/"+container, "uid-"+container, time.Now())
	if err != nil {
		t.Fatal(err)
	}

	return pod
}

func TestPorts_takeReturnsTheInterface(t *testing.T) {
	p := newPorts(t, testConfig(t))
	if _, err := p.take(at("a"), "default/a", "", time.Now()); !errors.Is(err, errNoPool) || p.missing() == "" {
		t.Errorf("without a pool: error %v, missing %q", err, p.missing())
	}

	if err := p.update(poolData(t, 2, nil), time.Now()); err != nil || p.missing() != "" {
		t.Fatalf("update: %v, missing %q", err, p.missing())
	}

	got := mustTake(t, p, "a")
	if got.Tag != 2 || got.Port != portID(2) || got.MTU != 1400 || got.MAC.String() != "fa:16:3e:00:01:02" ||
		fmt.Sprint(got.Addresses, got.Gateways, got.GatewayMACs) != "[10.244.0.18/28] [10.244.0.17] [fa:16:3e:00:01:01]" {
		t.Errorf("got %+v", got)
	}

	if again := mustTake(t, p, "a"); again.Tag != got.Tag {
		t.Errorf("a repeated ADD gets tag %d", again.Tag)
	}

	got.ContainerID, got.Interface = "a", "eth0"
	if !p.has(got) {
		t.Error("the interface does not have its port")
	}

	if other := got; true {
		if other.ContainerID = "b"; p.has(other) {
			t.Error("another container has the port")
		}

		if other = got; true {
			if other.Tag = 3; p.has(other) {
				t.Error("the interface has another tag")
			}
		}
	}

	mustTake(t, p, "b")

	_, err := p.take(at("c"), "default/c", "", time.Now())
	if err == nil || err.Error() != "no free port on node vm1: 2 of 2 used" {
		t.Errorf("the third of two: %v", err)
	}

	want := map[string]uint64{resultTaken: 3, resultNoPort: 1, resultNoPool: 1, resultNoGateway: 0}
	if s := p.stats(time.Now()); fmt.Sprint(s.results) != fmt.Sprint(want) || s.states[pool.Used] != 2 || s.early != 0 {
		t.Errorf("stats %+v, want results %v", s, want)
	}

	p.releaseHost(podnet.HostName("b", "eth0"), time.Now())
	p.releaseHost(podnet.HostName("unknown", "eth0"), time.Now())

	if tag := mustTake(t, p, "c").Tag; tag != 3 || p.stats(time.Now()).early != 1 {
		t.Errorf("the resting port: tag %d, %d early", tag, p.stats(time.Now()).early)
	}
}

func TestPorts_addressWithoutGatewayIsNotTaken(t *testing.T) {
	p := newPorts(t, testConfig(t))

	data := poolData(t, 1, func(n *annotation.Pool, _ []annotation.PoolPort) {
		n.Gateways = map[netip.Prefix]string{netip.MustParsePrefix("10.9.0.1/28"): "fa:16:3e:00:01:01"}
	})
	if err := p.update(data, time.Now()); err != nil {
		t.Fatal(err)
	}

	_, err := p.take(at("a"), "default/a", "", time.Now())
	if err == nil || !strings.Contains(err.Error(), "no gateway for address 10.244.0.18") {
		t.Errorf("error %v", err)
	}

	if s := p.stats(time.Now()); s.states[pool.Used] != 0 || s.results[resultNoGateway] != 1 {
		t.Errorf("stats %+v", s)
	}
}

func TestPorts_invalidConfigMapKeepsTheLastValidPool(t *testing.T) {
	p := newPorts(t, testConfig(t))

	valid := poolData(t, 2, nil)
	if err := p.update(valid, time.Now()); err != nil {
		t.Fatal(err)
	}

	malformed := poolData(t, 2, nil)
	malformed[annotation.PoolPorts] = strings.Replace(malformed[annotation.PoolPorts], "fa:16:3e:00:01:03", "fa:16", 1)
	older := poolData(t, 2, nil) // in its format, the UUID is before the tag
	older[annotation.PoolPorts] = portID(2) + " 2 fa:16:3e:00:01:02 10.244.0.18 -\n"
	ofOther := poolData(t, 2, func(n *annotation.Pool, _ []annotation.PoolPort) { n.Node = "vm2" })

	ofOtherVIF := poolData(t, 2, func(n *annotation.Pool, _ []annotation.PoolPort) { n.VIF = portID(1) })
	for _, tc := range []struct {
		name string
		data map[string]string
		say  []string
	}{
		{"a malformed line", malformed, []string{"ovn-ebpf-pools/underlay-vm1", "line 2: mac"}},
		{"an older controller's", older, []string{"line 1: tag"}},
		{"another node's", ofOther, []string{"node: it is the pool of node vm2"}},
		{"another VIF's", ofOtherVIF, []string{"vif", portID(1)}},
		{"no data", nil, []string{annotation.PoolNode}},
	} {
		err := p.update(tc.data, time.Now())
		for _, say := range tc.say {
			if err == nil || !strings.Contains(err.Error(), say) || !strings.Contains(p.staleReason(), say) {
				t.Errorf("%s: error %v, faults %q; want %q", tc.name, err, p.staleReason(), say)
			}
		}

		tags, mtu := p.network()
		if p.missing() != "" || !slices.Equal(tags, []int{2, 3}) || mtu != 1400 {
			t.Errorf("%s: missing %q, tags %v, MTU %d", tc.name, p.missing(), tags, mtu)
		}
	}

	mustTake(t, p, "a")

	if err := p.update(valid, time.Now()); err != nil || p.staleReason() != "" {
		t.Errorf("valid again: error %v, faults %q", err, p.staleReason())
	}
}

// The first ConfigMap of a node may come before the cloud has its network.
func TestPorts_networkWithoutGatewaysIsMissing(t *testing.T) {
	p := newPorts(t, testConfig(t))
	for _, change := range []func(*annotation.Pool){
		func(n *annotation.Pool) { n.Gateways = nil },
		func(n *annotation.Pool) { n.Network, n.MTU = "", 0 },
	} {
		data := poolData(t, 1, func(n *annotation.Pool, _ []annotation.PoolPort) { change(n) })

		p.known = annotation.Pool{}
		if err := p.update(data, time.Now()); err != nil {
			t.Fatal(err)
		}

		if _, err := p.take(at("a"), "default/a", "", time.Now()); !errors.Is(err, errNoPool) || p.missing() == "" {
			t.Errorf("error %v, missing %q", err, p.missing())
		}
	}
}

func TestPorts_firstConfigMapInvalidIsMissing(t *testing.T) {
	p := newPorts(t, testConfig(t))
	if err := p.update(map[string]string{annotation.PoolNode: "{"}, time.Now()); err == nil {
		t.Error("no error")
	}

	if !strings.Contains(p.missing(), "parse "+annotation.PoolNode) || p.staleReason() != "" {
		t.Errorf("missing %q, faults %q", p.missing(), p.staleReason())
	}
}

func TestPorts_emptyFieldsKeepWhatIsKnown(t *testing.T) {
	p := newPorts(t, testConfig(t))
	if err := p.update(poolData(t, 1, nil), time.Now()); err != nil {
		t.Fatal(err)
	}

	known := p.known

	unseen := poolData(t, 2, func(n *annotation.Pool, _ []annotation.PoolPort) {
		n.VIF, n.Trunk, n.Network, n.MTU, n.Gateways = "", "", "", 0, nil
	})
	if err := p.update(unseen, time.Now()); err != nil {
		t.Fatal(err)
	}

	if fmt.Sprint(p.known) != fmt.Sprint(known) {
		t.Errorf("got %+v, want %+v", p.known, known)
	}

	for _, container := range []string{"a", "b"} { // the second port is new
		if pod := mustTake(t, p, container); pod.MTU != 1400 || len(pod.Gateways) != 1 {
			t.Errorf("got %+v", pod)
		}
	}
}

// writeRecord writes podnet's record of a pod.
func writeRecord(t testing.TB, cfg Config, p podnet.Pod) {
	t.Helper()

	text := fmt.Sprintf(`{"ContainerID":%q,"Interface":"eth0","LogicalPort":"default_%s","UID":"u","MAC":"+hY+AAEC","Addresses":["10.244.0.18/28"],"Time":%q,"Port":%q,"Tag":%d}`,
		p.ContainerID, p.ContainerID, p.Time.Format(time.RFC3339Nano), p.Port, p.Tag)

	path := filepath.Join(cfg.records(), podnet.HostName(p.ContainerID, "eth0")+".json")
	if err := errors.Join(os.MkdirAll(cfg.records(), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
}

func TestOpenPorts_knowsWhatTheLastAgentLeft(t *testing.T) {
	cfg := testConfig(t)

	p := newPorts(t, cfg)
	if err := p.update(poolData(t, 3, nil), time.Now()); err != nil {
		t.Fatal(err)
	}

	mustTake(t, p, "a")
	mustTake(t, p, "b")
	p.releaseHost(podnet.HostName("b", "eth0"), time.Now())
	writeRecord(t, cfg, podnet.Pod{ContainerID: "a", Port: portID(2), Tag: 2, Time: time.Now()})

	next := newPorts(t, cfg)
	if next.missing() != "" {
		t.Errorf("missing %q, want the last ConfigMap", next.missing())
	}

	var states []pool.PortState
	for _, s := range next.pool.Ports(time.Now()) {
		states = append(states, s.State)
	}

	if !slices.Equal(states, []pool.PortState{pool.Used, pool.Resting, pool.Free}) {
		t.Errorf("states %v", states)
	}

	listed, err := Pool(cfg.RunDir, "vm1", time.Minute, time.Now())
	if err != nil || len(listed) != 3 || listed[0].State != pool.Used || listed[0].Owner.Pod != "default/a" || listed[1].State != pool.Resting {
		t.Errorf("Pool returns %+v, error %v", listed, err)
	}

	next.releaseHost(podnet.HostName("a", "eth0"), time.Now())

	if s := next.stats(time.Now()); s.states[pool.Used] != 0 || s.states[pool.Resting] != 2 {
		t.Errorf("after the release: %v", s.states)
	}
}

// A damaged state file must not keep the agent from starting: the ConfigMap has the same ports.
func TestOpenPorts_ignoresADamagedStateFile(t *testing.T) {
	cfg := testConfig(t)
	if err := os.WriteFile(cfg.stateFile(), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}

	if p := newPorts(t, cfg); p.missing() == "" {
		t.Error("a pool is known")
	}
}

func TestOpenPorts_newerOfTwoRecordsHasThePort(t *testing.T) {
	cfg := testConfig(t)
	old := podnet.Pod{ContainerID: "old", Interface: "eth0", Port: portID(2), Tag: 2, MAC: net.HardwareAddr{0xfa, 0x16, 0x3e, 0, 1, 2}, Time: time.Now().Add(-time.Hour)}
	newer := old
	newer.ContainerID, newer.Time = "newer", time.Now()

	writeRecord(t, cfg, old)
	writeRecord(t, cfg, newer)

	p := newPorts(t, cfg)
	if p.has(old) || !p.has(newer) {
		t.Errorf("old has it: %t, newer has it: %t", p.has(old), p.has(newer))
	}

	settled := func(pod podnet.Pod) error {
		return source{ports: p}.Settled(t.Context(), cluster.PodRef{Namespace: "default", Name: "a"}, pod)
	}
	if settled(old) == nil || settled(newer) != nil {
		t.Errorf("settled: old %v, newer %v", settled(old), settled(newer))
	}

	c := connector{ports: p}
	if err := c.Connect(t.Context(), "veth0", old); !errors.Is(err, errNotOwner) {
		t.Errorf("connect the older one: %v", err)
	}

	p.releaseHost(podnet.HostName("old", "eth0"), time.Now())

	if !p.has(newer) {
		t.Error("the end of the older interface has released the port")
	}
}

func TestPorts_sweepReleasesPortsWithoutRecord(t *testing.T) {
	p := newPorts(t, testConfig(t))
	if err := p.update(poolData(t, 3, nil), time.Now()); err != nil {
		t.Fatal(err)
	}

	for _, container := range []string{"recorded", "busy", "lost"} {
		mustTake(t, p, container)
	}

	released := 0

	p.sweep(func(a podnet.Attachment) bool { return a.ContainerID == "recorded" }, func(container string) (func(), bool) {
		return func() { released++ }, container != "busy"
	})

	var owners []string
	for _, s := range p.pool.Ports(time.Now()) {
		owners = append(owners, s.Owner.ContainerID)
	}

	if !slices.Equal(owners, []string{"recorded", "busy", ""}) || released != 2 {
		t.Errorf("owners %q, %d locks released", owners, released)
	}
}
