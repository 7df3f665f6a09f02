package controlplane

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"

	"github.com/ovn-ebpf/ovn-ebpf/loop"
	"github.com/ovn-ebpf/ovn-ebpf/service"
)

// resolveEvery is the interval at which names are resolved again.
const resolveEvery = time.Minute

// Options configure a Finder.
type Options struct {
	API       *rest.Config   // of the API server's client
	Databases []string       // addresses of OVN's databases; those of unix sockets are skipped
	Services  []netip.Prefix // service networks, in which addresses are ignored
	// Resolve returns the addresses of a name. Nil: the system's resolver.
	Resolve func(ctx context.Context, name string) ([]netip.Addr, error)
	Changed func(was, now service.ControlPlane) // called by Run after each change of Found; may be nil
	Log     *slog.Logger
}

// Finder finds the servers of the control plane. It is safe for concurrent use.
type Finder struct {
	o       Options
	servers []server
	answers map[string][]netip.Addr // last answer for each name; only Run uses it after New
	found   atomic.Pointer[service.ControlPlane]
}

// server is an address in the settings.
type server struct {
	kind service.Server
	host string // an address or a name
	port uint16
}

// New returns a Finder that knows the servers whose address is in the settings. Run adds those
// whose name is. New returns an error for a malformed address.
func New(o Options) (*Finder, error) {
	if o.Resolve == nil {
		o.Resolve = func(ctx context.Context, name string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", name)
		}
	}

	f := &Finder{o: o, answers: map[string][]netip.Addr{}}

	api, err := apiServer(o.API)
	if err != nil {
		return nil, err
	}

	f.servers = append(f.servers, api)

	for _, address := range o.Databases {
		kind, rest, _ := strings.Cut(address, ":")
		if kind != "tcp" && kind != "ssl" { // unix:, which is on this node
			continue
		}

		s, err := newServer(service.Database, rest)
		if err != nil {
			return nil, fmt.Errorf("read database address %q: %w", address, err)
		}

		f.servers = append(f.servers, s)
	}

	f.publish()

	return f, nil
}

// apiServer returns the API server's address, with the default port of its scheme.
func apiServer(config *rest.Config) (server, error) {
	url, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return server{}, fmt.Errorf("read the API server's address %q: %w", config.Host, err)
	}

	port := url.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[url.Scheme]
	}

	return newServer(service.APIServer, net.JoinHostPort(url.Hostname(), port))
}

// newServer returns the server at HOST:PORT.
func newServer(kind service.Server, at string) (server, error) {
	host, text, err := net.SplitHostPort(at)
	if err != nil {
		return server{}, err
	}

	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return server{}, err
	}

	return server{kind, host, uint16(port)}, nil
}

// Found returns the servers whose addresses are known, and which are not in the service networks.
func (f *Finder) Found() service.ControlPlane { return *f.found.Load() }

// Run resolves the names until ctx ends. After an error, the last answer stays.
func (f *Finder) Run(ctx context.Context) error {
	if len(f.names()) == 0 {
		<-ctx.Done()
		return nil
	}

	return loop.Run(ctx, loop.Options{
		Name: "addresses of the control plane", Wake: loop.NewSignal(),
		Apply: f.resolve, Resync: resolveEvery, Log: f.o.Log,
	})
}

// names returns the hosts that are names instead of addresses.
func (f *Finder) names() []string {
	var out []string
	for _, s := range f.servers {
		if _, err := netip.ParseAddr(s.host); err != nil && !slices.Contains(out, s.host) {
			out = append(out, s.host)
		}
	}

	return out
}

// resolve resolves all names once, and calls Changed if the result of Found changes.
func (f *Finder) resolve(ctx context.Context) error {
	var errs []error

	for _, name := range f.names() {
		answer, err := f.o.Resolve(ctx, name)
		if err != nil {
			errs = append(errs, fmt.Errorf("resolve %q: %w", name, err))
			continue
		}

		f.answers[name] = answer
	}

	was := f.Found()
	f.publish()

	if now := f.Found(); !now.Equal(was) {
		f.o.Log.Info("addresses of the control plane changed", "servers", now.String())

		if f.o.Changed != nil {
			f.o.Changed(was, now)
		}
	}

	return errors.Join(errs...)
}

// publish makes the known addresses the result of Found.
func (f *Finder) publish() {
	var all service.ControlPlane

	for _, s := range f.servers {
		var at []netip.AddrPort
		if a, err := netip.ParseAddr(s.host); err == nil {
			at = append(at, netip.AddrPortFrom(a, s.port))
		}

		for _, a := range f.answers[s.host] {
			at = append(at, netip.AddrPortFrom(a, s.port))
		}

		all = all.With(service.NewControlPlane(s.kind, at, f.o.Services))
	}

	f.found.Store(&all)
}
