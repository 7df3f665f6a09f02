package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/agent/gateway/frame"
	"github.com/ovn-ebpf/ovn-ebpf/bpf"
	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

const monitorDetail = `It prints packets while the gateway decides about them, until Ctrl-C or until -count packets are printed.
It attaches its own programs before those of the gateway. They apply the same rules to the same tables, but do
not count, learn or send. They are removed when the command ends, even if it is killed. While no monitor runs,
it costs nothing. It needs Linux 6.6 and the eBPF backend.

  ovnkube gateway monitor                                  a sample of all packets, at most 10 per second
  ovnkube gateway monitor -address 203.0.113.9 -rate 1000  packets of one client
  ovnkube gateway monitor -verdict drop                    packets that the gateway drops
  ovnkube gateway monitor -port 30080 -pcap /tmp/x.pcapng  a capture file, with the verdict of each frame as comment

A GSO packet is one line. For ICMP errors, -address and -port refer to the outer packet. ARP packets never
match -address, -port or -protocol.`

// watch holds the flags of the command. options checks them.
type watch struct {
	finder

	// The packets to show; "" and 0 allow all.
	address, protocol, reasons, verdicts string
	port                                 int

	rate, count int    // packets per second, and in all; count 0: no limit
	pcap        string // file; "": print lines; "-": standard output
	json        bool
}

func monitorCommand(f *flag.FlagSet) action { return newWatch(f).run }

func newWatch(f *flag.FlagSet) *watch {
	w := &watch{finder: newPinFinder(f)}
	f.StringVar(&w.address, "address", "", "only packets from or to this `address` or prefix")
	f.IntVar(&w.port, "port", 0, "only packets from or to this `port`")
	f.StringVar(&w.protocol, "protocol", "", "only this `protocol`: tcp, udp, sctp, icmp, icmp6 or a number")
	f.StringVar(&w.reasons, "reason", "",
		"only these `reasons`, separated by commas; 'ovnkube gateway counters -all' lists them")
	f.StringVar(&w.verdicts, "verdict", "", "only these `verdicts`, separated by commas: host, ovn, both, out, drop")
	f.IntVar(&w.rate, "rate", 10, "maximum number of `packets` per second")
	f.IntVar(&w.count, "count", 0, "end after this number of `packets`; 0: never")
	f.BoolVar(&w.json, "json", false, "print one JSON object per line")
	f.StringVar(&w.pcap, "pcap", "",
		"write frames to this pcapng `file` instead of printing lines; - is the standard output")

	return w
}

// decision is an output line of -json.
type decision struct {
	Time time.Time `json:"time" doc:"time of the decision"`
	outcome
	packetFields
}

// originNames has the names of packets' origins, in the output and in -from.
var originNames = map[verdict.Direction]string{
	verdict.FromWire: "wire", verdict.FromOVN: "ovn", verdict.FromHost: "host",
}

// originOf returns the origin of that name.
func originOf(name string) (origin verdict.Direction, isKnown bool) {
	for o, n := range originNames {
		if n == name {
			return o, true
		}
	}

	return 0, false
}

func (w *watch) run(ctx context.Context, _ []string, env *environment) error {
	options, err := w.options()
	if err != nil {
		return err
	}

	found, err := w.find(ctx, env)
	if err != nil {
		return err
	}

	m, err := openMonitor(found, options)
	if err != nil {
		return err
	}
	defer m.Close()

	print, done, err := w.printer(ctx, env.stdout, newNames(found))
	if err != nil {
		return err
	}

	err = errors.Join(w.follow(ctx, m, print), done())
	if missed, e := m.Missed(); e == nil && missed > 0 {
		fmt.Fprintf(env.stderr, "%d more packets were left out: beyond -rate, or not read in time\n", missed)
	}

	return err
}

// openMonitor attaches the monitor's programs. Its errors say what the monitor needs.
func openMonitor(found agentInfo, o bpf.MonitorOptions) (*bpf.Monitor, error) {
	m, err := bpf.OpenMonitor(found.pinDir, o)
	switch {
	case errors.Is(err, bpf.ErrNotAttached):
		return nil, fmt.Errorf("%w (does the agent run, with --gateway-backend=ebpf? %s)", err, found.where())
	case errors.Is(err, bpf.ErrNoTCX):
		return nil, fmt.Errorf("%w: monitoring needs Linux 6.6 or newer", err)
	}

	return m, err
}

// follow prints samples until ctx ends, the count is reached, or the programs are replaced.
func (w *watch) follow(ctx context.Context, m *bpf.Monitor, print func(bpf.Sample) error) error {
	for printed := 0; w.count == 0 || printed < w.count; {
		if ctx.Err() != nil {
			return nil
		}

		m.SetDeadline(time.Now().Add(time.Second)) // to check ctx and the programs

		s, err := m.Read()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			if m.Stale() {
				return errors.New("the agent has attached other programs, or none; start the monitor again")
			}

			continue
		}

		if err != nil {
			return fmt.Errorf("read decisions: %w", err)
		}

		if err := print(s); err != nil {
			return err
		}

		printed++
	}

	return nil
}

// printer returns a function that prints a sample, and a function that ends the output. Only -json
// uses the names.
func (w *watch) printer(
	ctx context.Context,
	stdout io.Writer,
	n *names,
) (print func(bpf.Sample) error, done func() error, err error) {
	if w.pcap != "" {
		return w.capturePrinter(stdout)
	}

	print = func(s bpf.Sample) error { return printLine(stdout, s) }
	if w.json {
		print = jsonPrinter(ctx, stdout, n)
	}

	return print, func() error { return nil }, nil
}

// capturePrinter writes the frames to the file of -pcap.
func (w *watch) capturePrinter(stdout io.Writer) (print func(bpf.Sample) error, done func() error, err error) {
	out, done := stdout, func() error { return nil }

	if w.pcap != "-" {
		file, err := os.OpenFile(w.pcap, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
		if err != nil {
			return nil, nil, fmt.Errorf("write capture: %w", err)
		}

		out, done = file, file.Close
	}

	capture, err := frame.NewWriter(out, "gateway", bpf.Snap+tagLen)
	if err != nil {
		return nil, nil, errors.Join(err, done())
	}

	return func(s bpf.Sample) error {
		whole, length := tagged(s)
		comment := fmt.Sprintf("%s: %s, from %s", s.Verdict, s.Reason, originNames[s.From])

		return capture.Write(s.Time, whole, length, comment)
	}, done, nil
}

func jsonPrinter(ctx context.Context, stdout io.Writer, n *names) func(bpf.Sample) error {
	encoder := json.NewEncoder(stdout)
	encoder.SetEscapeHTML(false)

	return func(s bpf.Sample) error {
		d, whole := decisionOf(s)
		n.fill(ctx, d.From, &d.packetFields, verdict.Parse(whole).IP)

		return encoder.Encode(d)
	}
}

func printLine(stdout io.Writer, s bpf.Sample) error {
	d, whole := decisionOf(s)

	// Describe ends with the length of the captured part, which may be less than that of the packet.
	packet := frame.Describe(whole)
	if i := strings.LastIndex(packet, ", "); i >= 0 {
		packet = packet[:i]
	}

	_, err := fmt.Fprintf(stdout, "%s  from %-4s  %-4s  %-18s  %5d  %s\n",
		d.Time.Format("15:04:05.000000"), d.From, d.Verdict, d.Reason, d.Length, packet)

	return err
}

// decisionOf returns the frame and the decision about it, without the names of pod and Service.
func decisionOf(s bpf.Sample) (d decision, whole []byte) {
	whole, length := tagged(s)

	return decision{
		Time:         s.Time,
		packetFields: fieldsOf(whole),
		outcome: outcome{
			From:      originNames[s.From],
			Direction: s.Direction,
			Verdict:   s.Verdict,
			Reason:    s.Reason,
			Length:    length,
		},
	}, whole
}

// tagLen is the length of a VLAN tag.
const tagLen = 4

// macsLen is the length of both MAC addresses of a frame. A VLAN tag follows them.
const macsLen = 12

// tagged returns the frame and its length with the VLAN tag that the kernel removed on reception.
func tagged(s bpf.Sample) (whole []byte, length int) {
	if s.TPID == 0 || len(s.Frame) < macsLen {
		return s.Frame, s.Len
	}

	tag := []byte{byte(s.TPID >> 8), byte(s.TPID), byte(s.TCI >> 8), byte(s.TCI)}

	return slices.Concat(s.Frame[:macsLen], tag, s.Frame[macsLen:]), s.Len + tagLen
}

// options checks the flags and converts them.
func (w *watch) options() (bpf.MonitorOptions, error) {
	o := bpf.MonitorOptions{Port: uint16(w.port), Rate: uint32(w.rate)}
	if w.port < 0 || w.port > 65535 {
		return o, fmt.Errorf("-port %d: want 1..65535", w.port)
	}

	if w.rate < 1 || w.rate > 1e6 {
		return o, fmt.Errorf("-rate %d: want 1..1000000", w.rate)
	}

	var err error
	if o.Addrs, err = prefixOf(w.address); err != nil {
		return o, err
	}

	if w.protocol != "" {
		// Protocol has the same name for ICMP of both IP families.
		name, isV6 := w.protocol, w.protocol == "icmp6"
		if isV6 {
			name = "icmp"
		}

		p, err := frame.Protocol(name, isV6)
		if err != nil {
			return o, fmt.Errorf("-protocol: %w", err)
		}

		o.Proto = uint8(p)
	}

	known := bpf.Reasons()

	reasons, err := knownWords("-reason", w.reasons, known, func(c bpf.Counter) string { return c.Reason })
	if err != nil {
		return o, err
	}

	verdicts, err := knownWords("-verdict", w.verdicts, known, func(c bpf.Counter) string { return c.Verdict })
	if err != nil {
		return o, err
	}

	o.Want = func(c bpf.Counter) bool {
		return (len(reasons) == 0 || slices.Contains(reasons, c.Reason)) &&
			(len(verdicts) == 0 || slices.Contains(verdicts, c.Verdict))
	}
	if !slices.ContainsFunc(known, o.Want) {
		return o, fmt.Errorf("-reason %s never has -verdict %s", w.reasons, w.verdicts)
	}

	return o, nil
}

// prefixOf parses an address or a prefix. It returns an invalid prefix for "".
func prefixOf(s string) (netip.Prefix, error) {
	if s == "" {
		return netip.Prefix{}, nil
	}

	if a, err := netip.ParseAddr(s); err == nil {
		return netip.PrefixFrom(a.Unmap().WithZone(""), a.Unmap().BitLen()), nil
	}

	p, err := netip.ParsePrefix(s)
	if err != nil {
		return p, fmt.Errorf("-address %q is neither an address nor a prefix", s)
	}

	return p, nil
}

// knownWords splits the list of a flag and checks that each word is that of a known counter. wordOf
// returns a counter's word.
func knownWords(flag, list string, known []bpf.Counter, wordOf func(bpf.Counter) string) ([]string, error) {
	if list == "" {
		return nil, nil
	}

	words := strings.Split(list, ",")
	for _, word := range words {
		if !slices.ContainsFunc(known, func(c bpf.Counter) bool { return wordOf(c) == word }) {
			return nil, fmt.Errorf("%s %q is none; 'ovnkube gateway counters -all' lists them", flag, word)
		}
	}

	return words, nil
}
