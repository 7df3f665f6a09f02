package ovs

import (
	"cmp"
	"context"
	"fmt"
	"hash/maphash"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ovn-ebpf/ovn-ebpf/loop"
)

// Times and limits of AffinityFlows.
const (
	affinityPause   = 50 * time.Millisecond // between two writes, at least
	affinityRetry   = 100 * time.Millisecond
	affinitySettle  = time.Second // without an event, after which the first events are complete
	affinityResync  = 30 * time.Second
	affinityBackoff = time.Second // after a failed write
	affinityTries   = 3           // failures in a row that are a fault
)

// newConnections selects the flows that match new connections only. OVN's learning flows are among
// them. Neither the learned flows nor the agent's are, so they cause no events.
const newConnections = "ct_state=+new+trk"

// AffinityFlows maintains the flows on the integration bridge with which session affinity of
// Services loses no packets.
//
// For each endpoint of a Service with affinity, OVN has a learning flow in one table of each
// logical switch and router. Its only action is learn: it adds a learned flow for the client, which
// selects the same endpoint for the client's next connections, to another table. The packet ends
// there. OVN's program drops the first packet of a client on purpose, because a client repeats it.
// Clients of UDP do not, and Open vSwitch's own connection tracker does not translate the repeated
// packet.
//
// The agent adds two flows to each table with learning flows. The first one looks the packet up in
// the table a second time, so that OVN's flow learns from it, and then passes the packet to the
// next table. Their number depends neither on Services nor on endpoints.
//
// Three more flows, in the table of learned flows, keep connections of one client together.
// Otherwise a second connection could match the datapath flow of the first one, for as long as
// Open vSwitch has not replaced this flow, and would reach another endpoint. So datapath flows of
// clients that are not learned yet match the client's port, too.
//
// learners.wanted has the flows. One goroutine follows OVN's learning flows (follow), another
// writes the agent's (maintainFlows). docs/decisions/0057-first-packet-with-affinity.md has the
// reasons.
type AffinityFlows struct {
	RunDir, Bridge string
	// Changed is called when Fault begins or ceases to return an error.
	Changed func()

	wake loop.Signal // triggers maintainFlows

	mu        sync.Mutex // guards the fields below
	learners  learners
	connected bool      // events arrive
	complete  bool      // the flows that existed at the connection are known
	lastLine  time.Time // when the monitor sent its last line
	failures  int       // in a row
	fault     error
}

// NewAffinityFlows returns AffinityFlows that do not run yet.
func NewAffinityFlows(rundir, bridge string, changed func()) *AffinityFlows {
	return &AffinityFlows{RunDir: rundir, Bridge: bridge, Changed: changed, wake: loop.NewSignal()}
}

// RemoveAffinityFlows removes the agent's flows from the integration bridge. Without the bridge, it
// does nothing.
func RemoveAffinityFlows(ctx context.Context, rundir string) error {
	s := FlowSync{RunDir: rundir, Bridge: IntegrationBridge, OnlyOwn: true}
	if !reachable(ctx, rundir, IntegrationBridge) {
		return nil
	}

	_, err := s.All(ctx, nil)

	return err
}

// Fault returns the error if the flows could not be written several times in a row, otherwise nil.
// A bridge that cannot be reached is not a fault of the flows.
func (a *AffinityFlows) Fault() error {
	a.mu.Lock()
	defer a.mu.Unlock()

	return a.fault
}

// Run maintains the flows until ctx ends, and then returns nil. The flows remain: connections
// continue without the agent.
func (a *AffinityFlows) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return a.follow(ctx) })
	group.Go(func() error { return a.maintainFlows(ctx) })

	return group.Wait()
}

// follow updates learners from events about OVN's flows.
func (a *AffinityFlows) follow(ctx context.Context) error {
	for ctx.Err() == nil {
		a.mu.Lock()
		a.learners, a.connected, a.complete = learners{}, false, false
		a.mu.Unlock()

		err := monitorFlows(ctx, a.RunDir, a.Bridge, newConnections, a.handleLine)
		if ctx.Err() == nil && reachable(ctx, a.RunDir, a.Bridge) {
			a.noteResult(err)
		}

		loop.Pause(ctx, affinityRetry)
	}

	return nil
}

// handleLine handles a line of the monitor.
func (a *AffinityFlows) handleLine(line string) {
	a.mu.Lock()
	defer a.mu.Unlock()

	a.lastLine = time.Now()
	if strings.HasPrefix(line, eventPrefix) {
		if a.learners.event(line) {
			a.wake.Trigger()
		}

		return
	}

	a.complete = a.complete || strings.Contains(line, "(xid=0x0)") // the first change
	if !a.connected {
		a.connected = true
		a.wake.Trigger()
	}
}

// maintainFlows writes the agent's flows when OVN's have changed, and compares them at an interval.
func (a *AffinityFlows) maintainFlows(ctx context.Context) error {
	wait := affinityResync

	for {
		select {
		case <-ctx.Done():
			return nil
		case <-a.wake:
		case <-time.After(wait):
		}

		want, connected, complete := a.wanted()

		wait = affinityResync

		if !connected {
			continue
		}

		if !complete {
			wait = affinitySettle
		}

		err := a.sync(ctx, want, complete)
		if ctx.Err() != nil {
			return nil
		}

		a.noteResult(err)

		if err != nil {
			wait = affinityBackoff
		}

		loop.Pause(ctx, affinityPause)
	}
}

// wanted returns the agent's flows, whether OVN's flows are followed, and whether all of them are
// known.
func (a *AffinityFlows) wanted() (flows []string, connected, complete bool) {
	a.mu.Lock()
	defer a.mu.Unlock()

	a.complete = a.complete || time.Since(a.lastLine) >= affinitySettle

	return a.learners.wanted(), a.connected, a.complete
}

// sync makes the agent's flows exactly want. Before OVN's flows are known completely, it removes
// none.
func (a *AffinityFlows) sync(ctx context.Context, want []string, complete bool) error {
	s := FlowSync{RunDir: a.RunDir, Bridge: a.Bridge, OnlyOwn: true}
	if !complete {
		have, err := s.read(ctx)
		if err != nil {
			return fmt.Errorf("read flows of %s: %w", a.Bridge, err)
		}

		for _, flow := range want {
			key, _, _ := strings.Cut(flow, " actions=")
			delete(have.ours, key)
		}

		for key, actions := range have.ours {
			want = append(want, key+" actions="+actions)
		}
	}

	_, err := s.All(ctx, want)

	return err
}

// noteResult updates the fault after an attempt to follow or to write flows.
func (a *AffinityFlows) noteResult(err error) {
	a.mu.Lock()

	a.failures++
	if err == nil {
		a.failures = 0
	}

	before := a.fault

	switch {
	case err == nil:
		a.fault = nil
	case a.failures >= affinityTries:
		a.fault = err
	}

	changed := (before == nil) != (a.fault == nil)
	a.mu.Unlock()

	if changed {
		a.Changed()
	}
}

// reachable reports whether ovs-vswitchd listens at the bridge's socket.
func reachable(ctx context.Context, rundir, bridge string) bool {
	var d net.Dialer

	conn, err := d.DialContext(ctx, "unix", bridgeSocket(rundir, bridge))
	if err != nil {
		return false
	}

	conn.Close()

	return true
}

// learners are OVN's learning flows. There can be hundreds of thousands, because each node has
// those of all nodes' ports, so learners stores only a hash of each flow.
type learners struct {
	seed   maphash.Seed
	flows  map[uint64]learner // by the hash of table and match
	tables map[logicalTable]learnerCount
}

// logicalTable is a table of a logical switch or router with learning flows.
type logicalTable struct {
	metadata uint64 // of the logical switch or router
	table    uint8
}

// learner is a learning flow of OVN.
type learner struct {
	logicalTable
	learned uint8 // the table of the learned flows
	ends    bool  // learn is the only action, so the packet ends there
}

// learnerCount counts the learning flows of a logicalTable, by learner.ends.
type learnerCount struct {
	ending, others int
	learned        uint8 // the table of the learned flows
}

// event notes an event of the monitor. It reports whether other flows of the agent may be wanted
// now, or may be lost: when ovn-controller connects, it removes all flows, its own first.
func (l *learners) event(line string) bool {
	kind, key, actions := parseEvent(line)

	if l.flows == nil {
		l.seed = maphash.MakeSeed()
		l.flows, l.tables = map[uint64]learner{}, map[logicalTable]learnerCount{}
	}

	hash := maphash.String(l.seed, key)
	before, known := l.flows[hash]
	now, learns := learner{}, false

	if kind != "DELETED" {
		now, learns = parseLearner(key, actions)
	}

	isUnchanged := known == learns && (!known || before == now)
	if isUnchanged {
		return false
	}

	changed := false

	if known {
		delete(l.flows, hash)
		changed = l.count(before, -1)
	}

	if learns {
		l.flows[hash] = now
		changed = l.count(now, 1) || changed
	}

	return changed
}

// count adds n, 1 or -1, to the count of the flow's table, and reports whether the flow is the
// first or was the last of its kind there.
func (l *learners) count(f learner, n int) bool {
	c := l.tables[f.logicalTable]
	c.learned = f.learned

	counter := &c.others
	if f.ends {
		counter = &c.ending
	}

	before := *counter
	*counter += n

	l.tables[f.logicalTable] = c
	if c.ending+c.others == 0 {
		delete(l.tables, f.logicalTable)
	}

	return (before == 0) != (*counter == 0)
}

// Values of register 15, OVN's logical output port, during the second lookup. OVN sets the output
// port in later tables, so it is 0 before.
const (
	lookedUp   = "0x6f766e61" // the second lookup has begun
	notLearned = "0x6f766e62" // no learning flow of OVN matches the packet
)

// keepPorts is an action that makes the datapath flow match addresses and ports: hashing reads
// them. The result, a hash modulo 1, is always 0.
const keepPorts = "multipath(symmetric_l3l4+udp,0,modulo_n,1,0,NXM_NX_REG15[0])"

// wanted returns the agent's flows, in the syntax of FlowSync, in a fixed order.
//
// In a table with learning flows, which have priority 100, the first flow precedes them. It sets
// the register, looks the packet up in the same table and in the table of learned flows, clears the
// register, and continues in the next table. In the second lookup OVN's flow learns from the
// packet, or the second flow marks that none matches.
//
// In the table of learned flows, three flows look at the register. For a packet that was learned
// from, and for one whose client is not learned, they read the ports for the datapath flow.
func (l *learners) wanted() []string {
	var flows []string

	learnedTables := map[uint8]bool{}

	for _, s := range slices.SortedFunc(maps.Keys(l.tables), func(a, b logicalTable) int {
		return cmp.Or(cmp.Compare(a.table, b.table), cmp.Compare(a.metadata, b.metadata))
	}) {
		c := l.tables[s]
		if c.others > 0 || c.ending == 0 { // this OVN passes the packet on itself
			continue
		}

		learnedTables[c.learned] = true
		flows = append(flows,
			fmt.Sprintf("table=%d,priority=101,reg15=0,metadata=%#x actions=load:%s->NXM_NX_REG15[],"+
				"resubmit(,%d),resubmit(,%d),load:0->NXM_NX_REG15[],resubmit(,%d)",
				s.table, s.metadata, lookedUp, s.table, c.learned, s.table+1),
			fmt.Sprintf("table=%d,priority=1,reg15=%s,metadata=%#x actions=load:%s->NXM_NX_REG15[]",
				s.table, lookedUp, s.metadata, notLearned))
	}

	for _, t := range slices.Sorted(maps.Keys(learnedTables)) {
		flows = append(flows,
			// The packet was learned from.
			fmt.Sprintf("table=%d,priority=65535,reg15=%s actions=%s", t, lookedUp, keepPorts),
			fmt.Sprintf("table=%d,priority=65535,reg15=%s actions=drop", t, notLearned),
			// The client is not learned.
			fmt.Sprintf("table=%d,priority=1,reg15=0 actions=%s", t, keepPorts))
	}

	return flows
}

// parseEvent parses the line of an event (monitorFlows). kind is ADDED, MODIFIED or DELETED. key is
// the number of the flow's table, a space, and its match.
func parseEvent(line string) (kind, key, actions string) {
	line, actions, _ = strings.Cut(line, " actions=")

	var table, match string

	for _, field := range strings.Fields(line) {
		name, value, _ := strings.Cut(field, "=")
		switch name {
		case "event":
			kind = value
		case "table":
			table = value
		case "reason", "idle_timeout", "hard_timeout", "cookie":
		default:
			match = field
		}
	}

	return kind, table + " " + match, actions
}

// parseLearner returns the flow with this key of parseEvent and these actions, if it learns
// endpoints. Other flows of OVN learn, too, but without a timeout. An example of the actions:
//
//	learn(table=78,idle_timeout=3,delete_learned,…)
func parseLearner(key, actions string) (learner, bool) {
	rest, ok := strings.CutPrefix(actions, "learn(table=")
	if !ok || !strings.Contains(actions, "idle_timeout=") {
		return learner{}, false
	}

	text, match, _ := strings.Cut(key, " ")

	table, err := strconv.ParseUint(text, 10, 8)
	if err != nil {
		return learner{}, false
	}

	text, _, _ = strings.Cut(rest, ",")

	learned, err := strconv.ParseUint(text, 10, 8)
	if err != nil || learned <= table { // the table of learned flows follows the logical ones
		return learner{}, false
	}

	for field := range strings.SplitSeq(match, ",") {
		text, found := strings.CutPrefix(field, "metadata=")
		if !found {
			continue
		}

		metadata, err := strconv.ParseUint(text, 0, 64)
		ends := strings.IndexByte(actions, ')') == len(actions)-1

		return learner{logicalTable{metadata, uint8(table)}, uint8(learned), ends}, err == nil
	}

	return learner{}, false
}
