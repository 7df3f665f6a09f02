package underlay

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/agent/podnet"
	"github.com/ovn-ebpf/ovn-ebpf/agent/pool"
	"github.com/ovn-ebpf/ovn-ebpf/atomicfile"
	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
)

// ports is the node's pool of ports, and its state on disk. podnet's records have the ports that
// pods have. The state file has the rest: the last valid ConfigMap, and when ports were released.
// ports may be used concurrently.
type ports struct {
	cfg Config
	log *slog.Logger

	mu        sync.Mutex // guards the following fields
	pool      *pool.Pool
	known     annotation.Pool   // merged from the valid ConfigMaps so far; zero before the first one
	tags      []int             // of the last valid ConfigMap
	lastValid pool.State        // the last valid ConfigMap, without released tags
	fault     string            // why the current ConfigMap is not used, or ""
	results   map[string]uint64 // number of calls of take, by result
	early     uint64            // number of ports that were taken before they had rested
}

// Results of take.
const (
	resultTaken     = "taken"
	resultNoPort    = "no_port"
	resultNoPool    = "no_pool"
	resultNoGateway = "no_gateway"
)

// openPorts returns the pool as the last agent has left it, from the records and the state file.
func openPorts(cfg Config, now time.Time, log *slog.Logger) (*ports, error) {
	p := &ports{cfg: cfg, log: log, pool: pool.New(cfg.NodeName, cfg.Rest)}
	return p, p.restore(now)
}

// restore reads the records and the state file. It ignores a damaged state file: the ConfigMap has
// the same ports.
func (p *ports) restore(now time.Time) error {
	p.results = map[string]uint64{}
	for _, r := range []string{resultTaken, resultNoPort, resultNoPool, resultNoGateway} {
		p.results[r] = 0
	}

	recorded, err := podnet.Recorded(p.cfg.records())
	if err != nil {
		return err
	}

	state, err := p.readState()
	if err != nil {
		return err
	}

	var claims []pool.Claim

	for _, pod := range recorded {
		if pod.Tag == 0 {
			continue
		}

		claims = append(claims, claimOf(pod))
	}

	for _, lost := range p.pool.Restore(claims, state.Released, now) {
		p.log.Warn("two interfaces have the same port, the newer one keeps it",
			"tag", lost.Tag, "pod", lost.Owner.Pod, "container", lost.Owner.ContainerID)
	}

	if state.Node == "" {
		return nil
	}

	// DecodeState has checked both texts.
	if p.known, err = annotation.ParsePool(state.Node); err != nil {
		return err
	}

	list, err := annotation.ParsePoolPorts(state.Ports)
	if err != nil {
		return err
	}

	p.setPorts(list, state)

	return nil
}

// readState returns the content of the state file, or the zero State if it cannot be used.
func (p *ports) readState() (pool.State, error) {
	b, err := os.ReadFile(p.cfg.stateFile())
	if errors.Is(err, fs.ErrNotExist) {
		return pool.State{}, nil
	}

	if err != nil {
		return pool.State{}, fmt.Errorf("read state of the pool: %w", err)
	}

	state, err := pool.DecodeState(b)
	if err != nil {
		p.log.Warn("the state of the pool is not used", "file", p.cfg.stateFile(), "error", err)
		return pool.State{}, nil
	}

	return state, nil
}

// claimOf returns the port that a pod has by its record.
func claimOf(pod podnet.Pod) pool.Claim {
	port := annotation.PoolPort{ID: pod.Port, Tag: pod.Tag, MAC: pod.MAC, Addresses: pod.IPs()}
	owner := pool.Owner{ContainerID: pod.ContainerID, Interface: pod.Interface, Pod: pod.Name(), UID: pod.UID}

	return pool.Claim{Tag: pod.Tag, Owner: owner, Port: port}
}

// setPorts makes list the node's ports. text is the valid ConfigMap from which it was read. mu must
// be held.
func (p *ports) setPorts(list []annotation.PoolPort, text pool.State) {
	p.pool.SetPorts(list)
	p.lastValid = pool.State{Node: text.Node, Ports: text.Ports}
	p.tags = p.tags[:0]

	for _, port := range list {
		p.tags = append(p.tags, port.Tag)
	}
}

// update takes over the data of the node's ConfigMap. If the data is not valid, the last valid pool
// stays, and the returned error names line and field.
func (p *ports) update(data map[string]string, now time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()

	text := pool.State{Node: data[annotation.PoolNode], Ports: data[annotation.PoolPorts]}
	if text.Node == p.lastValid.Node && text.Ports == p.lastValid.Ports {
		p.fault = ""
		return nil
	}

	known, list, err := p.parse(text)
	if err != nil {
		p.fault = err.Error()
		return err
	}

	p.known, p.fault = known, ""
	p.setPorts(list, text)

	return p.save(now)
}

// parse returns the content of a ConfigMap, completed by what is known from earlier ones. It
// returns an error if the text is not valid, or is that of another node or VIF.
func (p *ports) parse(text pool.State) (annotation.Pool, []annotation.PoolPort, error) {
	name := p.cfg.configMap()

	next, err := annotation.ParsePool(text.Node)
	if err != nil {
		return next, nil, fmt.Errorf("%s: %w", name, err)
	}

	if next.Node != p.cfg.NodeName {
		return next, nil, fmt.Errorf("%s: %s: node: it is the pool of node %s",
			name, annotation.PoolNode, next.Node)
	}

	if p.cfg.VIF != "" && next.VIF != "" && next.VIF != p.cfg.VIF {
		return next, nil, fmt.Errorf("%s: %s: vif: it is the pool of VIF %s, and this node has VIF %s",
			name, annotation.PoolNode, next.VIF, p.cfg.VIF)
	}

	list, err := annotation.ParsePoolPorts(text.Ports)
	if err != nil {
		return next, nil, fmt.Errorf("%s: %w", name, err)
	}

	// The controller leaves out what it cannot see at the moment.
	next.VIF = cmp.Or(next.VIF, p.known.VIF)
	next.Trunk = cmp.Or(next.Trunk, p.known.Trunk)
	next.Network = cmp.Or(next.Network, p.known.Network)
	next.MTU = cmp.Or(next.MTU, p.known.MTU)

	if len(next.Gateways) == 0 {
		next.Gateways = p.known.Gateways
	}

	return next, list, nil
}

// save writes the state file. mu must be held.
func (p *ports) save(now time.Time) error {
	state := p.lastValid
	if state.Node != "" {
		state.Node = annotation.FormatPool(p.known)
	}

	state.Released = p.pool.Released(now)

	b, err := pool.EncodeState(state)
	if err == nil {
		err = atomicfile.Write(p.cfg.stateFile(), b, 0o600)
	}

	if err != nil {
		return fmt.Errorf("write state of the pool: %w", err)
	}

	return nil
}

// errNoPool is returned while the controller has not published a complete pool.
var errNoPool = errors.New("the controller has not published the node's pool of ports")

// take gives an interface of a pod a port, and returns the interface with the port's configuration.
// The same interface gets the same port again. name is namespace/name of the pod.
func (p *ports) take(a podnet.Attachment, name, uid string, now time.Time) (podnet.Pod, error) {
	p.mu.Lock()
	defer p.mu.Unlock()

	if !p.isComplete() {
		p.results[resultNoPool]++
		return podnet.Pod{}, errNoPool
	}

	owner := pool.Owner{ContainerID: a.ContainerID, Interface: a.Interface, Pod: name, UID: uid}

	port, early, err := p.pool.Take(owner, now)
	if err != nil {
		p.results[resultNoPort]++
		return podnet.Pod{}, err
	}

	pod, err := p.configure(port)
	if err != nil {
		p.results[resultNoGateway]++
		p.pool.Release(a.ContainerID, a.Interface, now)

		return podnet.Pod{}, err
	}

	p.results[resultTaken]++
	if early {
		p.early++
	}

	return pod, nil
}

// configure returns the interface of a pod that has the port. It does not set the fields that
// identify the pod. It returns an error if the pool has no gateway for an address.
func (p *ports) configure(port annotation.PoolPort) (podnet.Pod, error) {
	pod := podnet.Pod{Port: port.ID, Tag: port.Tag, MAC: port.MAC, MTU: p.known.MTU}
	for _, a := range port.Addresses {
		gateway, mac, ok := p.known.Gateway(a)
		if !ok {
			return pod, fmt.Errorf("the pool has no gateway for address %s of port %s", a, port.ID)
		}

		pod.Addresses = append(pod.Addresses, netip.PrefixFrom(a, gateway.Bits()))
		pod.Gateways = append(pod.Gateways, gateway.Addr())
		pod.GatewayMACs = append(pod.GatewayMACs, mac)
	}

	return pod, nil
}

// has reports whether the interface still has the port of its ADD.
func (p *ports) has(added podnet.Pod) bool {
	p.mu.Lock()
	defer p.mu.Unlock()

	port, ok := p.pool.Port(added.ContainerID, added.Interface)

	return ok && port.Tag == added.Tag && slices.Equal(port.MAC, added.MAC)
}

// releaseHost releases the port of the interface whose host's end has the name. It must be called
// after all parts of the interface were removed.
func (p *ports) releaseHost(host string, now time.Time) {
	for _, a := range p.owners() {
		if podnet.HostName(a.ContainerID, a.Interface) == host {
			p.release(a, now)
		}
	}
}

// owners returns the interfaces that have ports.
func (p *ports) owners() []podnet.Attachment {
	p.mu.Lock()
	defer p.mu.Unlock()

	var out []podnet.Attachment
	for _, o := range p.pool.Owners() {
		out = append(out, podnet.Attachment{ContainerID: o.ContainerID, Interface: o.Interface})
	}

	return out
}

// release releases the port of an interface.
func (p *ports) release(a podnet.Attachment, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()

	if _, released := p.pool.Release(a.ContainerID, a.Interface, now); !released {
		return
	}

	if err := p.save(now); err != nil { // only the port's rest may be lost
		p.log.Warn("cannot record that a port was released", "error", err)
	}
}

// sweep releases the ports of ADDs that ended before the interface had a record, and that the
// runtime has not deleted. recorded reports whether an interface has a record. try blocks requests
// for a container until release, and returns false while one is under way.
func (p *ports) sweep(
	recorded func(podnet.Attachment) bool,
	try func(container string) (release func(), ok bool),
) {
	for _, a := range p.owners() {
		unlock, free := try(a.ContainerID)
		if !free {
			continue
		}

		if !recorded(a) {
			p.release(a, time.Now())
		}

		unlock()
	}
}

// isComplete reports whether pods can get ports: the network and its gateways are known.
func (p *ports) isComplete() bool {
	return p.lastValid.Node != "" && p.known.MTU != 0 && len(p.known.Gateways) > 0
}

// missing returns what the pool lacks for new pods, or "".
func (p *ports) missing() string {
	p.mu.Lock()
	defer p.mu.Unlock()

	if p.isComplete() {
		return ""
	}

	if p.fault != "" {
		return "pool: " + p.fault
	}

	return fmt.Sprintf("pool: %s (%s)", errNoPool, p.cfg.configMap())
}

// network returns what the pool needs of the NIC: the tags, and the MTU, which is 0 while unknown.
func (p *ports) network() (tags []int, mtu int) {
	p.mu.Lock()
	defer p.mu.Unlock()

	return slices.Clone(p.tags), p.known.MTU
}

// staleReason returns why the current ConfigMap is not used although an earlier one is, or "".
func (p *ports) staleReason() string {
	p.mu.Lock()
	defer p.mu.Unlock()

	if p.lastValid.Node == "" {
		return "" // reported as missing
	}

	return p.fault
}

// stats are the numbers of the pool for metrics.
type stats struct {
	states  map[pool.PortState]int
	results map[string]uint64 // attempts to take a port
	early   uint64
}

// stats returns the present numbers.
func (p *ports) stats(now time.Time) stats {
	p.mu.Lock()
	defer p.mu.Unlock()

	return stats{p.pool.Counts(now), maps.Clone(p.results), p.early}
}
