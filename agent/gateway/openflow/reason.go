package openflow

import (
	"fmt"
	"regexp"
	"strconv"

	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// Count is the meaning of a number in a flow's cookie: the verdict and the reason for it.
type Count struct {
	Number    uint8
	Reason    string // as in the model
	Verdict   verdict.Verdict
	Direction verdict.Direction
	Packet    string // description of the packets
}

// Decisions for both sides where the model is more precise.
const (
	errorToBoth = 254
	replyToBoth = 255
)

// Counts returns all counts.
func Counts() []Count {
	var out []Count
	for _, r := range verdict.Rules() {
		out = append(out, CountOf(r.Reason))
	}

	return append(out,
		Count{
			Number:  errorToBoth,
			Reason:  "icmp_error_both",
			Verdict: verdict.Both,
			Packet:  "ICMP error: flows cannot match the quoted packet",
		},
		Count{
			Number:  replyToBoth,
			Reason:  "icmp_echo_reply_both",
			Verdict: verdict.Both,
			Packet:  "ICMP echo reply to the node: flows cannot match its identifier",
		},
	)
}

// CountOf returns the count of a reason of the model.
func CountOf(r verdict.Reason) Count {
	rule := r.Rule()

	return Count{number(r), rule.Name, rule.Verdict, rule.Direction, rule.Packet}
}

// number returns the number of a reason; 0 means no count.
func number(r verdict.Reason) uint8 { return uint8(r) + 1 }

// suffix formats the number for ovs.FlowSync.
func suffix(number uint8) string {
	if number == 0 {
		return ""
	}

	return fmt.Sprintf(" #%d", number)
}

// decide adds a flow with a verdict and its reason. Packets that would leave or be dropped have
// their own reason while an interface is missing.
func (b *builder) decide(r verdict.Reason, t table, priority int, m match, actions ...string) {
	b.count(number(b.finalReason(r)), t, priority, m, actions...)
}

// finalReason returns the reason under which packets with r are counted: NoUplink for those from
// OVN that would not stay on the node.
func (b *builder) finalReason(r verdict.Reason) verdict.Reason {
	leavesNode := r.Verdict() == verdict.Out || r.Verdict() == verdict.Drop && r.Direction() != verdict.FromWire
	if leavesNode && r != verdict.HostOut && !b.isConnected() {
		return verdict.NoUplink
	}

	return r
}

// tableNames are the topics of the tables.
var tableNames = [...]string{
	"port",
	"neighbour",
	"address",
	"claimed address",
	"range",
	"socket port",
	"takeover",
	"protocol",
	"exchange",
	"learned",
	"answer",
	"ICMPv6",
	"ARP sender",
	"ARP sender",
	"from OVN",
	"tag",
	"too big",
	"guard",
	"local mode",
	"size",
	"out",
	"from host",
	"service",
	"untag",
	"hairpin",
	"claim",
	"sender",
	"cluster's networks",
}

// TableLonger is the table in which a flow with a match applies to packets longer than the MTU. A
// trace always contains it, because OVS does not evaluate lengths there.
const TableLonger = int(tableSize)

// TableName returns the topic of a table.
func TableName(n int) string {
	if n < 0 || n >= len(tableNames) {
		return strconv.Itoa(n)
	}

	return tableNames[n]
}

var toTable = regexp.MustCompile(`resubmit\(,(\d+)\)`)

// DescribeAction formats an action of a flow for people: tables appear by name.
func DescribeAction(action string) string {
	return toTable.ReplaceAllStringFunc(action, func(s string) string {
		n, err := strconv.Atoi(toTable.FindStringSubmatch(s)[1])
		if err != nil {
			return s
		}

		return "continue in table " + TableName(n)
	})
}
