package e2e

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/ovn-ebpf/ovn-ebpf/test/lab"
)

// Ports that the servers listen on.
const (
	podPort     = 8000
	hostPort    = 8080
	sshPort     = 22
	outsidePort = 7000
	genevePort  = 6081
	servicePort = 80
	nodePort    = 30080
)

// toolEnv names the traffic tool as a separate program. It starts ten times faster than ovnkube,
// which dominates in an emulated machine.
const toolEnv = "OVN_EBPF_E2E_TRAFFIC"

// Cluster is a lab with all ends of the paths: two nodes, three pods, a NodePort service, and
// servers on every host.
type Cluster struct {
	*lab.Lab
	Pods     map[string]*lab.Pod // a and b on node1, c on node2
	Services map[string]*corev1.Service
	dir, bin string
	tool     []string // command line of the traffic tool
	wiring
}

// Start brings the cluster up and waits until every node is ready. After an error it takes the lab
// down.
func Start(ctx context.Context, options lab.Options) (*Cluster, error) {
	options.Nodes, options.Cluster = max(options.Nodes, 2), true

	l, err := lab.Up(ctx, options)
	if err != nil {
		return nil, err
	}

	c := &Cluster{Lab: l, Pods: map[string]*lab.Pod{}, Services: map[string]*corev1.Service{}, dir: options.Dir, bin: options.BinDir, wiring: wiringOf(options)}

	c.tool = trafficTool(c)
	if err := c.populate(ctx); err != nil {
		return nil, fmt.Errorf("%w%s", err, c.stop())
	}

	return c, nil
}

func trafficTool(c *Cluster) []string {
	if tool := os.Getenv(toolEnv); tool != "" {
		return []string{tool}
	}

	return []string{c.Binary("ovnlab"), "traffic"}
}

// stop takes the lab down and returns its error as the end of a sentence.
func (c *Cluster) stop() string {
	if err := c.Down(context.WithoutCancel(context.Background())); err != nil {
		return fmt.Sprintf(" (and take the lab down: %v)", err)
	}

	return ""
}

// populate creates the objects and their servers.
func (c *Cluster) populate(ctx context.Context) error {
	for _, p := range []struct{ name, node string }{{"a", "node1"}, {"b", "node1"}, {"c", "node2"}} {
		if err := c.addPod(ctx, p.name, p.node); err != nil {
			return err
		}
	}

	for _, s := range []struct {
		host string
		port uint16
	}{{"node1", hostPort}, {"node2", hostPort}, {"node1", sshPort}, {"node2", sshPort}, {"ext", outsidePort}, {"ext", sshPort}} {
		if err := c.serve(ctx, s.host, s.host, s.port); err != nil {
			return err
		}
	}

	return c.addServices(ctx)
}

// addPod creates a pod with a server.
func (c *Cluster) addPod(ctx context.Context, name, node string) error {
	pod, err := c.AddPod(ctx, lab.PodSpec{Namespace: "default", Name: name, Node: node, Labels: map[string]string{"app": "web"}, Ports: hostPorts[name]})
	if err != nil {
		return fmt.Errorf("add pod %s: %w", name, err)
	}

	c.Pods[name] = pod

	return c.serve(ctx, host(name), name+"-"+pod.UID[:8], podPort)
}

// serve starts a TCP and UDP server on a lab host and waits until it listens.
func (c *Cluster) serve(ctx context.Context, on, name string, port uint16) error {
	id := fmt.Sprintf("serve-%s-%d", name, port)
	name, _, _ = strings.Cut(name, "-")
	address := fmt.Sprintf(":%d", port)

	return c.serveAs(ctx, on, id, "-name", name, "-tcp", address, "-udp", address)
}

// serveAs starts a server with these arguments and waits until it listens.
func (c *Cluster) serveAs(ctx context.Context, on, id string, args ...string) error {
	if _, err := c.Spawn(on, id, c.traffic(append([]string{"serve"}, args...)...)...); err != nil {
		return fmt.Errorf("start server on %s: %w", on, err)
	}

	log := filepath.Join(c.dir, "log", id+".log")
	for {
		b, err := os.ReadFile(log)
		if err == nil && strings.Contains(string(b), "ready") {
			return nil
		}

		select {
		case <-ctx.Done():
			return fmt.Errorf("start server on %s: %w: %s", on, ctx.Err(), b)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// traffic returns a command line of the lab's traffic tool.
func (c *Cluster) traffic(args ...string) []string { return append(slices.Clone(c.tool), args...) }

// Binary returns the path of a built program.
func (c *Cluster) Binary(name string) string { return filepath.Join(c.bin, name) }

func host(pod string) string { return "pod:default/" + pod }

// pod returns the address of a pod by family.
func (c *Cluster) pod(name string) func(bool) netip.Addr {
	return func(v6 bool) netip.Addr { return choose(v6, c.Pods[name].IP4(), c.Pods[name].IP6()) }
}

// node returns the address of a node by family.
func (c *Cluster) node(i int) func(bool) netip.Addr {
	return func(v6 bool) netip.Addr { return choose(v6, c.Node(i).IP4, c.Node(i).IP6) }
}

func outside(v6 bool) netip.Addr {
	return choose(v6, netip.MustParseAddr(lab.ExtIP4), netip.MustParseAddr(lab.ExtIP6))
}

// beyond returns the outside host's address behind the router.
func beyond(v6 bool) netip.Addr {
	return choose(v6, netip.MustParseAddr(lab.BehindIP4), netip.MustParseAddr(lab.BehindIP6))
}

func choose(v6 bool, a4, a6 netip.Addr) netip.Addr {
	if v6 {
		return a6
	}

	return a4
}

func only(f func(bool) netip.Addr) func(bool) []netip.Addr {
	return func(v6 bool) []netip.Addr { return []netip.Addr{f(v6)} }
}

// Paths lists every path that the gateway must distinguish, adapted to the cluster's wiring.
func (c *Cluster) Paths() []*Path {
	paths := c.everyPath()
	for _, p := range paths {
		c.rewire(p)
	}

	return paths
}

func (c *Cluster) everyPath() []*Path {
	return append([]*Path{
		{Name: "pod to pod, one node", From: host("a"), To: c.pod("b"), Port: podPort, Server: "b", Client: only(c.pod("a"))},
		{Name: "pod to pod, across nodes", From: host("a"), To: c.pod("c"), Port: podPort, Server: "c", Client: only(c.pod("a"))},
		{Name: "pod to outside", From: host("a"), To: outside, Port: outsidePort, Server: "ext", Client: only(c.gateway(1)), SNAT: true, Class: map[string]Class{"node1": NorthSouth}},
		{Name: "pod to beyond the router", From: host("c"), To: beyond, Port: outsidePort, Server: "ext", Client: only(c.gateway(2)), SNAT: true, Class: map[string]Class{"node2": NorthSouth}},
		{Name: "pod to its own node", From: host("a"), To: c.node(1), Port: hostPort, Server: "node1", Client: only(c.pod("a"))},
		{Name: "pod to another node", From: host("a"), To: c.node(2), Port: hostPort, Server: "node2", Client: only(c.gateway(1)), SNAT: true, Class: map[string]Class{"node1": NorthSouth, "node2": Management}},
		{Name: "outside to a NodePort of node1", From: "ext", To: c.gateway(1), Port: nodePort, Server: "a,c", Class: map[string]Class{"node1": NorthSouth}},
		{Name: "outside to a NodePort of node2", From: "ext", To: c.gateway(2), Port: nodePort, Server: "a,c", Class: map[string]Class{"node2": NorthSouth}},
		{Name: "host to pod on its node", From: "node1", To: c.pod("a"), Port: podPort, Server: "a"},
		{Name: "host to pod on another node", From: "node1", To: c.pod("c"), Port: podPort, Server: "c"},
		{Name: "host to outside", From: "node1", To: outside, Port: outsidePort, Server: "ext", Client: only(c.node(1)), Class: map[string]Class{"node1": Management}},
		{Name: "host to host", From: "node1", To: c.node(2), Port: hostPort, Server: "node2", Client: only(c.node(1)), Class: map[string]Class{"node1": Management, "node2": Management}},
		{Name: "outside to host, port 22", From: "ext", To: c.node(1), Port: sshPort, Server: "node1", Client: only(outside), Class: map[string]Class{"node1": Management}},
	}, c.servicePaths()...)
}
