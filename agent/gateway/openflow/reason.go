package openflow

import (
	"fmt"

	"github.com/ovn-ebpf/ovn-ebpf/agent/gateway/verdict"
)

// Count is what a number in a flow's cookie stands for: whose packets they are that
// the flow has decided, and why.
type Count struct {
	Number    uint8
	Reason    string // as the model has it
	Verdict   verdict.Verdict
	Direction verdict.Direction
	Packet    string // which packets it is about
}

// What flows decide for both where the model knows better.
const (
	errorToBoth = 254
	replyToBoth = 255
)

// Counts returns all that there are, by number.
func Counts() []Count {
	rules := verdict.Rules()
	out := make([]Count, 0, len(rules)+2)
	for _, r := range rules {
		out = append(out, Count{number(r.Reason), r.Name, r.Verdict, r.Direction, r.Packet})
	}
	return append(out,
		Count{Number: errorToBoth, Reason: "icmp_error_both", Verdict: verdict.Both, Packet: "ICMP error: flows cannot see what it quotes"},
		Count{Number: replyToBoth, Reason: "icmp_echo_reply_both", Verdict: verdict.Both, Packet: "ICMP echo reply to the node: flows cannot see its identifier"})
}

// CountOf returns what a reason of the model counts as.
func CountOf(r verdict.Reason) Count { return Counts()[r] }

// number is a reason's: 0 is for none.
func number(r verdict.Reason) uint8 { return uint8(r) + 1 }

// suffix spells it as ovs.FlowSync wants it.
func suffix(number uint8) string {
	if number == 0 {
		return ""
	}
	return fmt.Sprintf(" #%d", number)
}

// decide adds a flow that says whose its packets are, and why. What would leave
// or be dropped has a reason of its own while an interface is missing.
func (b *builder) decide(r verdict.Reason, t table, priority int, m match, actions ...string) {
	b.count(number(b.reason(r)), t, priority, m, actions...)
}

func (b *builder) reason(r verdict.Reason) verdict.Reason {
	out := r.Verdict() == verdict.Out || r.Verdict() == verdict.Drop && r.Direction() != verdict.FromWire
	if out && r != verdict.HostOut && !b.connected() {
		return verdict.NoUplink
	}
	return r
}
