package campaign

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"

	"github.com/ovn-ebpf/ovn-ebpf/test/lab"
	"github.com/ovn-ebpf/ovn-ebpf/test/tether"
)

// ground is a live lab of two nodes with probes on every path.
type ground struct {
	*lab.Lab
	client  *kubernetes.Clientset
	log     io.Writer
	pods    map[string]*lab.Pod // a and b on node1, c on node2
	service *corev1.Service     // with endpoints a and c
	probes  []*probe
	bucket  atomic.Int64
	began   time.Time
	serial  atomic.Int64
	served  time.Time // when the servers started
}

// The servers' ports.
const (
	podPort, hostPort, sshPort, outsidePort, servicePort, nodePort = 8000, 8080, 22, 7000, 80, 30080
)

// sshd is the name by which the server at sshPort answers.
const sshd = "sshd"

// callLimit bounds one call of the API server.
const callLimit = 15 * time.Second

// starting counts packets sent before all paths work.
const starting = -1

const victim = "victim" // namespace that must not be affected

// Networks of the lab's nodes: 172.30.0.11 and 12, fd00:172:30::11 and 12.
const nodeNetwork4, nodeNetwork6 = "172.30.0.8/29", "fd00:172:30::10/125"

// allBut returns the prefixes that cover all addresses of the family outside of a network. As
// external IPs they leave the tenant every attack except the one that is off by default in every
// cluster that has ranges: external IPs of nodes, which must be refused.
func allBut(network string) []string {
	p := netip.MustParsePrefix(network)

	var out []string

	for bits := 1; bits <= p.Bits(); bits++ {
		sibling := p.Addr().AsSlice()
		sibling[(bits-1)/8] ^= 1 << (7 - (bits-1)%8)
		a, _ := netip.AddrFromSlice(sibling)
		out = append(out, netip.PrefixFrom(a, bits).Masked().String())
	}

	return out
}

// newGround brings the lab up. The caller must call Down, also after an error with a non-nil
// ground.
func newGround(ctx context.Context, o lab.Options, log io.Writer) (*ground, error) {
	o.Nodes, o.Cluster, o.Owned = 2, true, true
	o.ExternalIPs = strings.Join(append(allBut(nodeNetwork4), allBut(nodeNetwork6)...), ",")

	l, err := lab.Up(ctx, o)
	if err != nil {
		return nil, err
	}

	g := &ground{Lab: l, log: log, pods: map[string]*lab.Pod{}, began: time.Now()}

	config, err := l.RestConfig()
	if err != nil {
		return g, err
	}

	config.Timeout = callLimit
	if g.client, err = kubernetes.NewForConfig(config); err != nil {
		return g, err
	}

	for name, node := range map[string]string{"a": "node1", "b": "node1", "c": "node2"} {
		pod, err := l.AddPod(ctx, lab.PodSpec{Namespace: victim, Name: name, Node: node, Labels: map[string]string{"app": "web"}})
		if err != nil {
			return g, err
		}

		g.pods[name] = pod
		if err := g.serve(ctx, pod.Host(), name, podPort); err != nil {
			return g, err
		}
	}

	for _, s := range []struct {
		on, name string
		port     int
	}{{"node1", sshd, sshPort}, {"node1", "node1", hostPort}, {"node2", "node2", hostPort}, {"ext", "ext", outsidePort}} {
		if err := g.serve(ctx, s.on, s.name, s.port); err != nil {
			return g, err
		}
	}

	var ports []corev1.ServicePort
	for _, protocol := range []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP} {
		ports = append(ports, corev1.ServicePort{Name: strings.ToLower(string(protocol)), Protocol: protocol, Port: servicePort, NodePort: nodePort, TargetPort: intstr.FromInt32(podPort)})
	}

	g.service, err = l.AddService(ctx, lab.ServiceSpec{Namespace: victim, Name: "web", Type: corev1.ServiceTypeNodePort, Ports: ports, Pods: []*lab.Pod{g.pods["a"], g.pods["c"]}})

	return g, err
}

func (g *ground) serve(ctx context.Context, on, name string, port int) error {
	at := fmt.Sprintf(":%d", port)
	_, err := g.Serve(ctx, on, fmt.Sprintf("serve-%s-%d", name, port), "-name", name, "-tcp", at, "-udp", at)

	return err
}

// paths returns one path of each kind.
func (g *ground) paths() []*Path {
	at := func(port uint16, address func(v6 bool) netip.Addr) func(bool) netip.AddrPort {
		return func(v6 bool) netip.AddrPort { return netip.AddrPortFrom(address(v6), port) }
	}
	pod := func(name string) func(bool) netip.AddrPort {
		return at(podPort, func(v6 bool) netip.Addr { return choose(v6, g.pods[name].IP4(), g.pods[name].IP6()) })
	}
	node1 := func(v6 bool) netip.Addr { return choose(v6, g.Node(1).IP4, g.Node(1).IP6) }
	a := g.pods["a"].Host()

	return []*Path{
		{Name: "host to outside", Host: true, From: "node1", To: at(outsidePort, outside)},
		{Name: "outside to host", Host: true, From: "ext", To: at(sshPort, node1)},
		{Name: "host to host", Host: true, From: "node2", To: at(hostPort, node1)},
		{Name: "host to Service", From: "node1", To: at(servicePort, g.clusterIP), Tunnel: true},
		{Name: "host to pod", From: "node1", To: pod("a")},
		{Name: "pod to pod, one node", From: a, To: pod("b")},
		{Name: "pod to pod, across nodes", From: a, To: pod("c"), Tunnel: true},
		{Name: "pod to outside", From: a, To: at(outsidePort, outside)},
		{Name: "outside to NodePort", From: "ext", To: at(nodePort, node1), Tunnel: true, Translated: true},
	}
}

func outside(v6 bool) netip.Addr {
	return choose(v6, netip.MustParseAddr(lab.ExtIP4), netip.MustParseAddr(lab.ExtIP6))
}

func (g *ground) clusterIP(v6 bool) netip.Addr {
	for _, ip := range g.service.Spec.ClusterIPs {
		if a := netip.MustParseAddr(ip); a.Is6() == v6 {
			return a
		}
	}

	return netip.Addr{}
}

func choose(v6 bool, a4, a6 netip.Addr) netip.Addr {
	if v6 {
		return a6
	}

	return a4
}

// startProbes probes the paths until ctx ends. It returns when all paths work, or with an error at
// the limit.
func (g *ground) startProbes(ctx context.Context, paths []*Path, limit time.Duration) error {
	for _, path := range paths {
		ns, err := g.Netns(path.From)
		if err != nil {
			return err
		}

		for _, v6 := range []bool{false, true} {
			if v6 && path.Only4 {
				continue
			}

			kinds := path.Kinds
			if kinds == nil {
				kinds = []string{"udp", "tcp"}
			}

			for _, kind := range kinds {
				p := &probe{path: path, v6: v6, kind: kind, ns: ns, bucket: &g.bucket, counts: map[int64]*Count{}, pending: map[uint64]sent{}}

				g.probes = append(g.probes, p)
				go p.run(ctx)
			}
		}
	}

	g.bucket.Store(starting)
	defer g.bucket.Store(0)

	_, failing := g.awaitProbes(ctx, time.Now(), limit)
	if len(failing) > 0 {
		return fmt.Errorf("paths that were never answered: %v", failing)
	}

	return nil
}

// awaitProbes waits until all paths answer probes sent after since for one full second. It returns
// the time from since to that second's start, or the failing paths at the limit.
func (g *ground) awaitProbes(ctx context.Context, since time.Time, limit time.Duration) (time.Duration, []string) {
	var whole time.Time

	for {
		var failing []string

		for _, p := range g.probes {
			if !p.works(since) {
				failing = append(failing, p.String())
			}
		}

		switch {
		case len(failing) > 0:
			whole = time.Time{}
		case whole.IsZero():
			whole = time.Now()
		case time.Since(whole) > time.Second:
			return whole.Sub(since), nil
		}

		if len(failing) > 0 && time.Since(since) > limit || ctx.Err() != nil {
			return 0, failing
		}

		time.Sleep(50 * time.Millisecond)
	}
}

// down takes the lab down. With keep it first copies the logs to a directory, which it logs.
func (g *ground) down(keep bool) error {
	if g == nil {
		return nil
	}

	if keep {
		to, err := os.MkdirTemp(tether.TempDir(), "ovn-ebpf-campaign-")
		if err == nil {
			err = errors.Join(os.CopyFS(filepath.Join(to, "log"), os.DirFS(filepath.Join(g.Dir(), "log"))), os.CopyFS(filepath.Join(to, "kube"), os.DirFS(filepath.Join(g.Dir(), "kube", "log"))))
		}

		g.say("logs: %s (%v)", to, err)
	}

	return g.Down(context.Background())
}

func (g *ground) say(format string, args ...any) {
	fmt.Fprintf(g.log, "[%7.1fs] %s\n", time.Since(g.began).Seconds(), fmt.Sprintf(format, args...))
}
