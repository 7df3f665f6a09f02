package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/test/lab/netns"
	"github.com/ovn-ebpf/ovn-ebpf/test/lab/process"
)

// Options configure a server. Only Dir and Binary are required.
type Options struct {
	Dir    string // certificates, data, logs and process records; created if missing
	Binary string // kube-apiserver, from Build
	Netns  string // name under /run/netns to run in; "": that of the caller

	BindAddress      netip.Addr // default 127.0.0.1
	AdvertiseAddress netip.Addr // dialled by clients and named in the certificate; default BindAddress
	Port             int        // 0: any free port
	ServiceCIDRs     []netip.Prefix
	ExtraArgs        []string // appended to kube-apiserver's
	Managed          bool     // a controller manager runs and creates service accounts

	// Detached servers outlive the caller; Open finds them. Other servers are killed when the
	// caller ends.
	Detached bool
}

// Server is a running API server with its etcd.
type Server struct {
	opts            Options
	etcd, apiserver *process.Process
	access          access
	pki             *pki   // nil when opened
	etcdURL         string // "" when opened
}

// access is the access of clients, stored in <Dir>/access.json for Open.
type access struct {
	Address   netip.AddrPort
	Netns     string
	Authority []byte
	Cert, Key []byte // of cluster-admin, group system:masters
}

// startTimeout is far beyond the 3 s of an idle machine; an emulated one needs 90 s.
const startTimeout = 5 * time.Minute

const (
	etcdRecord      = "etcd.pid"
	apiserverRecord = "kube-apiserver.pid"
	accessFile      = "access.json"
)

// Start runs etcd and kube-apiserver and waits until the API answers and the default namespace
// exists. On an error, and when ctx ends before that, it stops both. Several servers may run side
// by side.
func Start(ctx context.Context, o Options) (*Server, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("start API server: %w", err)
	}

	s := &Server{opts: o}
	if err := s.start(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("start API server: %w", err), s.Stop())
	}

	return s, nil
}

func (o Options) withDefaults() (Options, error) {
	if o.Dir == "" || o.Binary == "" {
		return o, errors.New("options lack Dir or Binary")
	}

	if !o.BindAddress.IsValid() {
		o.BindAddress = netip.MustParseAddr("127.0.0.1")
	}

	if !o.AdvertiseAddress.IsValid() {
		o.AdvertiseAddress = o.BindAddress
	}

	if len(o.ServiceCIDRs) == 0 {
		o.ServiceCIDRs = []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("fd00:10:96::/112")}
	}

	return o, os.MkdirAll(filepath.Join(o.Dir, "log"), 0o755)
}

func (s *Server) start(ctx context.Context) error {
	ports, err := freePorts(s.opts.Netns, 3)
	if err != nil {
		return err
	}

	if s.opts.Port == 0 {
		s.opts.Port = ports[2]
	}

	p, err := newPKI(filepath.Join(s.opts.Dir, "pki"))
	if err != nil {
		return fmt.Errorf("make certificates: %w", err)
	}

	s.pki = p
	if err := s.issue(p); err != nil {
		return fmt.Errorf("make certificates: %w", err)
	}
	// Concurrently, as the API server waits for etcd.
	client := "http://127.0.0.1:" + strconv.Itoa(ports[0])
	s.etcdURL = client

	peer := "http://127.0.0.1:" + strconv.Itoa(ports[1])
	if s.etcd, err = s.run(etcdRecord, etcdArgv(s.opts, client, peer)); err != nil {
		return err
	}

	if s.apiserver, err = s.run(apiserverRecord, apiserverArgv(s.opts, p, client)); err != nil {
		return err
	}

	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("not ready after %s", startTimeout))
	defer cancel()

	return s.await(ctx)
}

func (s *Server) run(record string, argv []string) (*process.Process, error) {
	name := record[:len(record)-len(filepath.Ext(record))]

	return process.Start(process.Spec{
		Argv: argv, Netns: s.opts.Netns, Tethered: !s.opts.Detached,
		Record: filepath.Join(s.opts.Dir, record), Log: filepath.Join(s.opts.Dir, "log", name+".log"),
	})
}

// issue creates all certificates and keeps that of the administrator.
func (s *Server) issue(p *pki) error {
	addrs := []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.IPv6Loopback(), s.opts.AdvertiseAddress}
	for _, c := range s.opts.ServiceCIDRs {
		addrs = append(addrs, c.Masked().Addr().Next())
	}

	if !s.opts.BindAddress.IsUnspecified() {
		addrs = append(addrs, s.opts.BindAddress)
	}

	dns := []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"}

	var admin pair

	for _, c := range []struct {
		file string
		subject
	}{
		{"apiserver", subject{name: "kube-apiserver", dns: dns, addrs: addrs}},
		{"front-proxy", subject{name: "front-proxy-client"}},
		{"service-account", subject{name: "service-account"}},
		{"admin", subject{name: "admin", groups: []string{"system:masters"}}},
	} {
		var err error
		// The administrator is the last one.
		if admin, err = p.issue(c.file, c.subject); err != nil {
			return err
		}
	}

	s.access = access{
		Address: netip.AddrPortFrom(s.opts.AdvertiseAddress, uint16(s.opts.Port)), Netns: s.opts.Netns,
		Authority: p.authority(), Cert: admin.cert, Key: admin.key,
	}

	b, err := json.Marshal(s.access)
	if err != nil {
		return err
	}

	return os.WriteFile(filepath.Join(s.opts.Dir, accessFile), b, 0o600)
}

// Open finds a server that was started detached in dir, running or not.
func Open(dir string) (*Server, error) {
	s := &Server{opts: Options{Dir: dir}}

	b, err := os.ReadFile(filepath.Join(dir, accessFile))
	if err != nil {
		return nil, fmt.Errorf("open API server: %w", err)
	}

	if err := json.Unmarshal(b, &s.access); err != nil {
		return nil, fmt.Errorf("open API server: parse %s: %w", accessFile, err)
	}

	s.opts.Netns = s.access.Netns
	// A process without a record was never started.
	for record, p := range map[string]**process.Process{etcdRecord: &s.etcd, apiserverRecord: &s.apiserver} {
		if *p, err = process.Load(filepath.Join(dir, record)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("open API server: %w", err)
		}
	}

	return s, nil
}

// Alive reports whether both processes run.
func (s *Server) Alive() bool {
	return s.etcd != nil && s.etcd.Alive() && s.apiserver != nil && s.apiserver.Alive()
}

// Stop kills both processes and waits for their end. It uses SIGKILL, as the data is temporary. Dir
// stays. Stop is idempotent.
func (s *Server) Stop() error {
	var errs []error

	for _, p := range []*process.Process{s.apiserver, s.etcd} {
		if p != nil {
			errs = append(errs, p.Stop(0))
		}
	}

	return errors.Join(errs...)
}

// Restart starts both processes again after Stop, with the same arguments, and waits until the API
// answers.
func (s *Server) Restart(ctx context.Context) error {
	for record, p := range map[string]**process.Process{etcdRecord: &s.etcd, apiserverRecord: &s.apiserver} {
		var err error
		if *p, err = process.Again(filepath.Join(s.opts.Dir, record)); err != nil {
			return fmt.Errorf("restart API server: %w", err)
		}
	}

	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("not ready after %s", startTimeout))
	defer cancel()

	if err := s.await(ctx); err != nil {
		return fmt.Errorf("restart API server: %w", err)
	}

	return nil
}

// Data returns the directory of etcd's data. Another directory may replace it between Stop and
// Restart.
func (s *Server) Data() string { return filepath.Join(s.opts.Dir, "etcd") }

// freePorts returns unused ports of 127.0.0.1 in the namespace.
func freePorts(ns string, n int) (ports []int, err error) {
	err = netns.Do(ns, func() error {
		var listeners []net.Listener
		defer func() {
			for _, l := range listeners {
				l.Close()
			}
		}()

		var err error

		for range 1000 {
			if len(ports) == n {
				return nil
			}
			// Below the kernel's ephemeral ports, so that no client takes one before the server
			// listens. All listeners stay open until the last port is chosen, so the ports differ.
			port := 20000 + rand.IntN(10000)

			l, lerr := net.Listen("tcp4", "127.0.0.1:"+strconv.Itoa(port))
			if lerr != nil {
				err = lerr
				continue
			}

			listeners = append(listeners, l)
			ports = append(ports, port)
		}

		return fmt.Errorf("find a free port: %w", err)
	})

	return ports, err
}

// Managers returns the command lines of the controller manager and of the scheduler by program
// name, for programs in dir. The server must have been started by this process, as Managed.
func (s *Server) Managers(dir, cluster string) (map[string][]string, error) {
	argv := map[string][]string{}

	for _, p := range []struct {
		program string
		args    []string
	}{
		{"kube-controller-manager", []string{
			"--service-account-private-key-file", filepath.Join(s.PKI(), "service-account.key"), "--root-ca-file", filepath.Join(s.PKI(), "ca.crt"),
			"--use-service-account-credentials", "--cluster-name", cluster,
		}},
		{"kube-scheduler", nil},
	} {
		config, err := s.Identity(p.program, "system:"+p.program, nil)
		if err != nil {
			return nil, err
		}

		argv[p.program] = append([]string{
			filepath.Join(dir, p.program), "--kubeconfig", config, "--authentication-kubeconfig", config, "--authorization-kubeconfig", config,
			"--leader-elect=false", "--bind-address", "127.0.0.1",
		}, p.args...)
	}

	return argv, nil
}
