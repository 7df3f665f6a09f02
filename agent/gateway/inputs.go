package gateway

import (
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/ovn-ebpf/ovn-ebpf/loop"
)

// Inputs holds what other parts of the agent report to the gateway. Each change triggers the
// gateway's loop. Its methods are safe for concurrent use.
type Inputs struct {
	wake      loop.Signal                            // triggers the gateway's loop
	readPeers func() (published, hosts []netip.Addr) // Source.Peers, or nil
	former    *formerAddresses

	peersChanged atomic.Bool // the result of readPeers differs from facts

	mu    sync.Mutex // guards facts
	facts facts
}

// SetInSync sets whether ovn-controller has the contents of the southbound database. Before that,
// OVN announces no address of another node.
func (i *Inputs) SetInSync(inSync bool) {
	i.set(func(f *facts) { f.inSync = inSync })
}

// SetSubnets sets the node's pod subnets and the join networks of the gateway routers.
func (i *Inputs) SetSubnets(pods, joins []netip.Prefix) {
	i.set(func(f *facts) { f.pods, f.joins = pods, joins })
}

// PeersChanged must be called when the result of Source.Peers changes.
func (i *Inputs) PeersChanged() {
	i.peersChanged.Store(true)
	i.wake.Trigger()
}

// AddFormerAddresses records addresses that the node had under an earlier agent and has lost since.
func (i *Inputs) AddFormerAddresses(addrs []netip.Addr) { i.former.add(addrs) }

// set changes some of the facts.
func (i *Inputs) set(change func(*facts)) {
	i.mu.Lock()
	change(&i.facts)
	i.mu.Unlock()
	i.wake.Trigger()
}

// read returns the facts. Peers change in bursts, so read fetches them here and not at each
// notification.
func (i *Inputs) read() facts {
	var published, hosts []netip.Addr

	readPeers := i.peersChanged.Swap(false) && i.readPeers != nil
	if readPeers {
		published, hosts = i.readPeers() // without the lock
	}

	i.mu.Lock()
	defer i.mu.Unlock()

	if readPeers {
		i.facts.peers, i.facts.hosts = published, hosts
	}

	f := i.facts
	f.former = i.former.list()

	return f
}
