package agent

import (
	"net/netip"
	"sync"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/agent/bfd"
	"github.com/ovn-ebpf/ovn-ebpf/agent/management"
)

// responderGrace is the time for which the gateway may be faulty before nodes without a gateway
// switch to another gateway. Short faults do not justify a switch.
const responderGrace = 5 * time.Second

// responder answers BFD of nodes without a gateway. Its sessions are up while those nodes can use
// this node's gateway.
type responder struct {
	*bfd.Responder
	gatewayFault func() string // fault of the gateway, or ""

	mu       sync.Mutex // guards lastGood
	lastGood time.Time  // time of the last check without a fault; initially the start
}

func (a *agent) newResponder() *responder {
	r := &responder{gatewayFault: func() string { return a.gateway.View().Missing() }, lastGood: time.Now()}
	r.Responder = bfd.New(r.gatewayWorks, a.log)

	return r
}

// gatewayWorks reports whether the gateway had no fault within responderGrace.
func (r *responder) gatewayWorks() bool {
	fault := r.gatewayFault()

	r.mu.Lock()
	defer r.mu.Unlock()

	if fault == "" {
		r.lastGood = time.Now()
	}

	return time.Since(r.lastGood) < responderGrace
}

// serveBFD serves BFD at the management port to peers in the join networks. Gateways in local mode
// serve no other nodes.
func (a *agent) serveBFD(subnets, join []netip.Prefix) {
	var local []netip.Addr // none: BFD is not served

	if plan, err := management.PlanFor(subnets, nil); err == nil && !a.cfg.NoGateway && !a.cfg.Local {
		for _, p := range plan.Addresses {
			local = append(local, p.Addr())
		}
	}

	a.responder.Set(local, join)
}
