package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/test/cloud"
	"github.com/ovn-ebpf/ovn-ebpf/test/kube"
	"github.com/ovn-ebpf/ovn-ebpf/test/lab/netns"
	"github.com/ovn-ebpf/ovn-ebpf/test/lab/process"
	"github.com/ovn-ebpf/ovn-ebpf/test/platform"
)

// Lab is a running lab, or the remains of one.
type Lab struct {
	opts  Options
	state state
	kube  *kube.Server // nil without an API server
	began time.Time
	held  *os.File // the state file, with the owner's lock

	openStack *cloud.Cloud      // nil if this process has not started one
	vifs      map[string]string // with Options.Cloud: UUIDs of the VMs' ports
}

// state is the data for Open, stored in <Dir>/lab.json.
type state struct {
	Name                string
	Nodes               int
	NodeNames           []string
	Kube, Cluster, Bare bool
	Pods                bool
	Programs            string // directory of Kubernetes' programs; "" without an API server
	Datapath            string
	Platform, Cache     string // whose OVN and Open vSwitch, and where they are
	BinDir              string
	Uplink              string
	VMs                 int
	Cloud               bool
	AgentArgs           []string
	ExternalIPs         string
	By                  process.Process // the process that brought it up
	Owned               bool
}

// Node is a node of the lab. Name is also the name of its Node object and its system-id. VMs, too,
// are nodes, without Open vSwitch and IPv6.
type Node struct {
	Name       string
	Index      int // from 1
	Netns      string
	RunDir     string // sockets and database of its Open vSwitch and ovn-controller
	IP4, IP6   netip.Addr
	Encap      netip.Addr // the tunnels' separate address on the userspace datapath, else the zero Addr
	OVSDB      string     // unix:PATH
	PinDir     string     // below a bpffs of the lab
	CNISocket  string
	CNIConfDir string
	MetricsURL string // inside Netns
}

// Addresses in every lab.
const (
	CentralIP4 = "172.30.0.1"
	CentralIP6 = "fd00:172:30::1"
	ExtIP4     = "172.30.0.200"
	ExtIP6     = "fd00:172:30::200"
	// BehindIP4 and BehindIP6 are addresses of the outside host that nodes reach by their default
	// route.
	BehindIP4 = "198.51.100.1"
	BehindIP6 = "2001:db8:51::1"
)

// StateFile is the record in the directory of a lab.
const StateFile = "lab.json"

const (
	nbPort, sbPort, apiPort                      = 6641, 6642, 6443
	controllerMetrics, agentMetrics              = "127.0.0.1:9409", "127.0.0.1:9410"
	cgroupDir                                    = "cgroup"
	controllerProgram, pluginProgram, labProgram = "ovnkube", "ovn-k8s-cni-overlay", "ovnlab"
)

// Up brings a lab up and waits until it is ready: chassis registered in a bare lab, controller and
// agents ready in a cluster. On an error, and when ctx ends first, it takes everything down.
func Up(ctx context.Context, o Options) (*Lab, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("bring lab up: %w", err)
	}

	if err := o.clear(); err != nil {
		return nil, fmt.Errorf("bring lab up: %w", err)
	}

	if err := platform.Use(o.Platform, o.CacheDir, o.Progress); err != nil {
		return nil, fmt.Errorf("bring lab up: %w", err)
	}

	if err := o.preflight(); err != nil {
		return nil, fmt.Errorf("bring lab up: %w", err)
	}

	l := &Lab{opts: o, began: time.Now()}

	binary := ""
	if o.Kube {
		// Takes minutes, so it precedes the steps that need cleanup.
		if binary, err = kube.Build(ctx, o.CacheDir, o.Progress); err == nil && o.Pods {
			_, err = kube.BuildForPods(ctx, o.CacheDir, o.Progress)
		}

		if err != nil {
			return nil, fmt.Errorf("bring lab up: %w", err)
		}

		l.state.Programs = filepath.Dir(binary)
	}

	if o.Cloud {
		if err := cloud.MakeRoot(o.CacheDir, o.Progress); err != nil {
			return nil, fmt.Errorf("bring lab up: %w", err)
		}
	}

	reason := "as asked"
	if o.Datapath == "" {
		l.opts.Datapath, reason = detectDatapath()
	}

	release, err := netns.Hold()
	if err != nil {
		return nil, fmt.Errorf("bring lab up: %w", err)
	}
	defer release()

	if err := l.opts.alone(l.claim); err != nil {
		return nil, fmt.Errorf("bring lab up: %w", err)
	}

	l.step("lab in %s; datapath %s: %s", l.opts.Dir, l.opts.Datapath, reason)

	if err := l.up(ctx, binary); err != nil {
		l.step("taking down: %v", err)

		if ctx.Err() == nil {
			l.lastWords()
		}

		if o.FailedLogs != "" {
			err = errors.Join(err, os.CopyFS(o.FailedLogs, os.DirFS(l.path("log"))))
		}
		// ctx may be the cause of the failure.
		return nil, errors.Join(fmt.Errorf("bring lab up: %w", err), l.Down(context.WithoutCancel(ctx)))
	}

	return l, nil
}

// claim reserves the directory for this lab, or fails if another lab has it.
func (l *Lab) claim() error {
	o := l.opts

	by, err := process.Find(os.Getpid())
	if err != nil {
		return err
	}

	l.state = state{
		Name: o.Name, Nodes: o.Nodes, NodeNames: o.NodeNames, Kube: o.Kube, Cluster: o.Cluster, Bare: o.NoAgent, Datapath: o.Datapath, Platform: o.Platform, Cache: o.CacheDir, BinDir: o.BinDir,
		Uplink: o.Uplink, AgentArgs: o.AgentArgs, ExternalIPs: o.ExternalIPs, By: *by, Owned: o.Owned, Pods: o.Pods, Programs: l.state.Programs,
		VMs: o.VMs, Cloud: o.Cloud,
	}

	b, err := json.MarshalIndent(l.state, "", "\t")
	if err != nil {
		return err
	}

	if err := os.MkdirAll(o.Dir, 0o755); err != nil {
		return err
	}

	if err := l.refuseForeign(); err != nil {
		return err
	}

	tmp := l.path(StateFile + "." + strconv.Itoa(os.Getpid()))
	if err := os.WriteFile(tmp, b, 0o644); err != nil {
		return err
	}
	defer os.Remove(tmp)

	if err := l.hold(tmp); err != nil {
		return err
	}
	// A link appears atomically with its content, and fails if the name exists.
	if err := os.Link(tmp, l.path(StateFile)); errors.Is(err, os.ErrExist) {
		return fmt.Errorf("a lab is up in %s; take it down first", o.Dir)
	} else if err != nil {
		return err
	}

	return errors.Join(os.MkdirAll(l.path("log"), 0o755), os.MkdirAll(l.path("pid"), 0o755))
}

// refuseForeign returns an error if the directory contains other files, as Down removes all of it.
func (l *Lab) refuseForeign() error {
	entries, err := os.ReadDir(l.opts.Dir)
	if err != nil {
		return err
	}

	if slices.ContainsFunc(entries, func(e os.DirEntry) bool { return e.Name() == StateFile }) {
		return nil // the link will fail
	}

	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), StateFile+".") {
			return fmt.Errorf("directory %s is not empty, and no lab's: it has %s", l.opts.Dir, e.Name())
		}
	}

	return nil
}

// Open finds the lab of dir, or its remains. The error wraps os.ErrNotExist if there is none.
func Open(dir string) (*Lab, error) {
	l, err := load(dir)
	if err != nil {
		return nil, err
	}

	if err := platform.Use(l.opts.Platform, l.opts.CacheDir, io.Discard); err != nil {
		return nil, fmt.Errorf("open lab: %w", err)
	}

	return l, nil
}

// load is Open without the lab's platform, which Down does not need.
func load(dir string) (*Lab, error) {
	o, err := Options{Dir: dir}.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("open lab: %w", err)
	}

	l := &Lab{opts: o, began: time.Now()}

	b, err := os.ReadFile(l.path(StateFile))
	if err != nil {
		return nil, fmt.Errorf("open lab: %w", err)
	}

	if err := json.Unmarshal(b, &l.state); err != nil {
		return nil, fmt.Errorf("open lab: parse %s: %w", l.path(StateFile), err)
	}

	l.opts.Name, l.opts.Nodes, l.opts.Datapath, l.opts.BinDir = l.state.Name, l.state.Nodes, l.state.Datapath, l.state.BinDir
	l.opts.Uplink, l.opts.AgentArgs, l.opts.NodeNames, l.opts.ExternalIPs = l.state.Uplink, l.state.AgentArgs, l.state.NodeNames, l.state.ExternalIPs
	l.opts.Platform, l.opts.CacheDir, l.opts.VMs = l.state.Platform, l.state.Cache, l.state.VMs

	l.opts.Cloud = l.state.Cloud
	if l.opts.Cloud {
		if err := l.loadVIFs(); err != nil {
			return nil, fmt.Errorf("open lab: %w", err)
		}
	}

	l.opts.Kube, l.opts.Cluster, l.opts.NoAgent, l.opts.Pods = l.state.Kube, l.state.Cluster, l.state.Bare, l.state.Pods
	if l.state.Kube {
		// It is missing if Up was killed early.
		if l.kube, err = kube.Open(l.path("kube")); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("open lab: %w", err)
		}
	}

	return l, nil
}

// Node returns the i-th node, from 1.
func (l *Lab) Node(i int) *Node {
	dir := "node" + strconv.Itoa(i)

	name, run := dir, l.path(dir)
	if i <= len(l.opts.NodeNames) {
		name = l.opts.NodeNames[i-1]
	}

	n := &Node{
		Name: name, Index: i, Netns: fmt.Sprintf("%s-n%d", l.opts.Name, i), RunDir: run,
		// The same host part in both families.
		IP4:   netip.MustParseAddr(fmt.Sprintf("172.30.0.%d", 10+i)),
		IP6:   netip.MustParseAddr(fmt.Sprintf("fd00:172:30::%d", 10+i)),
		OVSDB: "unix:" + filepath.Join(run, "db.sock"), PinDir: filepath.Join(l.path("bpf"), dir),
		CNISocket: filepath.Join(run, "cni.sock"), CNIConfDir: filepath.Join(run, "net.d"),
		MetricsURL: "http://" + agentMetrics + "/metrics",
	}
	if l.opts.Datapath == "netdev" {
		n.Encap = netip.MustParseAddr(fmt.Sprintf("172.30.1.%d", 10+i))
	}

	return n
}

// Addresses returns the node's addresses.
func (n *Node) Addresses() []netip.Addr {
	return slices.DeleteFunc([]netip.Addr{n.IP4, n.IP6}, func(a netip.Addr) bool { return !a.IsValid() })
}

// KubeNodes returns the nodes of Kubernetes: the VMs in a lab with VMs, else all nodes.
func (l *Lab) KubeNodes() []*Node {
	if l.opts.VMs == 0 {
		return l.Nodes()
	}

	var nodes []*Node
	for _, v := range l.VMs() {
		nodes = append(nodes, v.Node)
	}

	return nodes
}

// KubeNode returns the i-th node of Kubernetes, from 1.
func (l *Lab) KubeNode(i int) *Node { return l.KubeNodes()[i-1] }

// Nodes returns all nodes that run OVN and Open vSwitch. In a lab with VMs they are hypervisors.
func (l *Lab) Nodes() []*Node {
	nodes := make([]*Node, l.opts.Nodes)
	for i := range nodes {
		nodes[i] = l.Node(i + 1)
	}

	return nodes
}

// Dir returns the directory of the lab's files.
func (l *Lab) Dir() string { return l.opts.Dir }

// Datapath is "system" or "netdev".
func (l *Lab) Datapath() string { return l.opts.Datapath }

// NBAddress and SBAddress return the addresses of OVN's databases for nodes and controller.
func (l *Lab) NBAddress() string { return fmt.Sprintf("tcp:%s:%d", CentralIP4, nbPort) }
func (l *Lab) SBAddress() string { return fmt.Sprintf("tcp:%s:%d", CentralIP4, sbPort) }

// NBSocket and SBSocket return the addresses of these databases for this process.
func (l *Lab) NBSocket() string { return "unix:" + l.path("central/"+nbSocket) }
func (l *Lab) SBSocket() string { return "unix:" + l.path("central/"+sbSocket) }

func (l *Lab) path(elem string) string { return filepath.Join(l.opts.Dir, elem) }
func (l *Lab) fabric() string          { return l.opts.Name + "-fab" }
func (l *Lab) ext() string             { return l.opts.Name + "-ext" }

// step logs a reached step with its time.
func (l *Lab) step(format string, args ...any) {
	fmt.Fprintf(l.opts.Progress, "[%6.1fs] %s\n", time.Since(l.began).Seconds(), fmt.Sprintf(format, args...))
}
