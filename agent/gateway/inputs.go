package gateway

import (
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/ovn-ebpf/ovn-ebpf/agent/loop"
)

// Inputs are what the gateway learns from other parts of the agent. Each change wakes the
// gateway's loop. Its methods are safe for concurrent use.
type Inputs struct {
	wake      loop.Signal                        // of the gateway's loop
	readPeers func() (known, hosts []netip.Addr) // Source.Peers, nil: there are none
	former    *former
	stale     atomic.Bool // readPeers returns something else

	mu    sync.Mutex // guards facts
	facts facts
}

// SetInSync sets whether ovn-controller has the southbound database's contents. Until then OVN
// announces no address that is not this node's.
func (i *Inputs) SetInSync(is bool) {
	i.set(func(f *facts) { f.inSync = is })
}

// SetSubnets sets the node's pod subnets and the networks of the gateway routers.
func (i *Inputs) SetSubnets(pods, joins []netip.Prefix) {
	i.set(func(f *facts) { f.pods, f.joins = pods, joins })
}

// PeersChanged must be called when Source.Peers returns something else.
func (i *Inputs) PeersChanged() {
	i.stale.Store(true)
	i.wake.Trigger()
}

// Forget notes addresses that were the node's under an earlier agent and are not any more.
func (i *Inputs) Forget(addrs []netip.Addr) { i.former.add(addrs) }

func (i *Inputs) set(change func(*facts)) {
	i.mu.Lock()
	change(&i.facts)
	i.mu.Unlock()
	i.wake.Trigger()
}

// read returns the facts. Changes of peers come in bursts, so they are read here and not when
// they are announced.
func (i *Inputs) read() facts {
	var known, hosts []netip.Addr
	read := i.stale.Swap(false) && i.readPeers != nil
	if read {
		known, hosts = i.readPeers()
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if read {
		i.facts.peers, i.facts.hosts = known, hosts
	}
	f := i.facts
	f.former = i.former.list()
	return f
}
