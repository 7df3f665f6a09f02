package openflow

import (
	"fmt"
	"regexp"
	"strconv"
)

// tableNames are the topics of the tables.
var tableNames = [...]string{
	"port", "neighbour", "address", "claimed address", "range", "gate", "takeover", "protocol", "exchange", "learned", "answer",
	"ICMPv6", "ARP sender", "ARP sender", "from OVN", "tag", "too big", "guard", "local mode", "size", "out", "from host", "service", "untag", "hairpin", "claim", "sender", "cluster's networks",
}

// TableLonger is the table in which a flow with a match applies to packets longer than the MTU. A
// trace always contains it, because OVS does not evaluate lengths there.
const TableLonger = int(tableSize)

// TableName returns the topic of a table.
func TableName(n int) string {
	if n < 0 || n >= len(tableNames) {
		return fmt.Sprintf("table %d", n)
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
		return "asks " + TableName(n)
	})
}
