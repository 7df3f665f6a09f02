package management

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
	"github.com/ovn-ebpf/ovn-ebpf/loop"
)

// Name is the name of the device.
const Name = "ovn-k8s-mp0"

// ifaceIDPrefix and the node's name form the name of the logical port.
const ifaceIDPrefix = "k8s-"

// Options configure a Port. All fields are required.
type Options struct {
	OVS      *ovs.Client
	Node     string
	Bridge   string         // the integration bridge
	Datapath string         // ovs.DatapathSystem or ovs.DatapathNetdev
	RunDir   string         // of ovs-vswitchd
	Cluster  []netip.Prefix // networks of all pods, which are routed through the port
	Changed  func()         // called after Missing or Restored has changed; must not block
	Log      *slog.Logger
}

// Port maintains the management port. Its methods are safe for concurrent use.
type Port struct {
	o    Options
	wake loop.Signal

	mu       sync.Mutex     // guards the following fields
	subnets  []netip.Prefix // of the node
	join     []netip.Prefix // networks of the gateway routers
	mtu      int
	fault    string    // see Missing
	restored time.Time // see Restored
}

// New returns a Port that does not run yet.
func New(o Options) *Port {
	return &Port{o: o, wake: loop.NewSignal(), fault: "management port: not started"}
}

// Set sets the node's subnets and the join networks, which the controller has chosen, and the MTU.
// The join networks are routed through the port, because gateway routers of other nodes reach this
// host through it, with traffic that they forward from outside.
func (p *Port) Set(subnets, join []netip.Prefix, mtu int) {
	p.mu.Lock()
	p.subnets, p.join, p.mtu = subnets, join, mtu
	p.mu.Unlock()
	p.wake.Trigger()
}

// Restored returns when connected routes of the port were last added again, or the zero Time.
func (p *Port) Restored() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()

	return p.restored
}

// MissingRoutes returns the connected routes that the port of this host lacks, for "ovnkube
// status". Without a port, it returns none.
func MissingRoutes() ([]link.ConnectedRoute, error) {
	all, err := link.Addresses()
	if err != nil {
		return nil, err
	}

	var own []netip.Prefix

	for _, a := range all {
		if a.Device == Name && !a.LinkLocal {
			own = append(own, a.Prefix)
		}
	}

	if own == nil {
		return nil, nil
	}

	return link.MissingConnectedRoutes(Name, own)
}

// Missing returns why the port is not ready, or "". It is a line of /readyz.
func (p *Port) Missing() string {
	p.mu.Lock()
	defer p.mu.Unlock()

	return p.fault
}

// Run maintains the port until ctx ends. Afterwards, the port stays.
func (p *Port) Run(ctx context.Context) error {
	stop := p.o.OVS.Watch(func(table, name string) bool {
		return table == "Bridge" && name == p.o.Bridge || table == "Interface" && name == Name
	}, p.wake)
	defer stop()

	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		return link.Watch(ctx, p.o.Log, func(device string) {
			if device == Name || device == "" {
				p.wake.Trigger()
			}
		})
	})
	group.Go(func() error {
		return loop.Run(ctx, loop.Options{
			Name:   "management port",
			Wake:   p.wake,
			Apply:  p.syncState,
			Resync: time.Minute,
			Log:    p.o.Log,
		})
	})

	return group.Wait()
}

// syncState calls sync with the arguments of the last Set, and stores its result for Missing.
func (p *Port) syncState(ctx context.Context) error {
	p.mu.Lock()
	subnets, join, mtu := p.subnets, p.join, p.mtu
	p.mu.Unlock()

	fault, err := p.sync(ctx, subnets, join, mtu)
	if err != nil {
		fault = err.Error()
	}

	if fault != "" {
		fault = "management port: " + fault
	}

	p.mu.Lock()
	changed := p.fault != fault
	p.fault = fault
	p.mu.Unlock()

	if changed {
		p.o.Changed()
	}

	return err
}

// sync applies the state and returns what is missing. A missing item is not an error, and so not
// retried, because its arrival triggers the next sync.
func (p *Port) sync(ctx context.Context, subnets, join []netip.Prefix, mtu int) (missing string, err error) {
	if len(subnets) == 0 {
		return "the controller has not given the node a subnet yet", nil
	}

	if err := p.apply(ctx, subnets, join, mtu); err != nil {
		return "", err
	}

	installed, err := p.o.OVS.Installed(ctx, Name)
	if err != nil || installed {
		return "", err
	}

	return "ovn-controller has not installed its flows yet: is it running, and connected to the southbound database?", nil
}

// apply brings the port, its device, addresses and routes to the planned state.
func (p *Port) apply(ctx context.Context, subnets, join []netip.Prefix, mtu int) error {
	plan, err := PlanFor(subnets, slices.Concat(p.o.Cluster, join))
	if err != nil {
		return err
	}

	// ovn-controller would create the bridge too, but perhaps later.
	if err := p.o.OVS.SyncBridge(ctx, ovs.Bridge{
		Name: p.o.Bridge, FailMode: ovs.FailSecure, DatapathType: p.o.Datapath,
		OtherConfig: map[string]string{"disable-in-band": "true"},
	}); err != nil {
		return err
	}

	if err := p.o.OVS.SyncPort(ctx, ovs.Port{
		Bridge: p.o.Bridge, Name: Name, Type: "internal", MAC: plan.MAC.String(), MTU: mtu,
		ExternalIDs: map[string]string{ovs.IfaceID: ifaceIDPrefix + p.o.Node},
	}); err != nil {
		return err
	}

	if err := p.ensureDevice(ctx); err != nil {
		return err
	}

	if err := link.QuietIPv6(Name); err != nil {
		return err
	}

	// Loose mode: packets from a pod to its own node arrive here, whatever route the host has to
	// the pod.
	if err := link.WriteSysctl("net/ipv4/conf/"+Name+"/rp_filter", "2"); err != nil {
		return err
	}

	if err := link.SetUp(Name); err != nil {
		return err
	}

	if err := link.SyncAddresses(Name, plan.Addresses); err != nil {
		return err
	}

	restored, err := link.RestoreConnectedRoutes(Name, plan.Addresses)
	if err != nil {
		return err
	}

	if restored > 0 {
		p.o.Log.Warn("connected routes of the management port were removed; added them again", "device", Name)
		p.mu.Lock()
		p.restored = time.Now()
		p.mu.Unlock()
		p.o.Changed()
	}

	return link.SyncRoutes(Name, plan.Routes)
}

// ensureDevice returns an error if the port's device is missing. On the userspace datapath, it
// recreates a deleted device: ovs-vswitchd does not.
func (p *Port) ensureDevice(ctx context.Context) error {
	_, missing := link.Get(Name)
	if !errors.Is(missing, link.ErrNotFound) || p.o.Datapath != ovs.DatapathNetdev {
		return missing
	}

	renewed, err := p.o.OVS.RenewDevice(ctx, p.o.RunDir, Name)
	if err != nil {
		return err
	}

	if !renewed {
		return missing
	}

	p.o.Log.Info("recreated the device of the management port")

	_, err = link.Get(Name)

	return err
}

// Cleanup removes the port, if it exists.
func Cleanup(ctx context.Context, o *ovs.Client) error {
	return o.RemovePort(ctx, Name)
}
