package agent

import (
	"net/netip"
	"sync"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/agent/bfd"
	"github.com/ovn-ebpf/ovn-ebpf/agent/management"
)

// exitGrace is the time for which the gateway may be faulty before other nodes switch away. Short
// faults do not justify a switch.
const exitGrace = 5 * time.Second

// exit answers BFD while this node's gateway is usable by nodes without a gateway.
type exit struct {
	*bfd.Responder
	missing func() string // fault of the gateway, or ""

	mu   sync.Mutex // guards good
	good time.Time  // time of the last check without a fault
}

func (a *agent) newExit() *exit {
	e := &exit{missing: func() string { return a.gateway.View().Missing() }, good: time.Now()}
	e.Responder = bfd.New(e.works, a.log)

	return e
}

func (e *exit) works() bool {
	missing := e.missing()

	e.mu.Lock()
	defer e.mu.Unlock()

	if missing == "" {
		e.good = time.Now()
	}

	return time.Since(e.good) < exitGrace
}

// offerExit serves BFD at the management port to peers in the join networks. Gateways in local mode
// serve no other nodes.
func (a *agent) offerExit(subnets, join []netip.Prefix) {
	var own []netip.Addr

	if plan, err := management.PlanFor(subnets, nil); err == nil && !a.cfg.None && !a.cfg.Local {
		for _, p := range plan.Addresses {
			own = append(own, p.Addr())
		}
	}

	a.exit.Set(own, join)
}
