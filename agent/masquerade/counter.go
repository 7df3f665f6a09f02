package masquerade

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

// Source ports of probes. No other packet has them and the address of the node's router.
const (
	probePort  = 1
	tracedPort = 2 // nft monitor trace shows what happens to these probes
)

// enterChain is the first chain of the hook forward.
const enterChain = "enter"

// Names of counters, without the family: each counts a kind of packets in the first or in the last
// chain of the hook.
const (
	probesEnter  = "probes_enter"
	probesLeave  = "probes_leave"
	newLeave     = "new_leave" // packets that begin a connection of a pod
	repliesEnter = "replies_enter"
	repliesLeave = "replies_leave"
)

// probes returns the chains and counters of a Probe. The chain enter is the first one on the hook
// forward, by its priority, and leave is the last one. The chains of other programs are between
// them, so a packet that is counted in enter and not in leave was dropped by one of those. leave
// drops probes: they neither leave the node nor create an entry in conntrack, which confirms
// connections only after this hook.
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

	// The lowest and the highest priority.
	return counters.String() +
		"\tchain " + enterChain + " {\n" + hook + "-2147483648; policy accept;\n" + enter.String() + "\t}\n" +
		"\tchain leave {\n" + hook + "2147483647; policy accept;\n" + leave.String() + "\t}\n"
}

// probeSource returns the address from which probes are sent: that of the node's router in a
// network of pods. It is neither a pod's nor the host's, and rules for the network match it.
func probeSource(pods netip.Prefix) netip.Addr { return pods.Masked().Addr().Next() }

// ErrNoTable is returned (wrapped) by Look while the table of this package is missing.
var ErrNoTable = errors.New("the table does not exist")

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
