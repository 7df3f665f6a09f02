package main

import (
	"cmp"
	"context"
	"encoding/hex"
	"flag"
	"fmt"
	"io"
	"net/netip"
	"strings"

	"github.com/ovn-ebpf/ovn-ebpf/agent/gateway"
	"github.com/ovn-ebpf/ovn-ebpf/agent/gateway/frame"
	"github.com/ovn-ebpf/ovn-ebpf/bpf"
	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

const explainDetail = `It applies the gateway's rules to a packet that you describe, with the tables of the attached programs. It
prints who receives the packet, and which lookups decide. With the backend openflow, ovs-vswitchd traces the
packet through the flows. It does not count, learn or send anything. Describe the packet as it is at the
uplink: a packet from OVN has the node's address as its source, after SNAT.

  ovnkube gateway explain tcp 203.0.113.9:4242 192.0.2.10:30080    a connection from outside to a NodePort
  ovnkube gateway explain icmp 203.0.113.9 192.0.2.10              a ping of the node
  ovnkube gateway explain -icmp-type reply -icmp-id 77 icmp 203.0.113.9 192.0.2.10
  ovnkube gateway explain -from ovn udp 192.0.2.10:50001 203.0.113.9:53
  ovnkube gateway explain -pcap dump.pcap -packet 17               a captured frame

Without -tcp-flags, a TCP packet is explained as a later packet of its connection. If another rule decides
about a SYN, the SYN is explained, too.`

// question holds the flags of explain.
type question struct {
	finder
	from string // wire, ovn or host

	// The packet: a whole frame in hex, a frame of a capture file, or else the arguments and the flags
	// of its headers. See frames.
	hex             string
	pcap            string
	packet          int    // number of the frame in pcap, from 1
	flags, icmpType string // flags "": both ACK and SYN
	srcMAC, dstMAC  string // "": those of the node and of a neighbour
	icmpID, payload int
	vlan            int // below 0: the gateway's

	node, bridge string // for ovn-trace; node "": without it
	json         bool
}

// answer is a packet and its decision, an element of -json.
type answer struct {
	outcome
	packetFields
	Layout  string `json:"layout" doc:"[layout](layouts.md) of the gateway: direct, bridged or dedicated"`
	Backend string `json:"backend" doc:"backend of the gateway: ebpf or openflow"`
	Rule    string `json:"rule" doc:"the packets to which the rule applies, as in [verdicts.md](verdicts.md)"`
	Meaning string `json:"meaning" doc:"description of the verdict"`
	Lookups []step `json:"lookups" doc:"lookups of the rules in the tables, in order; with the backend openflow, the flows that the packet matches"`
	OVN     string `json:"ovn,omitempty" doc:"output of ovn-trace, with -ovn-trace"`

	frame []byte
}

// step is one lookup of the rules and its result, or a flow that the packet matches.
type step struct {
	Kind     string     `json:"kind" doc:"kind of the lookup, as in [Kinds of lookups](#kinds-of-lookups); of a flow, the name of its table"`
	Address  netip.Addr `json:"address,omitzero" doc:"the address that was looked up"`
	Port     uint16     `json:"port,omitempty" doc:"the port that was looked up; for an ICMP echo, its identifier"`
	Protocol string     `json:"protocol,omitempty" doc:"the protocol that was looked up"`
	Result   string     `json:"result,omitempty" doc:"result of the lookup, in words"`
	Idle     float64    `json:"idleSeconds,omitempty" doc:"seconds since the entry that was found was last used; only for exchange, takeover and fragment"`
	Match    string     `json:"match,omitempty" doc:"match of the flow, as ovs-ofctl prints it; missing if the flow matches every packet"`
	Actions  []string   `json:"actions,omitempty" doc:"actions of the flow; missing if the flow drops the packet"`

	text string // the step on a terminal
}

func explainCommand(f *flag.FlagSet) action {
	q := question{
		finder: newPinFinder(f, "sb-address", "sb-client-privkey", "sb-client-cert", "sb-client-cacert"),
	}
	southbound := f.Lookup("sb-address")
	southbound.Usage = "Southbound database `address` for ovn-trace; default: the setting sb-address, or else the default of ovn-trace"
	southbound.DefValue = ""

	f.StringVar(&q.from, "from", "wire",
		"source of the packet (`side`): wire: it arrives at the uplink; ovn: OVN sends it; host: the host sends it, in layout bridged")
	f.StringVar(&q.flags, "tcp-flags", "", "`flags` of a TCP packet, separated by commas: syn, ack, fin, rst, psh; default: explain ack and syn")
	f.StringVar(&q.icmpType, "icmp-type", "request",
		"`type` of an ICMP packet: request, reply, or TYPE[/CODE] in numbers")
	f.IntVar(&q.icmpID, "icmp-id", 1, "`identifier` of an ICMP echo")
	f.IntVar(&q.payload, "payload", 0, "number of payload `bytes` after the transport header")
	f.IntVar(&q.vlan, "vlan", -1, "`VLAN` of the packet, 0 for none; default: the gateway's")
	f.StringVar(&q.srcMAC, "src-mac", "",
		"source MAC `address`; default: a neighbour's, or the node's if the packet is not from the wire")
	f.StringVar(&q.dstMAC, "dst-mac", "",
		"destination MAC `address`; default: the node's, or a neighbour's if the packet is not from the wire")
	f.StringVar(&q.hex, "frame", "", "the whole Ethernet frame in `hex`, instead of arguments")
	f.StringVar(&q.pcap, "pcap", "", "`file` with captured frames, pcap or pcapng, instead of arguments")
	f.IntVar(&q.packet, "packet", 1, "`number` of the frame in the file, from 1")
	f.StringVar(&q.node, "ovn-trace", "",
		"also run ovn-trace for a packet from the wire, as the first of a connection that enters OVN at this `node`")
	f.StringVar(&q.bridge, "bridge", "", "gateway `bridge` for ovn-trace; default: the agent's")
	f.BoolVar(&q.json, "json", false, "print a JSON array of objects")

	return q.run
}

// run explains each frame that the flags and arguments describe.
func (q *question) run(ctx context.Context, args []string, env *environment) error {
	if _, isKnown := originOf(q.from); !isKnown {
		return fmt.Errorf("--from %q is none of wire, ovn, host", q.from)
	}

	found, err := q.find(ctx, env)
	if err != nil {
		return err
	}

	if q.bridge == "" {
		q.bridge = cmp.Or(found.record.Wiring.Bridge, "breth0")
	}

	rules, err := openRules(ctx, found)
	if err != nil {
		return err
	}
	defer rules.Close()

	frames, err := q.frames(args, rules.packetContext())
	if err != nil {
		return err
	}

	answers, podNames := []answer{}, newNames(found)

	for _, f := range frames {
		a, err := rules.explain(ctx, q.from, f)
		if err != nil {
			return err
		}

		if len(answers) > 0 && answers[0].Reason == a.Reason {
			continue // the same rule decides about the SYN
		}

		if q.node != "" && q.from == "wire" && a.Verdict != verdict.Host.String() {
			if a.OVN, err = q.trace(ctx, f); err != nil {
				return err
			}
		}

		if q.json {
			podNames.fill(ctx, a.From, &a.packetFields, verdict.Parse(a.frame).IP)
		}

		answers = append(answers, a)
	}

	if q.json {
		return env.printJSON(answers)
	}

	return printAnswers(env.stdout, answers)
}

// frames returns the frames to explain: two for TCP without flags.
func (q *question) frames(args []string, defaults packetContext) ([][]byte, error) {
	if (q.hex != "" || q.pcap != "") && len(args) > 0 {
		return nil, fmt.Errorf("unexpected argument %q: the frame is given", args[0])
	}

	switch {
	case q.hex != "":
		f, err := hex.DecodeString(q.hex)
		if err != nil {
			return nil, fmt.Errorf("--frame: %w", err)
		}

		return [][]byte{f}, nil
	case q.pcap != "":
		f, err := frame.FromCapture(q.pcap, q.packet)
		return [][]byte{f}, err
	}

	spec, err := q.spec(args, defaults)
	if err != nil {
		return nil, err
	}

	flagSets := [][]string{strings.Split(q.flags, ",")}
	switch {
	case spec.Proto == "tcp" && q.flags == "":
		flagSets = [][]string{{"ack"}, {"syn"}}
	case q.flags != "" && spec.Proto != "tcp":
		return nil, fmt.Errorf("--tcp-flags with protocol %s", spec.Proto)
	}

	var out [][]byte

	for _, spec.Flags = range flagSets {
		f, err := spec.Bytes()
		if err != nil {
			return nil, err
		}

		out = append(out, f)
	}

	return out, nil
}

// answerFor returns the answer for a frame which the gateway counts as c.
func answerFor(f []byte, from, layout, backend string, c bpf.Counter, rule string, steps []step) answer {
	return answer{
		outcome: outcome{
			From:      from,
			Direction: c.Direction,
			Verdict:   c.Verdict,
			Reason:    c.Reason,
			Length:    len(f),
		},
		packetFields: fieldsOf(f),
		Layout:       layout,
		Backend:      backend,
		Rule:         rule,
		Meaning:      meaning(c),
		Lookups:      append([]step{}, steps...),
		frame:        f,
	}
}

// meaning returns the destination of the packet in words.
func meaning(c bpf.Counter) string {
	switch c.Verdict {
	case "host":
		return "the host's network stack receives the packet"
	case "ovn":
		return "OVN's gateway router receives the packet, through the gateway bridge"
	case "both":
		return "the host's network stack and OVN's gateway router each receive a copy"
	case "out":
		return "the packet leaves through the uplink"
	}

	return "the packet is dropped"
}

// printAnswers prints the answers for a terminal.
func printAnswers(w io.Writer, answers []answer) error {
	for i, a := range answers {
		if i > 0 {
			fmt.Fprintln(w)
		}

		layout, label := a.Layout, "lookups"
		if a.Backend != string(gateway.EBPF) {
			layout, label = layout+", backend "+a.Backend, "flows"
		}

		fmt.Fprintf(w, "packet   from %s, layout %s: %s\n", a.From, layout, frame.Describe(a.frame))

		for n, s := range a.Lookups {
			fmt.Fprintf(w, "%-9s%d. %s\n", label, n+1, s.text)

			label = "" // only in the first line
		}

		fmt.Fprintf(w, "reason   %s (%s)\n", a.Reason, a.Rule)

		if _, err := fmt.Fprintf(w, "verdict  %s: %s\n", a.Verdict, a.Meaning); err != nil {
			return err
		}

		if a.OVN != "" {
			fmt.Fprintf(w, "OVN\n%s\n", a.OVN)
		}
	}

	return nil
}
