package cloud

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ovn-ebpf/ovn-ebpf/test/lab/netns"
	"github.com/ovn-ebpf/ovn-ebpf/test/lab/process"
	"github.com/ovn-ebpf/ovn-ebpf/test/platform"
)

// Cloud is a running cloud. Its project "k8s" has a user with the role member.
type Cloud struct {
	Project    string // ID of the project
	CloudsFile string // a clouds.yaml with "k8s" (an application credential), "admin" and ProxyCloud
	Admin      *API   // the cloud's operator at Neutron
	Tenant     *API   // the project's user at Neutron
	Proxy      *Proxy // of the entry ProxyCloud; nil if the cloud was started by Run

	o      Options
	server *process.Process // Neutron's

	mu      sync.Mutex // guards running
	running []*process.Process
}

// Options are where a cloud runs.
type Options struct {
	Dir   string // of its files; it must exist
	Cache string // of the root directory; "": platform.CacheDir
	Netns string // of its programs, a name under /run/netns; "": the caller's

	Keystone, Neutron netip.AddrPort // of the APIs

	OVN    string // directory of OVN's databases
	NB, SB string // names of their sockets there

	// Spawn starts a program that outlives the call. The name is unique in the cloud.
	Spawn func(name string, argv ...string) (*process.Process, error)
}

// inside is the path of Options.Dir in the root directory.
const inside = "/cloud"

// Start starts a cloud in the directory, on loopback addresses and with OVN databases of its own.
// It takes half a minute. The processes end with the caller's, or by Close.
func Start(ctx context.Context, dir string) (*Cloud, error) {
	if err := platform.Default(os.Stderr); err != nil {
		return nil, fmt.Errorf("start cloud: %w", err)
	}

	if err := MakeRoot(platform.CacheDir(), os.Stderr); err != nil {
		return nil, fmt.Errorf("start cloud: %w", err)
	}

	o := Options{Dir: dir, OVN: filepath.Join(dir, "ovn"), NB: "nb.sock", SB: "sb.sock"}

	var err error
	if o.Keystone, o.Neutron, err = freePorts(); err != nil {
		return nil, fmt.Errorf("start cloud: %w", err)
	}

	o.Spawn = func(name string, argv ...string) (*process.Process, error) {
		log := filepath.Join(dir, name+".log")
		return process.Start(process.Spec{Argv: argv, Log: log, Tethered: true})
	}

	c := &Cloud{o: o}
	if c.Proxy, err = newProxy(c.neutron()); err != nil {
		return nil, fmt.Errorf("start cloud: %w", err)
	}

	if err = c.ovn(ctx); err == nil {
		err = c.run(ctx)
	}

	if err != nil {
		return nil, errors.Join(fmt.Errorf("start cloud: %w", err), c.Close())
	}

	return c, nil
}

// freePorts returns two loopback addresses on which nothing listens.
func freePorts() (a, b netip.AddrPort, err error) {
	for _, address := range []*netip.AddrPort{&a, &b} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return a, b, err
		}
		defer l.Close() // after both have been chosen

		*address = netip.MustParseAddrPort(l.Addr().String())
	}

	return a, b, nil
}

// Run starts a cloud at OVN databases of the caller. It needs the root directory (MakeRoot). Spawn
// decides when its processes end.
func Run(ctx context.Context, o Options) (*Cloud, error) {
	c := &Cloud{o: o}
	if err := c.run(ctx); err != nil {
		return nil, fmt.Errorf("start cloud: %w", err)
	}

	return c, nil
}

func (c *Cloud) run(ctx context.Context) error {
	if err := c.mariadb(ctx); err != nil {
		return err
	}

	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		if err := c.startKeystone(ctx); err != nil {
			return err
		}

		return c.identities(ctx)
	})
	group.Go(func() error { return c.startNeutron(ctx) })

	return group.Wait()
}

// Await waits until the APIs answer, after their processes were started again.
func (c *Cloud) Await(ctx context.Context) error {
	for _, ready := range []func() error{
		c.responds(c.keystone()+"/v3", http.StatusOK),
		c.responds(c.neutron()+"/v2.0/networks", http.StatusUnauthorized),
	} {
		for err := ready(); err != nil; err = ready() {
			select {
			case <-ctx.Done():
				return fmt.Errorf("wait for cloud: %w (last: %w)", context.Cause(ctx), err)
			case <-time.After(100 * time.Millisecond):
			}
		}
	}

	return nil
}

// Close ends all processes. The directory stays.
func (c *Cloud) Close() error {
	var all []error
	for i := len(c.running) - 1; i >= 0; i-- {
		all = append(all, c.running[i].Stop(5*time.Second))
	}

	c.running = nil
	if c.Proxy != nil {
		all = append(all, c.Proxy.close())
	}

	return errors.Join(all...)
}

// path returns the path of a file of the cloud.
func (c *Cloud) path(elem ...string) string {
	return filepath.Join(append([]string{c.o.Dir}, elem...)...)
}

// start starts a daemon and waits until it is ready.
func (c *Cloud) start(
	ctx context.Context, name string, ready func() error, argv ...string,
) (*process.Process, error) {
	p, err := c.o.Spawn(name, argv...)
	if err != nil {
		return nil, err
	}

	c.mu.Lock()
	c.running = append(c.running, p)
	c.mu.Unlock()

	return p, p.Await(ctx, name, ready)
}

// execute runs a command to its end.
func (c *Cloud) execute(ctx context.Context, argv ...string) error {
	out, err := exec.CommandContext(ctx, argv[0], argv[1:]...).CombinedOutput()
	if err != nil {
		const most = 2000
		return fmt.Errorf("run %v: %w: %s", argv[max(0, len(argv)-3):], err, out[max(0, len(out)-most):])
	}

	return nil
}

func listens(socket string) func() error {
	return func() error {
		conn, err := net.Dial("unix", socket)
		if err == nil {
			conn.Close()
		}

		return err
	}
}

// client returns a client of HTTP in the network namespace of the cloud.
func (c *Cloud) client() *http.Client {
	if c.o.Netns == "" {
		return http.DefaultClient
	}

	dial := netns.Dialer(c.o.Netns)

	return &http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}
}

// ovn starts OVN's databases, which Neutron writes.
func (c *Cloud) ovn(ctx context.Context) error {
	if err := os.MkdirAll(c.o.OVN, 0o700); err != nil {
		return err
	}

	for _, db := range []string{"nb", "sb"} {
		file, socket := c.path("ovn", db+".db"), c.path("ovn", db+".sock")

		schema := platform.OVNFile("ovn-" + db + ".ovsschema")
		if err := c.execute(ctx, "ovsdb-tool", "create", file, schema); err != nil {
			return err
		}

		_, err := c.start(ctx, "ovsdb-server-"+db, listens(socket), "ovsdb-server", "--no-chdir",
			"--unixctl="+c.path(db+".ctl"), "-vconsole:warn", "-vsyslog:off", "--remote=punix:"+socket, file)
		if err != nil {
			return err
		}
	}

	nb, sb := "--db=unix:"+c.path("ovn", "nb.sock"), "--db=unix:"+c.path("ovn", "sb.sock")
	if err := c.execute(ctx, "ovn-nbctl", "--no-wait", nb, "init"); err != nil {
		return err
	}

	return c.execute(ctx, "ovn-sbctl", sb, "init")
}

// write writes a file of the cloud.
func (c *Cloud) write(name, text string) error {
	return os.WriteFile(c.path(name), []byte(text), 0o600)
}

func (c *Cloud) directories(names ...string) error {
	for _, name := range names {
		if err := os.MkdirAll(c.path(name), 0o700); err != nil {
			return err
		}
	}

	return nil
}
