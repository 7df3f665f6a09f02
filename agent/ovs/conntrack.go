package ovs

import (
	"context"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// TrackedConnection is a connection in the datapath's connection tracker.
type TrackedConnection struct {
	Proto           uint8  // IP protocol, never 0
	Zone            uint16 // conntrack zone
	Mark            uint32 // ct_mark
	Original, Reply Tuple
	Opening         bool // TCP without an answer to the first SYN
}

// Tuple is source and destination of the packets of one direction. Protocols without ports have
// port 0.
type Tuple struct{ Src, Dst netip.AddrPort }

// Conntrack returns the connections of every zone of the datapath. With the kernel datapath this
// includes those of the host. It queries ovs-vswitchd through run directory rundir. It skips lines
// that it cannot parse.
func Conntrack(ctx context.Context, rundir string) ([]TrackedConnection, error) {
	out, err := askConntrack(ctx, rundir, "dpctl/dump-conntrack", "-m")
	if err != nil {
		return nil, err
	}

	var list []TrackedConnection

	for line := range strings.Lines(out) {
		if t, ok := parseTracked(strings.TrimSpace(line)); ok {
			list = append(list, t)
		}
	}

	return list, nil
}

// ConntrackCount returns the number of connections in the userspace datapath. The kernel datapath
// does not report it. Without a datapath, as before the first bridge, there are none.
func ConntrackCount(ctx context.Context, rundir string) (int, error) {
	out, err := askConntrack(ctx, rundir, "dpctl/ct-get-nconns")
	if err != nil && strings.Contains(err.Error(), "no datapaths exist") {
		return 0, nil
	}

	if err != nil {
		return 0, err
	}

	return parseCount(out)
}

// parseCount reads the reply of dpctl/ct-get-nconns.
func parseCount(out string) (int, error) {
	n, err := strconv.Atoi(strings.TrimSpace(out))
	if err != nil {
		return 0, fmt.Errorf("read connection tracker: parse count %q: %w", out, err)
	}

	return n, nil
}

// ForgetAddress deletes the datapath's connections to the address, and those whose replies go to
// it, in all zones. rundir is the run directory of ovs-vswitchd.
func ForgetAddress(ctx context.Context, rundir string, a netip.Addr) error {
	to := "ct_nw_dst=" + a.String()
	if a.Is6() {
		to = "ct_ipv6_dst=" + a.String()
	}

	// dpctl/flush-conntrack matches its first argument with the original direction, and its second
	// one with the reply direction.
	for _, tuples := range [][]string{{to}, {"", to}} {
		command := append([]string{"dpctl/flush-conntrack"}, tuples...)
		if _, err := askConntrack(ctx, rundir, command...); err != nil {
			return err
		}
	}

	return nil
}

// DeleteConnections deletes these connections from the datapath and returns their number. It skips
// those that have ended meanwhile.
func DeleteConnections(ctx context.Context, rundir string, list []TrackedConnection) (n int, err error) {
	if len(list) == 0 {
		return 0, nil
	}

	c, err := DialSwitch(ctx, rundir)
	if err != nil {
		return 0, fmt.Errorf("delete connections: %w", err)
	}
	defer c.Close()

	for _, t := range list {
		zone := fmt.Sprintf("zone=%d", t.Zone)

		_, err := c.Call(ctx, "dpctl/flush-conntrack", zone, t.Original.match(t.Proto))
		if err != nil && strings.Contains(err.Error(), unix.ENOENT.Error()) {
			continue
		}

		if err != nil {
			return n, fmt.Errorf("delete connections: %w", err)
		}

		n++
	}

	return n, nil
}

// match returns the tuple in the syntax of dpctl/flush-conntrack. As it is complete, ovs-vswitchd
// deletes one connection by its key, and does not compare all of them.
func (t Tuple) match(proto uint8) string {
	src, dst := "ct_nw_src", "ct_nw_dst"
	if t.Dst.Addr().Is6() {
		src, dst = "ct_ipv6_src", "ct_ipv6_dst"
	}

	return fmt.Sprintf("%s=%s,%s=%s,ct_nw_proto=%d,ct_tp_src=%d,ct_tp_dst=%d",
		src, t.Src.Addr(), dst, t.Dst.Addr(), proto, t.Src.Port(), t.Dst.Port())
}

// askConntrack sends a command about the connection tracker to ovs-vswitchd.
func askConntrack(ctx context.Context, rundir string, command ...string) (string, error) {
	out, err := askSwitch(ctx, rundir, command...)
	if err != nil {
		return "", fmt.Errorf("read connection tracker: %w", err)
	}

	return out, nil
}

// parseTracked reads a line of dpctl/dump-conntrack, like
//
//	tcp,orig=(src=10.0.0.1,dst=10.0.0.2,sport=1,dport=2),reply=(…),zone=5,mark=1,protoinfo=(…)
func parseTracked(line string) (TrackedConnection, bool) {
	name, rest, _ := strings.Cut(line, ",")
	t := TrackedConnection{Proto: protocolOf(name)}

	var ok1, ok2 bool

	t.Original, ok1 = parseTuple(group(rest, "orig=("))
	t.Reply, ok2 = parseTuple(group(rest, "reply=("))
	t.Opening = t.Proto == unix.IPPROTO_TCP && strings.Contains(rest, "state_orig=SYN_SENT")

	for f := range strings.SplitSeq(rest, ",") {
		key, value, _ := strings.Cut(f, "=")

		n, err := strconv.ParseUint(value, 0, 32)
		switch {
		case err != nil:
		case key == "zone":
			t.Zone = uint16(n)
		case key == "mark":
			t.Mark = uint32(n)
		}
	}

	return t, t.Proto != 0 && ok1 && ok2
}

// protocolOf returns the number of a protocol, from its name in OVS or its number as text. It
// returns 0 for other texts.
func protocolOf(name string) uint8 {
	switch name {
	case "icmp":
		return 1
	case "tcp":
		return 6
	case "udp":
		return 17
	case "icmpv6":
		return 58
	case "sctp":
		return 132
	}

	n, _ := strconv.ParseUint(name, 10, 8)

	return uint8(n)
}

// group returns the text between open and the next closing parenthesis.
func group(s, open string) string {
	_, rest, _ := strings.Cut(s, open)
	inside, _, _ := strings.Cut(rest, ")")

	return inside
}

// parseTuple reads "src=10.0.0.1,dst=10.0.0.2,sport=1,dport=2". Other fields are ignored.
func parseTuple(s string) (Tuple, bool) {
	var (
		src, dst         netip.Addr
		srcPort, dstPort uint16
	)

	for f := range strings.SplitSeq(s, ",") {
		key, value, _ := strings.Cut(f, "=")
		switch key {
		case "src", "dst":
			a, err := netip.ParseAddr(value)
			if err != nil {
				return Tuple{}, false
			}

			if key == "src" {
				src = a
			} else {
				dst = a
			}
		case "sport", "dport":
			n, err := strconv.ParseUint(value, 10, 16)
			if err != nil {
				return Tuple{}, false
			}

			if key == "sport" {
				srcPort = uint16(n)
			} else {
				dstPort = uint16(n)
			}
		}
	}

	t := Tuple{Src: netip.AddrPortFrom(src, srcPort), Dst: netip.AddrPortFrom(dst, dstPort)}

	return t, src.IsValid() && dst.IsValid()
}
