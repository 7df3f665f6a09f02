package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/agent/gateway/openflow"
	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
	"github.com/ovn-ebpf/ovn-ebpf/agent/service"
	"github.com/ovn-ebpf/ovn-ebpf/agent/testnode"
	"github.com/ovn-ebpf/ovn-ebpf/cluster"
	model "github.com/ovn-ebpf/ovn-ebpf/service"
	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// rig is a node with an uplink to a peer in another network namespace.
type rig struct {
	t    *testing.T // of the subtest that runs
	test *testing.T // of all: what outlives a subtest
	sw   *testnode.Switch
	ovs  *ovs.Client
	s    Settings
	gw   *Gateway
	peer string // pid of a process in the peer's namespace
	stop func() // ends Run and waits
	log  *slog.Logger

	unknown atomic.Bool // the Services are
	objects map[service.Key]service.Objects
	hosts   atomic.Pointer[[]netip.Addr] // of other nodes
	control atomic.Pointer[model.ControlPlane]
}

func newRig(t *testing.T, datapath string) *rig {
	t.Helper()
	r := &rig{t: t, test: t, sw: testnode.StartSwitch(t, true)}
	r.peer = testnode.Netns(t)
	r.addUplink()
	// In layout bridged, the bridge and the host's addresses on it survive the switch.
	t.Cleanup(func() { _, _ = link.Delete("eth0"), link.Delete("breth0") })

	c, err := ovs.Dial(t.Context(), r.sw.Address)
	if err != nil {
		t.Fatal(err)
	}

	r.ovs = c
	t.Cleanup(c.Close)

	r.s = Settings{
		Wiring: Wiring{Uplink: "eth0", Bridge: "breth0", Layout: verdict.Direct, Backend: EBPF, Datapath: datapath},
		Cluster: Cluster{
			SNATPorts: cluster.PortRange{First: 49152, Last: 65535}, NodePorts: true, NodePortRange: cluster.PortRange{First: 30000, Last: 32767},
			PodCIDRs:     []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")},
			ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")},
		},
		PinDir: r.sw.Dir + "/bpf/node", RunDir: r.sw.Dir + "/run", OVSRunDir: r.sw.Dir, NotHost: []string{"breth0"},
	}
	if datapath == ovs.DatapathNetdev {
		r.s.Encap = netip.MustParsePrefix("172.30.1.11/24")
	}

	if err := os.Mkdir(r.sw.Dir+"/bpf", 0o700); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = syscall.Unmount(r.sw.Dir+"/bpf", 0) })

	return r
}

func (r *rig) addUplink() {
	r.t.Helper()
	testnode.Run(r.t, "ip", "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", r.peer)
	testnode.Run(r.t, "ip", "addr", "add", "172.30.0.11/24", "dev", "eth0")
	testnode.Run(r.t, "ip", "link", "set", "eth0", "up")
	r.onPeer("ip", "addr", "add", "172.30.0.200/24", "dev", "eth0")
	r.onPeer("ip", "link", "set", "eth0", "up")
}

func (r *rig) onPeer(argv ...string) {
	r.t.Helper()
	testnode.Run(r.t, append([]string{"nsenter", "-t", r.peer, "-n"}, argv...)...)
}

// start runs a gateway and waits until it is in the desired state.
func (r *rig) start() {
	r.t.Helper()
	r.begin()
	r.awaitReady()
}

// begin runs a gateway.
func (r *rig) begin() {
	r.t.Helper()

	if r.log == nil {
		r.log = slog.New(slog.NewTextHandler(r.test.Output(), nil))
	}

	ctx, cancel := context.WithCancel(context.Background())
	r.gw = New(Options{
		Settings: r.s, OVS: r.ovs, Changed: func() {}, Log: r.log,
		Source: Source{
			Node: "node1", Keys: func() ([]service.Key, bool) { return slices.Collect(maps.Keys(r.objects)), !r.unknown.Load() }, Zone: func() string { return "" }, Nodes: func() int { return 1 },
			Objects: func(k service.Key) service.Objects { return r.objects[k] },
			Peers: func() (known, hosts []netip.Addr) {
				if p := r.hosts.Load(); p != nil {
					hosts = *p
				}

				return nil, hosts
			},
			ControlPlane: func() model.ControlPlane {
				if p := r.control.Load(); p != nil {
					return *p
				}

				return model.ControlPlane{}
			},
		},
	})
	r.gw.Inputs().SetInSync(true)

	ended := make(chan error, 1)
	go func() { ended <- r.gw.Run(ctx) }()

	r.stop = func() {
		cancel()

		if err := <-ended; err != nil {
			r.t.Error(err)
		}

		r.stop = func() {}
	}
	r.test.Cleanup(func() { r.stop() })
}

// step is a subtest that continues with the node of the previous one.
func (r *rig) step(name string, do func(t *testing.T)) {
	r.test.Run(name, func(t *testing.T) {
		r.t = t
		do(t)
	})
	r.t = r.test
}

func (r *rig) awaitReady() {
	r.t.Helper()
	testnode.Eventually(r.t, "gateway ready", func() error {
		if m := r.gw.View().Missing(); m != "" {
			return errors.New(m)
		}

		return nil
	})
}

// await waits until check succeeds. Then the host must still answer its peer.
func (r *rig) await(what string, check func() error) {
	r.t.Helper()
	testnode.Eventually(r.t, what, check)
	r.hostAnswers()
}

func (r *rig) hostAnswers() {
	r.t.Helper()
	r.onPeer("ping", "-n", "-c1", "-W5", "-q", "172.30.0.11")
}

func (r *rig) repairs(part string) uint64 { return r.gw.Stats().Repairs[part] }

func (r *rig) bridge() (link.Link, error) { return link.Get("breth0") }

// hasFlows checks the bridge's flows without changing them.
func (r *rig) hasFlows() error {
	out, err := exec.Command("ovs-ofctl", "dump-flows", "unix:"+r.sw.Dir+"/breth0.mgmt", "cookie="+ovs.Cookie+"/"+ovs.CookieMask).CombinedOutput()
	if want := len(openflow.Static(openflow.StaticInput{EncapIP: r.s.Encap.Addr()})); err != nil || strings.Count(string(out), "cookie=") <= want || !strings.Contains(string(out), "in_port=LOCAL actions=ALL") {
		return fmt.Errorf("want %d flows and the hairpin's: %w: %s", want, err, out)
	}

	return nil
}
