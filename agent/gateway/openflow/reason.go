package openflow

import (
	"fmt"
	"regexp"
	"strconv"

	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// Count describes the packets that flows with one number count. The number is in the cookie of such
// a flow (see ovs.FlowSync). It stands for one reason of the model, or for one of the two
// exceptions below.
type Count struct {
	Number    uint8  // 1 to 255
	Reason    string // the model's name, or that of an exception
	Verdict   verdict.Verdict
	Direction verdict.Direction
	Packet    string // description of the packets
}

// Numbers of decisions for both sides where the model is more precise. The model's reasons have
// numbers from 1.
const (
	errorToBoth = 254
	replyToBoth = 255
)

// Counts returns the counts of all numbers in use, in the order of the model's rules.
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

// number returns the number of a reason. It is never 0, which means that a flow does not count.
func number(r verdict.Reason) uint8 { return uint8(r) + 1 }

// suffix formats the number as the end of a flow, as ovs.FlowSync reads it.
func suffix(number uint8) string {
	if number == 0 {
		return ""
	}

	return fmt.Sprintf(" #%d", number)
}

// decide adds a flow that decides packets, and counts them by the reason (see finalReason).
func (b *builder) decide(r verdict.Reason, t table, priority int, m match, actions ...string) {
	b.count(number(b.finalReason(r)), t, priority, m, actions...)
}

// finalReason returns the reason under which packets with r are counted: NoUplink for those from
// OVN that would not stay on the node.
func (b *builder) finalReason(r verdict.Reason) verdict.Reason {
	leaves := r.Verdict() == verdict.Out && r != verdict.HostOut
	isDropped := r.Verdict() == verdict.Drop && r.Direction() != verdict.FromWire

	if (leaves || isDropped) && !b.isConnected() {
		return verdict.NoUplink
	}

	return r
}

// tableNames are the names of the tables in explanations for users.
var tableNames = [...]string{
	tablePort:     "port",
	tableL2:       "neighbour",
	tableAddress:  "address",
	tableOurs:     "claimed address",
	tableRange:    "range",
	tableGated:    "socket port",
	tableTakeover: "takeover",
	tableRest:     "protocol",
	tableProto:    "exchange",
	tableLearned:  "learned",
	tableAnswer:   "answer",
	tableICMP6:    "ICMPv6",
	tableSame:     "ARP sender",
	tableSameEnd:  "ARP sender",
	tableOVN:      "from OVN",
	tableTagged:   "tag",
	tableTooBig:   "too big",
	tableGuard:    "guard",
	tableLocal:    "local mode",
	tableSize:     "size",
	tableOut:      "out",
	tableHost:     "from host",
	tableService:  "service",
	tableToHost:   "untag",
	tableHairpin:  "hairpin",
	tableClaim:    "claim",
	tableSender:   "sender",
	tableInward:   "cluster's networks",
}

// TableLonger is the table that follows a check of the length (see checkLength). Its flow with a
// match is for packets longer than the MTU. A trace contains both of its flows, because OVS does
// not evaluate lengths in a trace.
const TableLonger = int(tableSize)

// TableName returns the name of a table, or its number if it is not one of this package's.
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
