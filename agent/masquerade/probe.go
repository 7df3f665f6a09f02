package masquerade

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/agent/gateway/frame"
	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
)

// Probe finds out whether other base chains on the hook forward drop packets of pods. It sends
// packets that look like those of pods through the host, and reads the counters at both ends of the
// hook (counter.go). It judges a family by two rules:
//
//   - If probes do not pass the hook, packets of pods are dropped. But if connections of pods have
//     passed meanwhile, the result is unsure.
//   - If probes pass, other chains may still drop the replies to pods. Probes have none, so the
//     counters of the replies to pods decide.
//
// Look must not be called concurrently.
type Probe struct {
	Port string // the management port
	// Send passes a frame to the host as if the management port had received it.
	Send func(ctx context.Context, frame []byte) error

	last map[string]uint64 // counters at the start of the last Look; nil before the first one
}

// NewProbe returns a Probe through a port of OVN's bridge. rundir is that of ovs-vswitchd.
func NewProbe(port, rundir string) *Probe {
	return &Probe{Port: port, Send: func(ctx context.Context, frame []byte) error {
		return ovs.SendTo(ctx, rundir, ovs.IntegrationBridge, port, frame)
	}}
}

// Dropped is the fault that packets of a family from or to pods are dropped.
type Dropped struct {
	Family  string   // IPv4 or IPv6
	Replies bool     // replies to pods are dropped, not what pods send
	By      []string // chains, as "ip filter FORWARD (policy drop)"
}

// Describe returns a sentence about the families whose packets are dropped, and the advice after a
// semicolon. For an empty list it returns "". If both families have the same fault, it is named
// once.
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

// Result is the result of Look.
type Result struct {
	Dropped []Dropped
	// Forwards is the number of families whose packets the host forwards, up to the hook.
	Forwards int
	// Unsure is set if probes were dropped, but pods have begun connections since the last Look.
	// The next Look should follow soon.
	Unsure bool
}

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

		if outcome == absent { // the host does not route the family
			continue
		}

		out.Forwards++
		replies := outcome == passed // if probes pass, only replies may be dropped

		switch {
		case replies && !repliesDropped(p.last, current, f):
			continue
		case !replies && connectionsBegun(p.last, current, f):
			out.Unsure = true
			continue
		}

		by, err := p.culprits(ctx, f, source, replies)
		if err != nil {
			return out, err
		}

		out.Dropped = append(out.Dropped, Dropped{Family: f.name, Replies: replies, By: by})
	}

	p.last = current

	return out, nil
}

// connectionsBegun reports whether packets that begin a connection of a pod have passed the hook
// between two calls of Look.
func connectionsBegun(last, now map[string]uint64, f family) bool {
	begun := newLeave + "_" + f.ip

	return last != nil && now[begun] > last[begun]
}

// minReplies is the number of replies that must have entered the hook, and none have left it,
// before they count as dropped. Stateful firewalls drop single replies that they take for invalid.
const minReplies = 3

// repliesDropped reports whether at least minReplies replies have entered the hook between two
// calls of Look and none has left it.
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

// sources returns the sources of probes, by family. It leaves out a family if the management port has
// no address of it. The network of this address is that of the node's pods. The targets are the family's,
// and the first addresses of the host's other networks, which are often routers.
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

// probeKinds are connections that a firewall is likely to allow. It may allow only some of them.
var probeKinds = []struct {
	proto string
	port  uint16
}{{"tcp", 443}, {"tcp", 80}, {"udp", 53}}

// outcome is what happened to probes, from worst to best.
type outcome int

const (
	absent  outcome = iota // none reached the hook
	dropped                // some reached the hook, and none its end
	passed
)

// probe sends one probe, and if that does not pass, one for each other pair of a target and a kind.
// A host without a default route forwards to its neighbours only, and a firewall may allow pods to
// reach only these.
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

// Times of sendProbes.
const (
	arrival = time.Second            // within which a probe reaches the hook
	passage = 100 * time.Millisecond // within which it passes the hook: chains may queue it to a program
	pause   = 10 * time.Millisecond  // between two reads of the counters, at first; it doubles up to passage
)

// sendProbes sends probes and waits for the counters to show the best outcome.
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
			best, since = dropped, time.Now() // or passed, if it leaves the hook within passage
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
