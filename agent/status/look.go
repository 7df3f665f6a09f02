package status

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/agent/cniconf"
	"github.com/ovn-ebpf/ovn-ebpf/agent/gateway"
	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/agent/management"
	"github.com/ovn-ebpf/ovn-ebpf/agent/masquerade"
	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
	"github.com/ovn-ebpf/ovn-ebpf/bpf"
	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// wait bounds each request to another process.
const wait = 3 * time.Second

// Facts are the observations on a node. An error field explains why facts of the same struct are
// unknown.
type Facts struct {
	Record     Record
	Agent      Agent
	Host       Host
	Switch     Switch
	Programs   Programs
	Controller Controller
	CNI        CNI
	Nested     Nested // in underlay mode
}

// Host is the state of the kernel.
type Host struct {
	Uplink, Bridge, Management Device
	Addresses                  []link.Address
	Unreserved                 string                // OVN's ports that the kernel may choose for the host; "": none
	Listeners                  int                   // host sockets that listen inside the SNAT range
	Gone                       []netip.Prefix        // addresses of the gateway that the host has lost
	NoRoute                    []link.ConnectedRoute // connected routes that were removed from the host
	Forward                    string                // firewalls that drop packets of pods, if no agent answers
	Err                        error                 // of any of these, except the devices
}

// Device is a device, or the error of reading it.
type Device struct {
	link.Link
	Err error
}

// Switch is the state of Open vSwitch.
type Switch struct {
	Err         error // of its database
	ExternalIDs map[string]string
	Mapping     string // the bridge mapped to the physical network
	Member      string // the bridge that contains the uplink
	MemberErr   error
	Flows       int   // number of our flows on the gateway bridge
	FlowsErr    error // error of reading the flows from ovs-vswitchd
}

// Programs is the state of the eBPF programs.
type Programs struct {
	Hooks             []bpf.Hooked
	NoService, NoBind []string // missing hooks of host sockets: for Services, and for binds
	Counters          []bpf.Counter
	Err               error
	Shortcuts         bpf.ShortcutCounts
	ShortcutsErr      error
}

// Controller is the state of ovn-controller.
type Controller struct {
	Running   bool  // its pid file exists
	Connected bool  // to the Southbound database
	Err       error // why it does not answer
}

// CNI is the state of the container runtime's configuration.
type CNI struct {
	ConfList error                  // nil: our configuration exists, or is not to be written
	Socket   error                  // nil: the agent's socket accepts connections
	Others   []cniconf.OtherNetwork // configurations of other networks
}

// Look reads all facts. It needs root and changes nothing. Without an agent in local gateway mode,
// it sends probes, which do not leave the node.
func Look(ctx context.Context, r Record) Facts {
	f := Facts{Record: r, Agent: askAgent(ctx, r.Paths)}
	if r.Underlay() {
		f.Nested = lookNested(r)
	} else {
		f.lookGateway(ctx)
	}

	if r.Paths.ConfList != "" {
		_, f.CNI.ConfList = os.Stat(r.Paths.ConfList)
		f.CNI.Others, _ = cniconf.Others(filepath.Dir(r.Paths.ConfList)) // ConfList reports the same error
	}

	f.CNI.Socket = checkSocket(r.Paths.CNISocket)

	return f
}

// lookGateway reads the facts about the gateway of a node in overlay mode.
func (f *Facts) lookGateway(ctx context.Context) {
	r := f.Record

	f.Host = lookHost(r)
	if r.local() && (f.Agent.Err != nil || !f.Agent.Served) {
		f.Host.Forward = lookForward(ctx, r)
	}

	f.Switch = lookSwitch(ctx, r)
	f.Programs = lookPrograms(r)
	_, err := os.Stat(filepath.Join(r.Paths.OVNRunDir, "ovn-controller.pid"))
	f.Controller.Running = err == nil
	f.Controller.Connected, f.Controller.Err = ovs.ControllerConnected(ctx, r.Paths.OVNRunDir)
}

// checkSocket returns an error unless a unix socket accepts connections.
func checkSocket(path string) error {
	conn, err := net.DialTimeout("unix", path, wait)
	if err != nil {
		return err
	}

	return conn.Close()
}

// lookHost reads the kernel's devices, addresses, routes and sockets.
func lookHost(r Record) Host {
	device := func(name string) Device {
		l, err := link.Get(name)
		return Device{l, err}
	}
	h := Host{
		Uplink:     device(r.Wiring.Uplink),
		Bridge:     device(r.Wiring.Bridge),
		Management: device(management.Name),
	}

	var (
		errs [5]error
		own  []netip.Prefix
	)

	h.Addresses, errs[0] = link.Addresses()
	h.NoRoute, errs[1] = missingRoutes(r)

	if r.Paths.RunDir != "" && r.Wiring.Layout != verdict.Dedicated.String() {
		own, errs[2] = gateway.RecordedAddresses(r.Paths.RunDir)
		h.Gone = slices.DeleteFunc(own, func(p netip.Prefix) bool { return h.hasIP(p.Addr().String()) })
	}

	if !r.hasNoGateway() {
		h.Unreserved, errs[3] = gateway.Unreserved(r.reserved()...)

		var sockets []link.Socket

		sockets, errs[4] = link.Sockets(r.Ports.First, r.Ports.Last)
		for _, s := range sockets {
			if s.Listening {
				h.Listeners++
			}
		}
	}

	h.Err = errors.Join(errs[:]...)

	return h
}

// lookForward returns a text about chains that drop packets of pods in local gateway mode, or "".
// Faults that keep probes from being sent have their own checks.
func lookForward(ctx context.Context, r Record) string {
	ctx, cancel := context.WithTimeout(ctx, 4*wait)
	defer cancel()

	result, err := masquerade.NewProbe(management.Name, r.Paths.OVSRunDir).Look(ctx)
	if err != nil {
		return ""
	}

	return masquerade.Describe(result.Dropped, management.Name)
}

// missingRoutes returns the connected routes that the agent has seen and that are gone, and those
// that the management port lacks.
func missingRoutes(r Record) ([]link.ConnectedRoute, error) {
	if r.Paths.RunDir == "" {
		return nil, nil
	}

	ofGateway, err1 := gateway.MissingRoutes(r.Paths.RunDir)
	ofManagement, err2 := management.MissingRoutes()

	return append(ofGateway, ofManagement...), errors.Join(err1, err2)
}

// lookSwitch reads the database and the flows of Open vSwitch.
func lookSwitch(ctx context.Context, r Record) Switch {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()

	var s Switch

	o, err := ovs.Dial(ctx, r.Paths.OVSDB)
	if err != nil {
		s.Err = err
	} else {
		defer o.Close()

		var errs [2]error

		s.ExternalIDs, errs[0] = o.ExternalIDs(ctx)
		s.Mapping, errs[1] = o.BridgeMapping(ctx, gateway.Network)
		s.Member, _, s.MemberErr = o.GatewayBridge(ctx, r.Wiring.Uplink)
		s.Err = errors.Join(errs[:]...)
	}

	if !r.hasNoGateway() {
		first, others, err := ovs.OwnFlows(ctx, r.Paths.OVSRunDir, r.Wiring.Bridge)
		s.Flows, s.FlowsErr = first+others, err
	}

	return s
}

// lookPrograms reads the pinned programs and their counters.
func lookPrograms(r Record) Programs {
	var p Programs
	if r.Wiring.NoEBPF != "" {
		return p
	}

	var errs [3]error
	if r.Wiring.Backend == string(gateway.EBPF) && !r.hasNoGateway() {
		p.Hooks, errs[0] = bpf.Hooks(r.Paths.PinDir, layoutOf(r.Wiring.Layout), link.ClsactPlace)
		p.Counters, errs[1] = bpf.ReadCounters(r.Paths.PinDir)
	}

	if r.Wiring.Shortcuts && r.Wiring.NoShortcuts == "" {
		p.Shortcuts, p.ShortcutsErr = bpf.ReadShortcutCounts(r.Paths.PinDir)
	}

	p.NoService, p.NoBind, errs[2] = bpf.SocketHooks(r.Paths.PinDir)
	p.Err = errors.Join(errs[:]...)

	return p
}

// layoutOf returns the layout of a Record, or Direct for an unknown name.
func layoutOf(name string) verdict.Layout {
	l, _ := verdict.ParseLayout(name) // the zero value is Direct
	return l
}

// hasAddress reports whether a device has a global address.
func (h Host) hasAddress(device string) bool {
	return slices.ContainsFunc(h.Addresses,
		func(a link.Address) bool { return a.Device == device && !a.LinkLocal })
}

// hasIP reports whether any device has the address.
func (h Host) hasIP(address string) bool {
	return slices.ContainsFunc(h.Addresses,
		func(a link.Address) bool { return a.Prefix.Addr().String() == address })
}

// passed returns the sums of packets by receiver or sender, and direction, such as "ovn rx".
func (p Programs) passed() map[string]uint64 {
	sum := map[string]uint64{}
	for _, c := range p.Counters {
		sum[c.Port+" "+c.Direction] += c.Packets
	}

	return sum
}
