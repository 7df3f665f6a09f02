package agent

import (
	"net/netip"
	"sync"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/agent/bfd"
	"github.com/ovn-ebpf/ovn-ebpf/agent/management"
)

// exitGrace is how long the gateway may lack something before other nodes are
// told: what is repaired at once is not worth their changing over.
const exitGrace = 5 * time.Second

// exit tells nodes without a gateway whether this one's can be used.
type exit struct {
	*bfd.Responder
	missing func() string // what the gateway lacks

	mu   sync.Mutex // guards good
	good time.Time  // when it lacked nothing last
}

func (a *agent) newExit() *exit {
	e := &exit{missing: func() string { return a.gateway.Missing() }, good: time.Now()}
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

// offerExit answers at the management port whoever watches this gateway from
// the join networks. A gateway in local mode is nobody else's.
func (a *agent) offerExit(subnets, join []netip.Prefix) {
	var own []netip.Addr
	if plan, err := management.PlanFor(subnets, nil); err == nil && !a.cfg.None && !a.cfg.Local {
		for _, p := range plan.Addresses {
			own = append(own, p.Addr())
		}
	}
	a.exit.Set(own, join)
}
