package bpf

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/ovn-ebpf/ovn-ebpf/agent/gateway/verdict"
)

// How many frames TestModel makes, and from which seed.
const (
	framesEnv     = "OVN_EBPF_MODEL_FRAMES"
	seedEnv       = "OVN_EBPF_MODEL_SEED"
	defaultFrames = 40000
)

// The counters are the model's reasons: same names, same verdicts.
func TestModelReasons(t *testing.T) {
	want := make(map[string]string)
	for _, r := range verdict.Rules() {
		want[r.Name] = r.Verdict.String()
	}
	got := make(map[string]string)
	for _, r := range reasons {
		got[r.name] = r.class.Verdict
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("reasons (-model +counters):\n%s", diff)
	}
}

// Random frames get from the programs what they get from the model, and leave
// the same in the tables.
func TestModel(t *testing.T) {
	seed, frames := envUint(t, seedEnv, rand.Uint64()), envUint(t, framesEnv, defaultFrames)
	t.Logf("%d frames; repeat with %s=%d", frames, seedEnv, seed)
	n := newNode(t)
	g := n.open(t)
	r := &modelRun{
		n: n, g: g, rng: rand.New(rand.NewPCG(seed, 0)),
		model: verdict.Model{Config: liveConfig(t, g), Tables: liveTables(t, g)},
		seen:  make(map[verdict.Reason]int),
	}
	r.openSockets(t)
	configs := r.configs()
	for i := range frames {
		if each := frames/uint64(len(configs)) + 1; i%each == 0 {
			r.configure(t, configs[i/each], 3+int(i/each)%6)
		}
		if i%200 == 199 {
			r.age(t, time.Duration(25+r.rng.IntN(40))*time.Second)
		}
		r.frame(t)
	}
	got := liveTables(t, g)
	if diff := cmp.Diff(keys(r.model.Tables.NS), keys(got.NS), compareAddrs); diff != "" {
		t.Errorf("N-S table (-model +program):\n%s", diff)
	}
	if diff := cmp.Diff(keys(r.model.Tables.Frags), keys(got.Frags), compareAddrs); diff != "" {
		t.Errorf("fragment table (-model +program):\n%s", diff)
	}
	for _, rule := range verdict.Rules() {
		if rule.Reason != verdict.VLAN && r.seen[rule.Reason] == 0 && frames >= defaultFrames {
			t.Errorf("no frame was decided by %s: the generator has lost it", rule.Name)
		}
	}
	t.Logf("%d entries learned, %d fragments, %d frames refused by the kernel, decided by %v",
		len(got.NS), len(got.Frags), r.refused, r.seen)
}

// modelRun is one run of programs and model side by side.
type modelRun struct {
	n       *node
	g       *Gateway
	rng     *rand.Rand
	model   verdict.Model
	seen    map[verdict.Reason]int
	refused int
	last    [gatewayReasonREASON_MAX]uint64
	ports   []uint16 // of clients of the host's listeners
}

// frame makes one frame and sends it through both.
func (r *modelRun) frame(t *testing.T) {
	t.Helper()
	s, dir := step{hook: uplinkIngress}, verdict.FromWire
	if r.rng.IntN(4) == 0 {
		s.hook, dir = bridgeIngress, verdict.FromOVN
	}
	s.packet = (&frameMaker{Rand: r.rng, out: dir == verdict.FromOVN, clients: r.ports}).frame()
	ret, _, err := r.n.send(r.g, s)
	if errors.Is(err, unix.EINVAL) && len(s.packet) < 14+40 {
		r.refused++ // IP header cut short: newer kernels refuse to run it
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	now := monotonic(t)
	want := r.model.Decide(dir, verdict.Parse(s.packet), now)
	r.model.Tables.Apply(want, now)
	r.seen[want.Reason]++
	if got := r.moved(t); len(got) != 1 || got[0] != want.Reason.String() || ret != returned(want.Verdict()) {
		t.Fatalf("%s: returned %d by %v, the model says %s by %s\nconfig %+v\nframe %x",
			s.hook, int32(ret), got, want.Verdict(), want.Reason, *r.model.Config, s.packet)
	}
}

// moved names the reasons that have counted since it was last asked.
func (r *modelRun) moved(t *testing.T) (names []string) {
	t.Helper()
	var cpus []gatewayCells
	if err := r.g.objs.Counters.Lookup(uint32(0), &cpus); err != nil {
		t.Fatal(err)
	}
	for i, reason := range reasons {
		var sum uint64
		for _, cpu := range cpus {
			sum += cpu.Reason[i].Packets
		}
		if sum != r.last[i] {
			names = append(names, reason.name)
		}
		r.last[i] = sum
	}
	return names
}

// configs are what a node may be configured to, one after the other over the same tables.
func (r *modelRun) configs() []Config {
	base := r.n.config()
	change := func(f func(*Config)) Config { c := base; f(&c); return c }
	return []Config{
		base,
		change(func(c *Config) { c.EncapIP = encap }),
		change(func(c *Config) { c.EncapIP, c.Node6 = encap, netip.Addr{} }),
		change(func(c *Config) { c.Node4 = netip.Addr{} }),
		change(func(c *Config) { c.EncapIP, c.SNATPorts = encap, PortRange{First: 1, Last: 30080} }),
		change(func(c *Config) { c.Uplink = 0 }),
		change(func(c *Config) { c.ServiceCIDRs, c.PodCIDRs, c.GenevePort = nil, nil, 6082 }),
		base,
	}
}

// configure also makes the host have only so many of its addresses, or more.
func (r *modelRun) configure(t *testing.T, c Config, addrs int) {
	t.Helper()
	host := []netip.Addr{v4.node, v6.node, v4.second, v6.second, encap, grLLA, v4.foreign, v6.foreign}
	if err := errors.Join(r.g.SetConfig(c), r.g.SyncHostAddrs(host[:addrs])); err != nil {
		t.Fatal(err)
	}
	r.model.Config, r.model.Tables.HostAddrs = liveConfig(t, r.g), liveTables(t, r.g).HostAddrs
}

// age makes all that was learned that old, on both sides.
func (r *modelRun) age(t *testing.T, by time.Duration) {
	t.Helper()
	then := monotonic(t) - by
	for k := range r.model.Tables.NS {
		r.model.Tables.NS[k] = then
	}
	for k := range r.model.Tables.Frags {
		r.model.Tables.Frags[k] = then
	}
	seconds := int64(by / time.Second)
	if len(r.model.Tables.NS) > 0 {
		age[gatewayNsKey](t, r.g.objs.Ns, seconds)
	}
	if len(r.model.Tables.Frags) > 0 {
		age[gatewayFragKey](t, r.g.objs.Frags, seconds)
	}
}

// openSockets gives the host sockets in the SNAT range, and the model their addresses.
func (r *modelRun) openSockets(t *testing.T) {
	t.Helper()
	owned := make(map[verdict.Socket]bool)
	for _, f := range []family{v4, v6} {
		r.n.addr(t, "eth0", fmt.Sprintf("%s/%d", f.node, f.node.BitLen()-8))
		r.n.must(t, func() error {
			c, err := net.ListenPacket("udp", netip.AddrPortFrom(f.node, udpPort).String())
			if err != nil {
				return err
			}
			t.Cleanup(func() { c.Close() })
			l, err := listen(f.node, listenPort, func(int) error { return nil })
			if err != nil {
				return err
			}
			t.Cleanup(func() { l.Close() })
			live, err := connect(l)
			if err != nil {
				return err
			}
			t.Cleanup(func() { _ = live.close() })
			r.ports = append(r.ports, live.port)
			owned[verdict.Socket{Proto: protoTCP, Remote: netip.AddrPortFrom(f.node, live.port), Local: netip.AddrPortFrom(f.node, listenPort)}] = true
			return nil
		})
	}
	openGate(t, r.g, SocketKey{protoTCP, listenPort}, SocketKey{protoTCP, 60000}, SocketKey{protoUDP, udpPort}, SocketKey{protoUDP, 60000})
	r.model.Tables.HostSocket = func(s verdict.Socket) bool {
		return owned[s] || s.Proto == protoUDP && s.Local.Port() == udpPort
	}
}

// checkModel makes every packet of the other tests one of the model's, too. It
// leaves out those that ask for a socket: only the kernel knows them.
func checkModel(t *testing.T, g *Gateway, s step) {
	t.Helper()
	asked := false
	m := verdict.Model{Config: liveConfig(t, g), Tables: liveTables(t, g)}
	m.Tables.HostSocket = func(k verdict.Socket) bool {
		asked = asked || gateOpen(t, g, k)
		return false
	}
	dir := verdict.FromWire
	if s.hook == bridgeIngress {
		dir = verdict.FromOVN
	}
	d := m.Decide(dir, verdict.Parse(s.packet), monotonic(t))
	if asked {
		return
	}
	if d.Reason.String() != s.reason || returned(d.Verdict()) != s.ret {
		t.Errorf("the model says %s by %s, want %d by %s", d.Verdict(), d.Reason, int32(s.ret), s.reason)
	}
}

// returned is what a program returns for a verdict.
func returned(v verdict.Verdict) uint32 {
	switch v {
	case verdict.OVN, verdict.Out:
		return retRedirect
	case verdict.Drop:
		return retDrop
	}
	return retNext
}

func envUint(t *testing.T, name string, value uint64) uint64 {
	t.Helper()
	s := os.Getenv(name)
	if s == "" {
		return value
	}
	value, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return value
}

var compareAddrs = cmp.Comparer(func(a, b netip.Addr) bool { return a == b })

func keys[K comparable](m map[K]time.Duration) map[K]bool {
	set := make(map[K]bool, len(m))
	for k := range m {
		set[k] = true
	}
	return set
}
