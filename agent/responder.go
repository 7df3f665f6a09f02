package agent

import (
	"net/netip"
	"sync"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/agent/bfd"
	"github.com/ovn-ebpf/ovn-ebpf/agent/management"
)

// responderGrace is the time for which the gateway may be faulty before other nodes switch away.
// Short faults do not justify a switch.
const responderGrace = 5 * time.Second

// responder answers BFD while this node's gateway is usable by nodes without a gateway.
type responder struct {
	*bfd.Responder
	gatewayFault func() string // fault of the gateway, or ""

	mu   sync.Mutex // guards good
	good time.Time  // time of the last check without a fault
}

func (a *agent) newResponder() *responder {
	e := &responder{gatewayFault: func() string { return a.gateway.View().Missing() }, good: time.Now()}
	e.Responder = bfd.New(e.gatewayWorks, a.log)

	return e
}

func (e *responder) gatewayWorks() bool {
	missing := e.gatewayFault()

	e.mu.Lock()
	defer e.mu.Unlock()

	if missing == "" {
		e.good = time.Now()
	}

	return time.Since(e.good) < responderGrace
}

// serveBFD serves BFD at the management port to peers in the join networks. Gateways in local mode
// serve no other nodes.
func (a *agent) serveBFD(subnets, join []netip.Prefix) {
	var own []netip.Addr

	if plan, err := management.PlanFor(subnets, nil); err == nil && !a.cfg.NoGateway && !a.cfg.Local {
		for _, p := range plan.Addresses {
			own = append(own, p.Addr())
		}
	}

	a.responder.Set(own, join)
}
