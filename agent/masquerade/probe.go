package masquerade

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/agent/gateway/frame"
	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
)

// family is an address family, by nft's name.
type family struct {
	ip     string     // ip or ip6
	name   string     // for people
	target netip.Addr // of probes; no packet reaches it
}

// families are both families. The targets are addresses in the Internet that no firewall treats in
// a special way: those of a.root-servers.net.
var families = []family{
	{"ip", "IPv4", netip.MustParseAddr("198.41.0.4")},
	{"ip6", "IPv6", netip.MustParseAddr("2001:503:ba3e::2:30")},
}

// is reports whether an address is of the family.
func (f family) is(a netip.Addr) bool { return a.Is4() == (f.ip == "ip") }

// Source ports of probes. No other packet has them and the address of the node's router.
const (
	probePort  = 1
	tracedPort = 2 // nft monitor trace shows what happens to these probes
)

// probeKinds are connections that a firewall is likely to allow. It may allow only some of them.
var probeKinds = []struct {
	proto string
	port  uint16
}{{"tcp", 443}, {"tcp", 80}, {"udp", 53}}

// probes returns the chains that count what other base chains on the hook forward let pass. They
// are the first and the last chain of the hook. The last one drops probes, so they neither leave
// the node nor create an entry in conntrack, which confirms connections later.
func probes(c Config) string {
	var counters, enter, leave strings.Builder

	for _, f := range families {
		var sources []netip.Prefix
		for _, p := range c.Pods {
			sources = append(sources, netip.PrefixFrom(probeSource(p), p.Addr().BitLen()))
		}

		from := set(sources, f.is)
		if from == "" {
			continue
		}

		for _, name := range []string{probesEnter, probesLeave, newLeave, repliesEnter, repliesLeave} {
			fmt.Fprintf(&counters, "\tcounter %s_%s {\n\t}\n", name, f.ip)
		}

		nfproto := map[string]string{"ip": "ipv4", "ip6": "ipv6"}[f.ip]
		probe := fmt.Sprintf("\t\tiifname %q %s saddr { %s } meta l4proto { tcp, udp } th sport", c.Port, f.ip, from)

		fmt.Fprintf(&enter, "%s { %d, %d } counter name %s_%s\n",
			probe, probePort, tracedPort, probesEnter, f.ip)
		fmt.Fprintf(&enter, "%s %d meta nftrace set 1\n", probe, tracedPort)
		fmt.Fprintf(&enter, "\t\toifname %q meta nfproto %s ct direction reply counter name %s_%s\n",
			c.Port, nfproto, repliesEnter, f.ip)

		fmt.Fprintf(&leave, "%s { %d, %d } counter name %s_%s drop\n",
			probe, probePort, tracedPort, probesLeave, f.ip)
		fmt.Fprintf(&leave, "\t\tiifname %q meta nfproto %s ct state new counter name %s_%s\n",
			c.Port, nfproto, newLeave, f.ip)
		fmt.Fprintf(&leave, "\t\toifname %q meta nfproto %s ct direction reply counter name %s_%s\n",
			c.Port, nfproto, repliesLeave, f.ip)
	}

	const hook = "\t\ttype filter hook forward priority "

	return counters.String() +
		"\tchain " + enterChain + " {\n" + hook + "-2147483648; policy accept;\n" + enter.String() + "\t}\n" +
		"\tchain leave {\n" + hook + "2147483647; policy accept;\n" + leave.String() + "\t}\n"
}

// enterChain is the first chain of the hook forward.
const enterChain = "enter"

// Names of counters, without the family.
const (
	probesEnter  = "probes_enter"
	probesLeave  = "probes_leave"
	newLeave     = "new_leave" // packets that begin a connection of a pod
	repliesEnter = "replies_enter"
	repliesLeave = "replies_leave"
)

// probeSource returns the address from which probes are sent: that of the node's router in a
// network of pods. It is neither a pod's nor the host's, and rules for the network match it.
func probeSource(pods netip.Prefix) netip.Addr { return pods.Masked().Addr().Next() }

// ErrNoTable is returned (wrapped) while the table of this package is missing.
var ErrNoTable = errors.New("the table does not exist")

// Probe finds out whether other base chains on the hook forward drop packets of pods. It sends
// packets that look like those of pods through the host, and counts them at both ends of the hook.
// Look must not be called concurrently.
type Probe struct {
	Port string // the management port
	// Send gives a frame to the host as if the management port had received it.
	Send func(ctx context.Context, frame []byte) error

	last map[string]uint64 // counters at the start of the last look; nil before the first one
}

// NewProbe returns a Probe through a port of OVN's bridge. rundir is that of ovs-vswitchd.
func NewProbe(port, rundir string) *Probe {
	return &Probe{Port: port, Send: func(ctx context.Context, frame []byte) error {
		return ovs.SendTo(ctx, rundir, ovs.IntegrationBridge, port, frame)
	}}
}

// Dropped says that packets of pods are dropped.
type Dropped struct {
	Family  string   // IPv4 or IPv6
	Replies bool     // replies to pods are dropped, not what pods send
	By      []string // chains, as "ip filter FORWARD (policy drop)"
}

// Describe returns a sentence about the families whose packets are dropped, and what helps after a
// semicolon. It returns "" if there are none.
func Describe(all []Dropped, port string) string {
	if len(all) == 0 {
		return ""
	}

	if len(all) == 2 && all[0].Replies == all[1].Replies && slices.Equal(all[0].By, all[1].By) {
		both := all[0]
		both.Family += " and " + all[1].Family
		all = []Dropped{both}
	}

	var parts []string

	for _, d := range all {
		what := "packets of pods"
		if d.Replies {
			what = "replies to pods"
		}

		parts = append(parts,
			fmt.Sprintf("%s %s are dropped by %s", d.Family, what, strings.Join(d.By, " and ")))
	}

	return strings.Join(parts, ", ") + ": pods reach no other network; accept packets from and to " + port +
		" there (docs/platforms.md, Firewalls beside local gateway mode)"
}

// Result is the result of a look.
type Result struct {
	Dropped []Dropped
	// Forwards is the number of families whose packets the host forwards, up to the hook.
	Forwards int
	// Unsure is set if probes were dropped, but pods have begun connections since the last look.
	// The next look should follow soon.
	Unsure bool
}

// minReplies is the number of replies that must have been dropped, and none let pass, since the
// last look. Stateful firewalls drop single replies that they take for invalid.
const minReplies = 3

// Look sends probes and returns the families whose packets are dropped. A family that the host does
// not route is not judged.
func (p *Probe) Look(ctx context.Context) (Result, error) {
	var out Result

	current, err := readCounters(ctx)
	if err != nil {
		return out, err
	}

	sources, err := p.sources()
	if err != nil {
		return out, err
	}

	for _, f := range families {
		source, exists := sources[f]
		if !exists {
			continue
		}

		outcome, err := p.probe(ctx, f, source)
		if err != nil {
			return out, err
		}

		if outcome == absent {
			continue
		}

		out.Forwards++

		d := Dropped{Family: f.name, Replies: outcome == passed}
		switch {
		case outcome == passed && !repliesDropped(p.last, current, f):
			continue
		case outcome == dropped && connectionsBegun(p.last, current, f):
			out.Unsure = true
			continue
		}

		if d.By, err = p.culprits(ctx, f, source, d.Replies); err != nil {
			return out, err
		}

		out.Dropped = append(out.Dropped, d)
	}

	p.last = current

	return out, nil
}

// connectionsBegun reports whether packets that begin a connection of a pod have passed the hook
// between two looks.
func connectionsBegun(last, now map[string]uint64, f family) bool {
	begun := newLeave + "_" + f.ip

	return last != nil && now[begun] > last[begun]
}

// repliesDropped reports whether replies have entered the hook between two looks and none has left.
func repliesDropped(last, now map[string]uint64, f family) bool {
	entered, left := repliesEnter+"_"+f.ip, repliesLeave+"_"+f.ip
	return last != nil && now[entered] >= last[entered]+minReplies && now[left] == last[left]
}

// source is where the probes of a family come from and where they can be sent.
type source struct {
	host    frame.Host // the management port
	from    netip.Addr
	targets []netip.Addr
}

// maxTargets bounds the targets of a family.
const maxTargets = 3

// sources returns the sources of probes, by family: the first address of the port tells the network
// of pods.
func (p *Probe) sources() (map[family]source, error) {
	port, err := link.Get(p.Port)
	if err != nil {
		return nil, err
	}

	all, err := link.Addresses()
	if err != nil {
		return nil, err
	}

	out := map[family]source{}

	for _, f := range families {
		var s source

		for _, a := range all {
			if a.LinkLocal || !f.is(a.Prefix.Addr()) {
				continue
			}

			if a.Device == p.Port && !s.from.IsValid() {
				s.host, s.from = frame.Host{MAC: port.MAC, Addr: a.Prefix.Addr()}, probeSource(a.Prefix)
			}

			neighbour := a.Prefix.Masked().Addr().Next()
			if a.Device != p.Port && !a.Prefix.IsSingleIP() &&
				neighbour != a.Prefix.Addr() && !neighbour.IsLoopback() {
				s.targets = append(s.targets, neighbour)
			}
		}

		if s.from.IsValid() && s.from != s.host.Addr {
			s.targets = append([]netip.Addr{f.target}, s.targets[:min(len(s.targets), maxTargets-1)]...)
			out[f] = s
		}
	}

	return out, nil
}

// outcome is what happened to a probe.
type outcome int

const (
	absent  outcome = iota // it did not reach the hook
	dropped                // it did, and did not reach the end of the hook
	passed
)

// probe sends one probe, and several others if that one does not pass. A host without a default
// route forwards to its neighbours only, and a firewall may allow pods no more than that.
func (p *Probe) probe(ctx context.Context, f family, s source) (outcome, error) {
	var all []packet

	for _, to := range s.targets {
		for _, k := range probeKinds {
			all = append(all, packet{netip.AddrPortFrom(to, k.port), k.proto})
		}
	}

	first, err := p.sendProbes(ctx, f, s, all[:1])
	if err != nil || first == passed {
		return first, err
	}

	others, err := p.sendProbes(ctx, f, s, all[1:])

	return max(first, others), err
}

// packet is a probe.
type packet struct {
	to    netip.AddrPort
	proto string
}

const (
	arrival = time.Second            // within which a probe reaches the hook
	passage = 100 * time.Millisecond // within which it passes the hook: chains may queue it to a program
	pause   = 10 * time.Millisecond  // between two reads, at first
)

// sendProbes sends probes and returns the best outcome.
func (p *Probe) sendProbes(ctx context.Context, f family, s source, probes []packet) (outcome, error) {
	before, err := readCounters(ctx)
	if err != nil {
		return absent, err
	}

	for _, packet := range probes {
		if err := p.send(ctx, s, packet, probePort); err != nil {
			return absent, err
		}
	}

	best, since := absent, time.Now() // the best outcome so far, and when it began

	for wait := pause; ; wait = min(2*wait, passage) {
		now, err := readCounters(ctx)
		if err != nil {
			return absent, err
		}

		switch entered, left := probesEnter+"_"+f.ip, probesLeave+"_"+f.ip; {
		case now[left] > before[left]:
			return passed, nil
		case now[entered] < before[entered]: // the table was written again
			return p.sendProbes(ctx, f, s, probes)
		case now[entered] > before[entered] && best == absent:
			best, since = dropped, time.Now() // unless it leaves the hook within passage
		}

		if best == absent && time.Since(since) > arrival || best == dropped && time.Since(since) > passage {
			return best, nil
		}

		select {
		case <-ctx.Done():
			return absent, ctx.Err()
		case <-time.After(wait):
		}
	}
}

// send sends one probe from the given source port.
func (p *Probe) send(ctx context.Context, s source, probe packet, from uint16) error {
	spec := frame.Spec{
		SrcMAC: s.host.MAC,
		DstMAC: s.host.MAC,
		Proto:  probe.proto,
		Src:    netip.AddrPortFrom(s.from, from),
		Dst:    probe.to,
	}
	if probe.proto == "tcp" {
		spec.Flags = []string{"syn"}
	}

	b, err := spec.Bytes()
	if err != nil {
		return err
	}

	return p.Send(ctx, b)
}

// readCounters returns the packets that the counters of the table have counted, by name.
func readCounters(ctx context.Context) (map[string]uint64, error) {
	out, err := runNFT(ctx, "", "-j", "list", "counters", "table", "inet", Table)
	if err != nil {
		if strings.Contains(err.Error(), "No such file or directory") {
			err = ErrNoTable
		}

		return nil, fmt.Errorf("read counters of table inet %s: %w", Table, err)
	}

	var list struct {
		Nftables []struct {
			Counter struct {
				Name    string
				Packets uint64
			}
		}
	}
	if err := json.Unmarshal(out, &list); err != nil {
		return nil, fmt.Errorf("read counters of table inet %s: %w", Table, err)
	}

	counters := map[string]uint64{}
	for _, l := range list.Nftables {
		counters[l.Counter.Name] = l.Counter.Packets
	}

	return counters, nil
}
