package status

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ovn-ebpf/ovn-ebpf/agent/cniconf"
	"github.com/ovn-ebpf/ovn-ebpf/agent/gateway"
	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// State is the health of a part.
type State int

// States of a part, from best to worst.
const (
	Right    State = iota
	Degraded       // traffic flows; something optional is missing, or repair is off
	Broken         // traffic is interrupted
)

func (s State) String() string { return [...]string{"right", "degraded", "broken"}[s] }

// MarshalText returns the state's name.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Check is the result for one part.
type Check struct {
	Name   string `json:"name"`
	State  State  `json:"state"`
	Detail string `json:"detail"`       // the observation
	Do     string `json:"do,omitempty"` // advice, unless the state is Right
}

// Report is the result of all checks.
type Report struct {
	Record Record            `json:"record"`
	State  State             `json:"state"` // the worst state of the checks
	Checks []Check           `json:"checks"`
	Passed map[string]uint64 `json:"passed,omitempty"` // packets, by owner and direction
}

// Advice that several checks share, as judge.repair.
const (
	startAgent  = "start the agent, which repairs this"
	readJournal = "see the agent's log and /readyz; the agent repairs this if it can"
)

// judge collects the checks of a node. Each method without parameters checks one part. Most add one
// Check: the first fault that they find, or else the state Right.
type judge struct {
	Facts
	checks []Check
	repair string // advice for faults that the agent repairs
}

// add adds the check of a part. do is the advice. The format and its arguments make the detail.
func (j *judge) add(name string, s State, do, format string, args ...any) {
	if s == Right {
		do = ""
	}

	j.checks = append(j.checks, Check{name, s, fmt.Sprintf(format, args...), do})
}

// Judge returns the state of each part, with advice for each fault. It is pure.
func Judge(f Facts) Report {
	j := &judge{Facts: f, repair: readJournal}
	if f.Agent.Err != nil {
		j.repair = startAgent
	}

	j.agent()

	out := Report{Record: f.Record, Passed: f.Programs.passed()}
	if f.Record.Underlay() {
		j.underlay()

		out.Passed = f.Nested.passed()
	} else {
		j.ovsdb()

		if !f.Record.partial() {
			j.node()
		}
	}

	out.Checks = j.checks
	for _, c := range j.checks {
		out.State = max(out.State, c.State)
	}

	return out
}

// node checks everything that depends on the agent's configuration.
func (j *judge) node() {
	j.devices()

	if !j.Record.hasNoGateway() {
		j.bridge()
		j.flows()
		j.ports()
	}

	j.programs()
	j.shortcuts()
	j.sockets()
	j.ovn()
	j.management()
	j.cni()
}

// agent checks whether the agent runs and is ready, and passes on the faults that it reports.
func (j *judge) agent() {
	j.agentReadiness()

	a := j.Agent
	if len(a.Full) > 0 {
		j.add("tables", Degraded,
			"find the Services with many ports, addresses or endpoints (docs/services.md, Budgets); everything else works",
			"full, these have no room for: %s", strings.Join(a.Full, ", "))
	}

	faults := a.Faults
	if j.Host.Forward != "" {
		faults = append(slices.Clip(faults), j.Host.Forward)
	}

	for _, fault := range faults { // the advice follows a semicolon
		what, do, _ := strings.Cut(fault, "; ")
		j.add("environment", Degraded, cmp.Or(do, "see docs/status.md"), "%s", what)
	}

	for _, warning := range a.Warnings {
		j.add("environment", Right, "", "%s", warning)
	}

	if a.Drained {
		j.add("drained", Degraded, "ovnkube node undrain-gateway "+j.Record.Node+", when maintenance is over",
			"the gateway is drained: load balancers and nodes without a gateway use other nodes")
	}
}

// agentReadiness checks whether the agent runs and is ready.
func (j *judge) agentReadiness() {
	a := j.Agent
	// A full table has its own check.
	without := slices.DeleteFunc(slices.Clone(a.Degraded), func(part string) bool { return part == "tables" })

	switch {
	case (a.Err != nil || !a.Served) && j.Record.Failure != "":
		state := Degraded // an earlier agent's work goes on
		if j.Record.partial() {
			state = Broken
		}

		j.add("agent", state, "correct what the error names; the agent's log has details",
			"has ended with an error: %s", j.Record.Failure)
	case !a.Served:
		j.add("agent", Degraded, "start it with --metrics-bind-address",
			"does not serve /readyz, so its readiness is unknown")
	case a.Err != nil:
		j.add("agent", Degraded,
			"start it; connections keep working, but faults are not repaired and pods cannot start",
			"does not answer: %v", a.Err)
	case len(a.Missing) > 0:
		j.add("agent", Broken, "repair what each line names; the agent's log has details", "not ready: %s",
			strings.Join(a.Missing, "; "))
	case len(without) > 0:
		j.add("agent", Degraded, "see the agent's log", "ready, without %s", strings.Join(without, ", "))
	default:
		j.add("agent", Right, "", "ready")
	}
}

// ovsdb checks the connection to Open vSwitch's database.
func (j *judge) ovsdb() {
	if err := j.Switch.Err; err != nil {
		j.add("ovsdb", Broken,
			"start ovsdb-server (openvswitch-switch); the host's own traffic is not affected", "%v", err)

		return
	}

	j.add("ovsdb", Right, "", "%s", j.Record.Paths.OVSDB)
}

// devices checks the uplink, and the host's addresses where the layout puts them.
func (j *judge) devices() {
	w, h := j.Record.Wiring, j.Host
	switch {
	case h.Err != nil:
		j.add("uplink", Broken, "run it as root in the host's network namespace", "%v", h.Err)
		return
	case h.Uplink.Err != nil:
		j.add("uplink", Broken, "bring the NIC back, or name another with --gateway-interface", "%v",
			h.Uplink.Err)

		return
	case !h.Uplink.Up:
		j.add("uplink", Broken, "ip link set "+w.Uplink+" up", "%s is down", w.Uplink)
		return
	}

	holder := w.Uplink
	if w.Layout == verdict.Bridged.String() && !j.Record.hasNoGateway() {
		holder = w.Bridge
	}

	if w.Layout != verdict.Dedicated.String() && !h.hasAddress(holder) {
		j.add("uplink", Broken, "restore the node's address from the host's network configuration",
			"%s has no address", holder)

		return
	}

	switch {
	case len(h.Gone) > 0:
		j.add("uplink", Broken, "restore the address in the host's network configuration",
			"the gateway's address %s is on no device of the host: pods reach no other network", h.Gone[0])
	case len(h.NoRoute) > 0:
		r := h.NoRoute[0]
		j.add("uplink", Broken, j.repair, "the connected route %s of %s was removed", r.Prefix, r.Device)
	default:
		j.add("uplink", Right, "", "%s is up", w.Uplink)
	}
}

// bridge checks the gateway bridge, and whether the uplink is where the layout puts it.
func (j *judge) bridge() {
	w, h := j.Record.Wiring, j.Host
	switch {
	case h.Bridge.Err != nil:
		j.add("bridge", Broken, j.repair+"; ovs-vswitchd must run", "%v", h.Bridge.Err)
		return
	case !h.Bridge.Up:
		j.add("bridge", Broken, j.repair,
			"%s is down: OVN traffic cannot leave, all arriving packets go to the host", w.Bridge)

		return
	case h.Uplink.Err == nil && h.Bridge.MAC.String() != h.Uplink.MAC.String():
		j.add("bridge", Broken, j.repair, "%s has the MAC %s, its uplink %s", w.Bridge, h.Bridge.MAC,
			h.Uplink.MAC)

		return
	}

	if s := j.Switch; s.Err == nil {
		want := w.Bridge // the bridge that must have the uplink; "": none
		if w.Layout == verdict.Direct.String() {
			want = ""
		}

		switch {
		case s.MemberErr != nil:
			j.add("bridge", Broken, j.repair, "%v", s.MemberErr)
			return
		case s.Member != want && want == "":
			j.add("bridge", Broken,
				"take it out of "+s.Member+" (ovs-vsctl del-port), or start the agent with --gateway-layout=bridged",
				"%s is a port of %s: layout direct needs it outside OVS", w.Uplink, s.Member)

			return
		case s.Member != want:
			j.add("bridge", Broken, j.repair, "%s is not a port of %s", w.Uplink, w.Bridge)
			return
		case s.Mapping != w.Bridge:
			j.add("bridge", Broken, j.repair,
				"ovn-bridge-mappings maps %s to %q, not to %s: OVN is not connected to it", gateway.Network,
				s.Mapping, w.Bridge)

			return
		}
	}

	j.add("bridge", Right, "", "%s is up and mapped to OVN", w.Bridge)
}

// flows checks the gateway's flows on its bridge.
func (j *judge) flows() {
	s := j.Switch

	host := "the host's own traffic goes on"
	if j.Record.Wiring.Backend == string(gateway.OpenFlow) {
		host = "the host is cut off with it"
	}

	switch {
	case s.FlowsErr != nil:
		j.add("flows", Broken, "start ovs-vswitchd (openvswitch-switch); "+host,
			"cannot read them from ovs-vswitchd: %v", s.FlowsErr)
	case s.Flows == 0:
		j.add("flows", Broken, j.repair, "%s has none of the gateway: packets from OVN are lost",
			j.Record.Wiring.Bridge)
	default:
		j.add("flows", Right, "", "%d on %s", s.Flows, j.Record.Wiring.Bridge)
	}
}

// manyPorts is the share of the SNAT range that is a fault if connections to one remote use it.
const manyPorts = 0.9

// ports checks that OVN and the host use different ports, and that OVN has enough of them.
func (j *judge) ports() {
	r := j.Record
	switch {
	case j.Host.Unreserved != "":
		j.add("ports", Broken, j.repair,
			"%s are not reserved (net.ipv4.ip_local_reserved_ports): the host may use ports of OVN",
			j.Host.Unreserved)
	case j.Agent.SNATPorts > 0 && j.Agent.PortsUsed >= manyPorts*j.Agent.SNATPorts:
		j.add("ports", Degraded, "widen --snat-port-range, or spread the clients over nodes",
			"%.0f of %.0f ports in use towards one remote: new connections soon fail", j.Agent.PortsUsed,
			j.Agent.SNATPorts)
	case j.Host.Listeners > 0:
		j.add("ports", Degraded, "bind them below "+fmt.Sprint(r.Ports.First),
			"%d host sockets listen inside %d-%d, which costs time per packet", j.Host.Listeners,
			r.Ports.First, r.Ports.Last)
	default:
		j.add("ports", Right, "", "%d-%d are for OVN, the rest for the host", r.Ports.First, r.Ports.Last)
	}
}

// programs checks the gateway's programs. Each must be attached to its device, and no program of
// others should run before it.
func (j *judge) programs() {
	w := j.Record.Wiring
	switch {
	case w.NoEBPF != "" && w.Backend == string(gateway.OpenFlow):
		j.add("programs", Degraded, "a kernel with eBPF (Linux 6.1) makes the host independent of OVS",
			"flows do their work: %s", w.NoEBPF)

		return
	case w.NoEBPF != "":
		j.add("programs", Broken, "boot a kernel with eBPF (Linux 6.1), or use --gateway-layout=bridged",
			"no North-South: %s", w.NoEBPF)

		return
	case j.Record.hasNoGateway() || w.Backend != string(gateway.EBPF):
		return // the gateway has no programs
	case j.Programs.Err != nil:
		j.add("programs", Broken, j.repair+"; root and the host's bpffs are needed to look", "%v",
			j.Programs.Err)

		return
	}

	var off []string // programs that are not attached, or to another device

	ahead := 0 // programs of others before ours

	for _, h := range j.Programs.Hooks {
		device := j.Host.Uplink
		if h.Bridge {
			device = j.Host.Bridge
		}

		if h.Ifindex == 0 || device.Err == nil && h.Ifindex != device.Index {
			off = append(off, h.Name)
		}

		ahead = max(ahead, h.Ahead)
	}

	switch {
	case len(off) > 0:
		j.add("programs", Broken, j.repair, "not attached: %s", strings.Join(off, ", "))
	case ahead > 0:
		j.add("programs", Degraded,
			"attach it behind ours, or make sure that it passes other packets (bpftool net)",
			"attached, with %d programs of others before ours", ahead)
	default:
		j.add("programs", Right, "", "%d attached", len(j.Programs.Hooks))
	}
}

// shortcuts reports why the node or a pod has no shortcuts. Missing shortcuts are not a fault,
// because connections pass OVS then.
func (j *judge) shortcuts() {
	w, a, c := j.Record.Wiring, j.Agent, j.Programs.Shortcuts
	switch {
	case !w.Shortcuts: // not asked for
	case w.NoShortcuts != "":
		j.add("shortcuts", Right, "", "none, not supported here: %s", w.NoShortcuts)
	case j.Programs.ShortcutsErr != nil:
		j.add("shortcuts", Degraded, j.repair+"; connections pass OVS", "none: %v", j.Programs.ShortcutsErr)
	case !a.ReasonsKnown:
		j.add("shortcuts", Right, "",
			"%d interfaces of pods may have them; %d entries; the agent does not give the reasons of others",
			c.Pods, c.Entries)
	case len(a.NoShortcuts) > 0:
		j.add("shortcuts", Right, "", "none at present: %s", strings.Join(a.NoShortcuts, ", "))
	default:
		j.add("shortcuts", Right, "",
			"%d interfaces of pods may have them, %.0f may not because of a bandwidth limit; %d entries",
			c.Pods, a.LimitedPods, c.Entries)
	}
}

// sockets checks the programs for the host's own sockets: those that translate Services, and those
// that keep binds out of the SNAT range.
func (j *judge) sockets() {
	if j.Record.Wiring.NoEBPF != "" || j.Programs.Err != nil {
		return
	}

	needsBindHooks := j.Record.Wiring.Backend == string(gateway.EBPF) && !j.Record.hasNoGateway()
	switch {
	case len(j.Programs.NoService) > 0:
		j.add("sockets", Degraded, j.repair+"; cgroup2 must be mounted",
			"host sockets reach Services without translation, on a longer path: %d programs missing",
			len(j.Programs.NoService))
	case needsBindHooks && len(j.Programs.NoBind) > 0:
		j.add("sockets", Degraded, j.repair+"; cgroup2 must be mounted",
			"binds inside the SNAT range are seen late: %d programs missing", len(j.Programs.NoBind))
	default:
		j.add("sockets", Right, "", "host sockets reach Services")
	}
}

// ovn checks ovn-controller and the address of the node's tunnels.
func (j *judge) ovn() {
	ids, c := j.Switch.ExternalIDs, j.Controller

	encap := ids["ovn-encap-ip"]
	switch {
	case !c.Running:
		j.add("ovn", Broken, "start ovn-controller (ovn-host)",
			"ovn-controller does not run: no pid file in %s", j.Record.Paths.OVNRunDir)
	case c.Err != nil:
		j.add("ovn", Broken, "start ovn-controller (ovn-host)", "ovn-controller does not answer: %v", c.Err)
	case !c.Connected:
		j.add("ovn", Broken, "start the southbound database, or correct --sb-address",
			"ovn-controller is not connected to %s: pods keep their configuration, changes do not arrive",
			ids["ovn-remote"])
	case j.Switch.Err != nil:
		j.add("ovn", Right, "", "ovn-controller is connected")
	case !j.Host.hasIP(encap):
		j.add("ovn", Broken, j.repair,
			"the tunnel address %s (ovn-encap-ip) is not this node's: other nodes cannot reach its pods",
			encap)
	default:
		j.add("ovn", Right, "", "ovn-controller is connected to %s, tunnels from %s", ids["ovn-remote"],
			encap)
	}
}

// management checks the management port.
func (j *judge) management() {
	m := j.Host.Management
	switch {
	case m.Err != nil:
		j.add("management", Broken, j.repair, "%v: kubelet cannot reach pods", m.Err)
	case !m.Up || !j.Host.hasAddress(m.Name):
		j.add("management", Broken, j.repair, "%s is down or has no address: kubelet cannot reach pods",
			m.Name)
	default:
		j.add("management", Right, "", "%s is up", m.Name)
	}
}

// cni checks the agent's socket, and that the container runtime uses our configuration.
func (j *judge) cni() {
	var faults, do []string

	if err := j.CNI.Socket; err != nil {
		faults = append(faults, fmt.Sprintf("no pod starts or stops: %v", err))
	}

	if err := j.CNI.ConfList; err != nil {
		faults = append(faults, fmt.Sprintf("the runtime has no configuration: %v", err))
	}

	if faults != nil {
		do = append(do, j.repair)
	}

	var earlier, named []string
	for _, o := range cniconf.Preferred(j.CNI.Others) {
		earlier = append(earlier, o.Path)
		named = append(named, fmt.Sprintf("%s (%s)", o.Path, cmp.Or(o.Plugin, "not readable")))
	}

	if earlier != nil {
		faults = append(faults, fmt.Sprintf("new pods get another network: the runtime takes %s before %s",
			strings.Join(named, ", "), filepath.Base(j.Record.Paths.ConfList)))
		do = append(do, "remove "+strings.Join(earlier, " ")+
			", or start the agent with --cni-exclusive, which sets such files aside")
	}

	if faults != nil {
		j.add("cni", Broken, strings.Join(do, "; "), "%s", strings.Join(faults, "; "))
		return
	}

	j.add("cni", Right, "", "%s", j.Record.Paths.CNISocket)
}
