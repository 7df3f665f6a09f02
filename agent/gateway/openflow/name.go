package openflow

import (
	"fmt"
	"regexp"
	"strconv"
)

// tableNames are what the tables are about.
var tableNames = [...]string{
	"port", "neighbour", "address", "claimed address", "range", "gate", "takeover", "protocol", "exchange", "learned", "answer",
	"ICMPv6", "ARP sender", "ARP sender", "from OVN", "tag", "too big", "guard", "local mode", "size", "out", "from host", "service", "untag", "hairpin", "claim", "sender", "cluster's networks",
}

// TableLonger is the table of which any flow with a match is for packets that are
// longer than the MTU. A trace has it for all, as OVS does not look at lengths there.
const TableLonger = int(tableSize)

// TableName says what a table is about.
func TableName(n int) string {
	if n < 0 || n >= len(tableNames) {
		return fmt.Sprintf("table %d", n)
	}
	return tableNames[n]
}

var toTable = regexp.MustCompile(`resubmit\(,(\d+)\)`)

// DescribeAction spells an action of a flow for people: tables by their names.
func DescribeAction(action string) string {
	return toTable.ReplaceAllStringFunc(action, func(s string) string {
		n, err := strconv.Atoi(toTable.FindStringSubmatch(s)[1])
		if err != nil {
			return s
		}
		return "asks " + TableName(n)
	})
}
