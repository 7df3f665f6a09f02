package openflow_test

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/agent/gateway/openflow"
	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
	"github.com/ovn-ebpf/ovn-ebpf/agent/testnode"
	"github.com/ovn-ebpf/ovn-ebpf/verdict"
	"github.com/ovn-ebpf/ovn-ebpf/verdict/corpus"
)

const (
	bridge = "breth0"
	now    = 24 * time.Hour
	// tableLearned is the only table with flows of another cookie.
	tableLearned = 9
)

// rig is a real ovs-vswitchd with a bridge and a dummy port for each side, so that output to a side
// is an action of the datapath.
type rig struct {
	*testnode.Switch
	ctl   *ovs.Control
	stop  func() // ends ovs-vswitchd
	ports openflow.Ports
}

func newRig(t testing.TB) *rig {
	t.Helper()
	s := testnode.StartSwitch(t, false)
	r := &rig{Switch: s}
	r.stop = r.start(t)
	// Revalidators read counts and drop old datapath flows every 500 ms. 100 ms is the least that OVS accepts.
	s.Vsctl(t, "set", "Open_vSwitch", ".", "other_config:max-revalidator=100",
		"--", "add-br", bridge, "--", "set", "Bridge", bridge, "datapath_type=dummy", "fail_mode=secure",
		"other_config:hwaddr=02:00:00:00:00:11",
		"--", "add-port", bridge, "uplink", "--", "set", "Interface", "uplink", "type=dummy",
		"--", "add-port", bridge, "patch", "--", "set", "Interface", "patch", "type=dummy")

	client, err := ovs.Dial(t.Context(), s.Address)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()

	testnode.Eventually(t, "ports have numbers", func() error {
		ports, err := client.OFPorts(t.Context(), bridge)

		r.ports = openflow.Ports{Uplink: ports["uplink"], Patch: ports["patch"]}
		if err == nil && len(ports) != 2 {
			err = fmt.Errorf("ports %v", ports)
		}

		return err
	})

	return r
}

// start starts ovs-vswitchd. What it returns ends it.
func (r *rig) start(t testing.TB) (stop func()) {
	t.Helper()

	socket := r.Dir + "/vswitchd.ctl"
	cmd := exec.Command("ovs-vswitchd", "--enable-dummy=override", "--disable-system", "--log-file="+r.Dir+"/vswitchd.log",
		"-vconsole:off", "--unixctl="+socket, r.Address)

	cmd.Env = append(os.Environ(), "OVS_RUNDIR="+r.Dir, "OVS_DBDIR="+r.Dir, "OVS_LOGDIR="+r.Dir)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}

	stop = sync.OnceFunc(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	t.Cleanup(stop)
	testnode.Eventually(t, "ovs-vswitchd answers", func() (err error) {
		r.ctl, err = ovs.DialControl(t.Context(), socket)
		return err
	})
	t.Cleanup(func() { r.ctl.Close() })

	return stop
}

// input is what the flows of a node depend on.
func (r *rig) input(n *corpus.Node) openflow.Input {
	return openflow.Input{Ports: r.ports, Config: &n.Config, Tables: n.Tables(now), Sockets: n.Sockets}
}

// install writes a node's flows to the bridge, including learned ones.
func (r *rig) install(t *testing.T, n *corpus.Node) {
	t.Helper()

	if _, err := ovs.SyncBundle(t.Context(), r.Dir, bridge, openflow.Flows(r.input(n))); err != nil {
		t.Fatal(err)
	}

	cmd := exec.Command("ovs-ofctl", "-O", "OpenFlow14", "--bundle", "add-flows", "unix:"+r.Dir+"/"+bridge+".mgmt", "-")

	cmd.Stdin = strings.NewReader(learned(n))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// learned returns the learned flows that correspond to the node's tables.
func learned(n *corpus.Node) string {
	var b strings.Builder
	fmt.Fprintf(&b, "delete cookie=%s/-1\n", ovs.LearnedCookie)

	add := func(local, remote netip.Addr, match string) {
		if !local.IsValid() || local.Is4() != remote.Is4() {
			return
		}

		word, kind := "ip", "nw"
		if local.Is6() {
			word, kind = "ipv6", "ipv6"
		}

		fmt.Fprintf(&b, "add cookie=%s,table=%d,priority=100,%s,%s_src=%s,%s_dst=%s,%s,actions=load:0x1->NXM_NX_REG1[0]\n",
			ovs.LearnedCookie, tableLearned, word, kind, remote, kind, local, match)
	}

	for k, age := range n.NS {
		if k.Proto != corpus.ProtoICMP && k.Proto != corpus.ProtoICMPv6 && age < verdict.ProtoTimeout {
			add(n.Config.Node4, k.Remote, fmt.Sprintf("nw_proto=%d", k.Proto))
			add(n.Config.Node6, k.Remote, fmt.Sprintf("nw_proto=%d", k.Proto))
		}
	}

	return b.String()
}

// port is that of a side, as OVS spells it.
func (r *rig) port(dir verdict.Direction) string {
	switch dir {
	case verdict.FromWire:
		return fmt.Sprint(r.ports.Uplink)
	case verdict.FromOVN:
		return fmt.Sprint(r.ports.Patch)
	}

	return "LOCAL"
}

// trace follows a frame from one of the sides.
func (r *rig) trace(t *testing.T, dir verdict.Direction, frame []byte) ovs.Trace {
	t.Helper()

	trace, err := r.ctl.Trace(t.Context(), ovs.TraceInput{Bridge: bridge, Port: r.port(dir), Frame: frame})
	if err != nil {
		t.Fatalf("frame %x: %v", frame, err)
	}

	return trace
}
