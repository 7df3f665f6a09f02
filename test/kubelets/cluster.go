package kubelets

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/ovn-ebpf/ovn-ebpf/test/cgroup"
	"github.com/ovn-ebpf/ovn-ebpf/test/kube"
	"github.com/ovn-ebpf/ovn-ebpf/test/lab"
)

// Options configure a cluster. BinDir and Source are required.
type Options struct {
	Dir      string // default /var/tmp/ovn-ebpf-kubelets; must not be in /run, of which each node has its own
	Name     string // prefix of namespaces and cgroups; default "kubelets"
	Nodes    int    // default 3
	BinDir   string // of ovnkube and ovn-k8s-cni-overlay
	Source   string // the root of this repository
	CacheDir string // default kube.CacheDir
	// Traffic brings the image of the pods that Central and Rotate connect.
	Traffic bool
	// Volume puts OVN's databases on a PersistentVolumeClaim.
	Volume bool
	// Release is a directory with the packed chart and the images of `make release`, which Up
	// installs on machines without OVN and Open vSwitch. Down does not need it.
	Release string
	// NoNetwork omits network and DNS: Deployment installs the network. Every node may run a
	// controller, and has OVN and Open vSwitch of its own.
	NoNetwork bool
	// Members is the number of nodes of OVN's databases, which are in the control plane: 1
	// (default) or 3.
	Members int
	// Uninstall notes the nodes' state before the installation, for the method of this name.
	Uninstall bool
	Progress  io.Writer
}

// Cluster is a running cluster.
type Cluster struct {
	opts   Options
	bin    string // Kubernetes' programs
	lab    *lab.Lab
	server *kube.Server
	client *kubernetes.Clientset
	began  time.Time
	typing *typing
	before snapshot // the installation; nil without Options.Uninstall
}

const (
	apiPort  = 6443
	dnsIP    = "10.96.0.10" // of Service kube-dns, in lab.ServiceCIDRs
	nodeInit = "node-init"
)

func (o Options) withDefaults() (Options, error) {
	if o.BinDir == "" || o.Source == "" {
		return o, errors.New("options lack BinDir or Source")
	}

	for _, d := range []struct {
		field *string
		value string
	}{{&o.Dir, "/var/tmp/ovn-ebpf-kubelets"}, {&o.Name, "kubelets"}, {&o.CacheDir, kube.CacheDir()}} {
		if *d.field == "" {
			*d.field = d.value
		}
	}

	if o.Nodes == 0 {
		o.Nodes = 3
	}

	if o.Members == 0 {
		o.Members = 1
	}

	if o.Members > o.Nodes {
		return o, fmt.Errorf("%d members on %d nodes", o.Members, o.Nodes)
	}

	if o.Progress == nil {
		o.Progress = io.Discard
	}

	for _, dir := range []*string{&o.BinDir, &o.Source, &o.Release} {
		var err error

		if *dir == "" {
			continue
		}

		if *dir, err = filepath.Abs(*dir); err != nil {
			return o, err
		}
	}

	return o, nil
}

// Up starts a cluster and waits until its nodes, the network's pods and DNS are ready. It first
// removes leftovers in Dir. On an error it takes everything down and saves the logs in Dir's
// -failed sibling.
func Up(ctx context.Context, o Options) (*Cluster, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("start cluster: %w", err)
	}

	if o.Release == "" {
		return nil, errors.New("start cluster: options lack Release")
	}

	c := &Cluster{opts: o, began: time.Now()}
	if c.bin, err = kube.BuildAll(ctx, o.CacheDir, o.Progress); err != nil {
		return nil, fmt.Errorf("start cluster: %w", err)
	}

	if err := c.buildOwn(ctx); err != nil {
		return nil, fmt.Errorf("start cluster: %w", err)
	}

	if err := c.buildHelm(ctx); err != nil {
		return nil, fmt.Errorf("start cluster: %w", err)
	}

	if err := c.takeDownStale(ctx); err != nil {
		return nil, fmt.Errorf("start cluster: %w", err)
	}

	c.lab, err = lab.Up(ctx, lab.Options{
		Dir: o.Dir, Name: o.Name, Owned: true, Nodes: o.Nodes, Hosts: true, Blank: !o.NoNetwork, BinDir: o.BinDir, CacheDir: o.CacheDir,
	})
	if err != nil {
		return nil, fmt.Errorf("start cluster: %w", err)
	}

	if err := c.up(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("start cluster: %w", err), c.SaveLogs(o.Dir+"-failed"), c.Down(context.WithoutCancel(ctx)))
	}

	return c, nil
}

func (c *Cluster) up(ctx context.Context) error {
	c.step("%d machines", c.opts.Nodes)

	var err error
	if c.typing, err = c.newTyping(); err != nil {
		return err
	}

	if err := c.startControlPlane(ctx); err != nil {
		return err
	}

	if err := c.makeImages(c.path("images")); err != nil {
		return err
	}

	for _, n := range c.lab.Nodes() {
		if err := c.startNode(n); err != nil {
			return fmt.Errorf("start %s: %w", n.Name, err)
		}
	}

	if err := c.awaitRegistered(ctx); err != nil {
		return err
	}

	c.step("%d kubelets", c.opts.Nodes)

	if c.opts.NoNetwork {
		return nil
	}

	if c.opts.Uninstall {
		if c.before, err = c.snapshot(ctx); err != nil {
			return err
		}
	}

	if err := c.declareUnavailable(ctx); err != nil {
		return err
	}

	began := time.Now()

	if err := c.deploy(ctx); err != nil {
		return err
	}

	if err := c.awaitNodes(ctx); err != nil {
		return err
	}

	took := time.Since(began)
	c.step("%d nodes Ready %.1f s after helm install began", c.opts.Nodes, took.Seconds())

	if took > installBound {
		return fmt.Errorf("nodes were Ready %.1f s after helm install began: at most %s", took.Seconds(), installBound)
	}

	if _, err := c.typing.chapter(ctx, checking); err != nil {
		return err
	}

	if err := c.awaitReady(ctx); err != nil {
		return err
	}

	c.step("every pod and DNS ready")

	return nil
}

// installBound is how long an installation may take until all nodes are Ready, with the images
// present (issue 36). Two cores need about a tenth of it.
const installBound = 90 * time.Second

// Down removes the cluster with these options, if any, also after Up was killed midway.
func Down(ctx context.Context, o Options) error {
	o, err := o.withDefaults()
	if err != nil {
		return fmt.Errorf("take cluster down: %w", err)
	}

	c := &Cluster{opts: o, began: time.Now()}

	return c.takeDownStale(ctx)
}

// takeDownStale removes the cluster of a killed run. It fails if the run's process lives: its
// processes may be in a PID namespace where they cannot be ended.
func (c *Cluster) takeDownStale(ctx context.Context) error {
	user, err := lab.User(c.opts.Dir)
	if user != "" {
		return fmt.Errorf("remove the cluster in %s: %s uses it", c.opts.Dir, user)
	}

	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}

	return c.takeDown(ctx)
}

// Down removes the cluster.
func (c *Cluster) Down(ctx context.Context) error { return c.takeDown(ctx) }

func (c *Cluster) takeDown(ctx context.Context) error {
	l, err := lab.Open(c.opts.Dir)
	if errors.Is(err, os.ErrNotExist) {
		return removeCgroups(c.opts.Name + "-n*")
	}

	if err == nil {
		err = l.Down(ctx)
	}

	if err != nil {
		return err
	}

	return removeCgroups(c.opts.Name + "-n*")
}

// removeCgroups removes the cgroups of nodes, which are empty: a node's processes end with its
// init.
func removeCgroups(pattern string) error {
	roots, err := filepath.Glob("/sys/fs/cgroup/*/" + pattern)
	if err != nil {
		return err
	}

	for _, root := range roots {
		if err := cgroup.Remove(root); err != nil {
			return err
		}
	}

	return nil
}

// buildOwn builds the programs that are not part of Kubernetes: CoreDNS and pause.
func (c *Cluster) buildOwn(ctx context.Context) error {
	for name, dir := range map[string]string{"coredns": "test/kubelets/coredns", "pause": "test/kubelets/pause"} {
		cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", filepath.Join(c.bin, name), ".")
		cmd.Dir = filepath.Join(c.opts.Source, dir)

		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("build %s: %w: %s", name, err, strings.TrimSpace(string(out)))
		}
	}

	return nil
}

// SaveLogs copies every log to a directory, after emptying it.
func (c *Cluster) SaveLogs(dir string) error {
	if err := os.RemoveAll(dir); err != nil {
		return err
	}

	if err := os.CopyFS(filepath.Join(dir, "host"), os.DirFS(c.path("log"))); err != nil {
		return err
	}

	if err := os.CopyFS(filepath.Join(dir, "kube"), os.DirFS(c.path("kube/log"))); err != nil {
		return err
	}

	for _, n := range c.lab.Nodes() {
		for what, from := range map[string]string{"": "log", "pods": "var/log/pods"} {
			from := filepath.Join(c.nodeDir(n), from)
			if _, err := os.Stat(from); err != nil {
				continue // not started yet
			}

			if err := os.CopyFS(filepath.Join(dir, n.Name, what), os.DirFS(from)); err != nil {
				return err
			}
		}
	}

	return nil
}

func (c *Cluster) path(elem string) string    { return filepath.Join(c.opts.Dir, elem) }
func (c *Cluster) program(name string) string { return filepath.Join(c.bin, name) }
func (c *Cluster) nodeDir(n *lab.Node) string { return filepath.Join(c.opts.Dir, "hosts", n.Name) }
func (c *Cluster) kubeconfig() string         { return c.path("kubeconfig") }
func (c *Cluster) controlPlane() *lab.Node    { return c.lab.Node(1) }
func (c *Cluster) serverAddress() netip.AddrPort {
	return netip.AddrPortFrom(c.controlPlane().IP4, apiPort)
}

func (c *Cluster) step(format string, args ...any) {
	fmt.Fprintf(c.opts.Progress, "[%6.1fs] %s\n", time.Since(c.began).Seconds(), fmt.Sprintf(format, args...))
}
