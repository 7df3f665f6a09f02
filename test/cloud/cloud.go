package cloud

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/test/lab/process"
	"github.com/ovn-ebpf/ovn-ebpf/test/platform"
)

// Cloud is a running cloud. Its project "k8s" has a user with the role member.
type Cloud struct {
	Project    string // ID of the project
	CloudsFile string // a clouds.yaml with the entry "k8s", an application credential
	Admin      *API   // the cloud's operator at Neutron
	Tenant     *API   // the project's user at Neutron

	dir               string
	keystone, neutron string // URLs
	server            *process.Process
	running           []*process.Process
}

// Start starts a cloud in the directory. It takes about a minute. The processes end with the
// caller's, or by Close.
func Start(ctx context.Context, dir string) (*Cloud, error) {
	c := &Cloud{dir: dir}
	for _, step := range []func(context.Context) error{c.ports, c.mariadb, c.ovn, c.startKeystone, c.identities, c.startNeutron} {
		if err := step(ctx); err != nil {
			return nil, errors.Join(fmt.Errorf("start cloud: %w", err), c.Close())
		}
	}
	return c, nil
}

// Close ends all processes. The directory stays.
func (c *Cloud) Close() error {
	var all []error
	for i := len(c.running) - 1; i >= 0; i-- {
		all = append(all, c.running[i].Stop(5*time.Second))
	}
	c.running = nil
	return errors.Join(all...)
}

func (c *Cloud) path(elem ...string) string {
	return filepath.Join(append([]string{c.dir}, elem...)...)
}

// ports chooses the ports of the APIs.
func (c *Cloud) ports(context.Context) error {
	for _, url := range []*string{&c.keystone, &c.neutron} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		defer l.Close()
		*url = "http://" + l.Addr().String()
	}
	return nil
}

// start starts a daemon and waits until it is ready.
func (c *Cloud) start(ctx context.Context, ready func() error, argv ...string) (*process.Process, error) {
	name := filepath.Base(argv[0])
	p, err := process.Start(process.Spec{Argv: argv, Log: c.path(name + ".log"), Tethered: true})
	if err != nil {
		return nil, err
	}
	c.running = append(c.running, p)
	return p, p.Await(ctx, name, ready)
}

// run runs a command to its end.
func (c *Cloud) run(ctx context.Context, argv ...string) error {
	if out, err := exec.CommandContext(ctx, argv[0], argv[1:]...).CombinedOutput(); err != nil {
		const most = 2000
		return fmt.Errorf("run %s: %w: %s", filepath.Base(argv[0]), err, out[max(0, len(out)-most):])
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

// mariadb starts the database server of both services on a socket of its own.
func (c *Cloud) mariadb(ctx context.Context) error {
	data, socket := c.path("mysql"), c.path("mysql.sock")
	err := c.run(ctx, "mariadb-install-db", "--no-defaults", "--datadir="+data, "--user=root",
		"--auth-root-authentication-method=normal", "--skip-test-db")
	if err != nil {
		return err
	}
	_, err = c.start(ctx, listens(socket), "mariadbd", "--no-defaults", "--datadir="+data, "--socket="+socket, "--skip-networking",
		"--user=root", "--pid-file="+c.path("mysql.pid"), "--innodb-flush-log-at-trx-commit=0", "--innodb-buffer-pool-size=64M",
		"--performance-schema=OFF")
	if err != nil {
		return err
	}
	return c.run(ctx, "mariadb", "--no-defaults", "--user=root", "--socket="+socket, "--execute",
		"create database keystone character set utf8; create database neutron character set utf8")
}

func (c *Cloud) database(name string) string {
	return "mysql+pymysql://root@localhost/" + name + "?unix_socket=" + c.path("mysql.sock") + "&charset=utf8"
}

// ovn starts OVN's databases, which Neutron writes.
func (c *Cloud) ovn(ctx context.Context) error {
	for _, db := range []string{"nb", "sb"} {
		file, socket := c.path(db+".db"), c.path(db+".sock")
		if err := c.run(ctx, "ovsdb-tool", "create", file, platform.OVNFile("ovn-"+db+".ovsschema")); err != nil {
			return err
		}
		_, err := c.start(ctx, listens(socket), "ovsdb-server", "--no-chdir", "--unixctl="+c.path(db+".ctl"), "-vconsole:warn", "-vsyslog:off",
			"--remote=punix:"+socket, file)
		if err != nil {
			return err
		}
	}
	if err := c.run(ctx, "ovn-nbctl", "--no-wait", "--db=unix:"+c.path("nb.sock"), "init"); err != nil {
		return err
	}
	return c.run(ctx, "ovn-sbctl", "--db=unix:"+c.path("sb.sock"), "init")
}

// write writes a file of the cloud's directory.
func (c *Cloud) write(name, text string) error {
	return os.WriteFile(c.path(name), []byte(text), 0o600)
}
