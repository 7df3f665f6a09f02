package ovs

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ovn-ebpf/ovn-ebpf/loop"
)

// flowRescan is the interval at which FlowWatch reads all flows while an observing flow exists.
const flowRescan = 30 * time.Second

// NotRead is the argument of FlowWatch.Observed until all flows are known.
const NotRead = "not read yet"

// FlowWatch follows the flows of a bridge, and reports their changes and whether one of them
// observes single packets (Observes). It has two sources: events of ovs-ofctl monitor, and dumps.
// An event of a modified flow has only its new actions. So events show that a flow begins to
// observe, and only a dump shows that none does any more.
type FlowWatch struct {
	RunDir, Bridge string
	// Changed is called after flows have changed, and after the connection to the bridge was made
	// or lost. A change within the first moments of a connection may be missed. A caller that
	// depends on all changes has to look once more a second later.
	Changed func()
	// Observed is called when its argument changes. It is an observing flow as soon as one exists,
	// NotRead while the flows are not known, and "" once all are known and none observes. Calls do
	// not overlap.
	Observed func(flow string)
	// Failed is called with the error when the flows cannot be followed, and with nil once they
	// are.
	Failed func(error)
	Rescan time.Duration // 0: 30 s

	mu        sync.Mutex // guards the fields below, and calls of Observed and Failed
	observed  string     // argument of the last call of Observed
	connected bool       // events arrive
	changes   uint64     // number of calls of set: a dump that began before the last one is outdated
}

// Run follows the flows until ctx ends, and then returns nil. Without ovs-vswitchd it tries again
// every second.
func (w *FlowWatch) Run(ctx context.Context) error {
	w.lost(nil)

	wake := loop.NewSignal()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return w.rescan(ctx, wake) })
	group.Go(func() error {
		for ctx.Err() == nil {
			err := w.readEvents(ctx, wake)
			if ctx.Err() == nil {
				w.lost(err)
			}

			w.Changed()
			loop.Pause(ctx, time.Second)
		}

		return nil
	})

	return group.Wait()
}

// bridgeSocket returns the path of the bridge's OpenFlow socket.
func bridgeSocket(rundir, bridge string) string { return filepath.Join(rundir, bridge+".mgmt") }

// bridgeTarget returns the bridge's OpenFlow socket as ovs-ofctl names it.
func bridgeTarget(rundir, bridge string) string { return "unix:" + bridgeSocket(rundir, bridge) }

// lost notes that flows are not known. err is nil before the first connection.
func (w *FlowWatch) lost(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()

	w.connected = false
	w.set(NotRead)

	if err != nil {
		w.Failed(err)
	}
}

// set calls Observed if its argument changes. mu must be held.
func (w *FlowWatch) set(observed string) {
	w.changes++
	if w.observed != observed {
		w.observed = observed
		w.Observed(observed)
	}
}

// readEvents reads events until the connection ends. The first ones are about the present flows.
func (w *FlowWatch) readEvents(ctx context.Context, wake loop.Signal) error {
	return monitorFlows(ctx, w.RunDir, w.Bridge, "", func(line string) {
		if strings.HasPrefix(line, eventPrefix) {
			w.handleEvent(line)
		} else {
			w.handleAnswer(wake)
		}
	})
}

// eventPrefix begins the line of an event.
const eventPrefix = "event="

// monitorFlows calls handle with each line about a flow that matches, first for all present flows
// and then for each change, until the connection ends. match has the syntax of ovs-ofctl; ""
// matches all flows. Lines about flows begin with eventPrefix:
//
//	event=ADDED table=21 cookie=0x1 udp,metadata=0x5,tp_dst=53 actions=drop
//
// The other lines that handle gets are heads of messages. The first of them is the answer to the
// request. The result is never nil.
func monitorFlows(ctx context.Context, rundir, bridge, match string, handle func(line string)) error {
	out, in, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("monitor flows of %s: %w", bridge, err)
	}
	defer out.Close()

	cmd := exec.CommandContext(ctx, "ovs-ofctl", "--unixctl=none", "monitor", bridgeTarget(rundir, bridge),
		"watch:"+match)
	cmd.Stdout, cmd.Stderr = in, in // ovs-ofctl writes the present flows to one, changes to the other
	err = cmd.Start()

	in.Close()

	if err != nil {
		return fmt.Errorf("monitor flows of %s: %w", bridge, err)
	}

	last := readMonitor(out, handle)
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("monitor flows of %s: %w: %s", bridge, err, last)
	}

	return fmt.Errorf("monitor flows of %s: ovs-ofctl has ended", bridge)
}

// readMonitor calls handle with the lines of ovs-ofctl monitor until its end. It returns the last
// line that belongs to no message, which is the reason of a failure.
func readMonitor(out io.Reader, handle func(line string)) (last string) {
	lines := bufio.NewReader(out)
	for {
		line, err := lines.ReadString('\n')
		line = strings.TrimSpace(line)

		switch {
		case strings.HasPrefix(line, eventPrefix), strings.Contains(line, "FLOW_MONITOR reply"):
			handle(line)
		case line != "":
			last = line
		}

		if err != nil {
			return last
		}
	}
}

// handleEvent handles the event of a flow.
func (w *FlowWatch) handleEvent(line string) {
	if learnedAffinity(line) {
		return
	}

	if Observes(line) && !strings.HasPrefix(line, "event=DELETED") {
		w.mu.Lock()
		w.set(line)
		w.mu.Unlock()
	}

	w.Changed()
}

// learnedAffinity reports whether the event is about a flow with which Open vSwitch remembers the
// endpoint of a Service's client, in OVN's table 78, OFTABLE_CHK_LB_AFFINITY. Only new connections
// look there. Each client with session affinity causes such a flow, and the flow changes nothing
// for connections that exist.
func learnedAffinity(event string) bool {
	return strings.Contains(event, " table=78 idle_timeout=")
}

// handleAnswer handles the head of a message. The first one on a connection means that later
// changes of flows cause events, so it triggers a dump. ovs-ofctl still sets the format of
// packet-in messages, and drops the events that arrive before the answer to that.
func (w *FlowWatch) handleAnswer(wake loop.Signal) {
	w.mu.Lock()
	wasConnected := w.connected
	w.connected = true
	w.mu.Unlock()

	if wasConnected { // the head of a later message
		return
	}

	w.Changed()
	wake.Trigger()
}

// rescan calls dump when wake is triggered and at an interval, until ctx ends.
func (w *FlowWatch) rescan(ctx context.Context, wake loop.Signal) error {
	interval := cmp.Or(w.Rescan, flowRescan)
	wait := interval

	for {
		select {
		case <-ctx.Done():
			return nil
		case <-wake:
		case <-time.After(wait):
		}

		wait = interval
		if w.dump(ctx) != nil {
			wait = min(interval, time.Second)
		}
	}
}

// dump reads all flows and calls Observed, unless it is known from events alone that none observes.
func (w *FlowWatch) dump(ctx context.Context) error {
	w.mu.Lock()
	needed := w.connected && w.observed != ""
	before := w.changes
	w.mu.Unlock()

	if !needed {
		return nil
	}

	flows, err := dumpFlows(ctx, bridgeTarget(w.RunDir, w.Bridge))

	w.mu.Lock()
	defer w.mu.Unlock()

	if ctx.Err() != nil || w.changes != before {
		return ctx.Err() // changes that arrived meanwhile are newer
	}

	w.Failed(err)

	if err != nil {
		return err
	}

	w.set(observing(flows))

	return nil
}

// observing returns the first flow of a dump that observes single packets, or "".
func observing(flows string) string {
	for line := range strings.Lines(flows) {
		if Observes(line) {
			return strings.TrimSpace(line)
		}
	}

	return ""
}

const (
	// logOpcode is ovn-controller's opcode of log() at the start of userdata.
	logOpcode = "userdata=00.00.00.07"
	// statelessBit is set for packets of OVN's allow-stateless ACLs, which no connection tracker
	// sees.
	statelessBit = "load:0x1->NXM_NX_XXREG0[112]"
)

// Observes reports whether the actions of a flow observe single packets of a connection that is
// allowed already: OVN's log(), sample(), a meter, a queue or a stateless ACL. Packets that they
// concern must not take a shortcut past OVS.
func Observes(actions string) bool {
	for _, word := range []string{logOpcode, "sample(", "meter:", "set_queue:", statelessBit} {
		if strings.Contains(actions, word) {
			return true
		}
	}

	return false
}

// PacketObserver returns a setting of OVS or of the bridges that observes single packets, such as
// "a mirror on br-int", or hands flows to a device ("hw-offload"). It returns "" if none is set. It
// skips missing bridges.
func (c *Client) PacketObserver(ctx context.Context, bridges ...string) (string, error) {
	root, err := c.root(ctx)
	if err != nil {
		return "", err
	}

	if root.OtherConfig["hw-offload"] == "true" {
		return "hw-offload", nil
	}

	for _, name := range bridges {
		b, err := c.bridge(ctx, name)
		if err != nil {
			return "", err
		}

		if b == nil {
			continue // not there yet
		}

		observers := map[string]bool{
			"a mirror": len(b.Mirrors) > 0,
			"sFlow":    b.Sflow != nil,
			"NetFlow":  b.Netflow != nil,
			"IPFIX":    b.IPFIX != nil,
		}
		for what, exists := range observers {
			if exists {
				return what + " on " + name, nil
			}
		}
	}

	return "", nil
}
