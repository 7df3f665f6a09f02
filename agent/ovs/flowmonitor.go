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

// flowRescan is the interval at which all flows are read while the bridge is observed.
const flowRescan = 30 * time.Second

// NotRead is what Observed is called with until all flows are known.
const NotRead = "not read yet"

// FlowWatch follows the flows of a bridge.
type FlowWatch struct {
	RunDir, Bridge string
	// Changed is called after flows have changed, and after the connection to the bridge was made
	// or lost. A change within the first moments of a connection may be missed. A caller that
	// depends on all changes has to look once more a second later.
	Changed func()
	// Observed is called with a flow that looks at single packets, as soon as there is one, with
	// NotRead while flows are not known, and with "" once all are known and none is such a flow.
	// Calls do not overlap. See Observes.
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

// Run follows the flows until ctx ends. It does not return errors: without ovs-vswitchd it tries
// again every second.
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

// readEvents reads events until the connection ends. The first are the present flows.
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

// monitorFlows calls handle with a line for each flow that matches, and then for each of their
// changes, until the connection ends. Other lines are heads of messages, and the first of them is
// the answer to the request. The result is never nil.
func monitorFlows(ctx context.Context, rundir, bridge, match string, handle func(line string)) error {
	out, in, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("monitor flows of %s: %w", bridge, err)
	}
	defer out.Close()

	cmd := exec.CommandContext(ctx, "ovs-ofctl", "--unixctl=none", "monitor", bridgeTarget(rundir, bridge),
		"watch:"+match)
	cmd.Stdout, cmd.Stderr = in, in // present flows go to one, changes to the other
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

// readMonitor handles the output of ovs-ofctl. It returns the last line that is of no message.
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
// endpoint of a Service's client, in OVN's table OFTABLE_CHK_LB_AFFINITY. Only new connections look
// there. Each client with session affinity causes such a flow, and the flow changes nothing for
// connections that exist.
func learnedAffinity(event string) bool {
	return strings.Contains(event, " table=78 idle_timeout=")
}

// handleAnswer notes that changes from here on are events, and triggers a dump. ovs-ofctl still
// sets the format of packet-in messages, and drops the events that arrive before the answer to
// that.
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

// rescan reads all flows at first, and while the bridge is observed: an event of a flow that is
// modified has only its new actions.
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

// dump reads all flows, if it must be known whether the bridge is observed.
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

// observing returns the first of the flows that looks at single packets, or "".
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

// Observes reports whether actions look at single packets of a connection that is allowed already:
// OVN's log(), sample(), a meter, a queue or a stateless ACL. Such packets must not go past OVS.
func Observes(actions string) bool {
	for _, word := range []string{logOpcode, "sample(", "meter:", "set_queue:", statelessBit} {
		if strings.Contains(actions, word) {
			return true
		}
	}

	return false
}

// PacketObserver returns a setting of OVS or of the bridges that looks at single packets, such as a
// mirror, or hands flows to a device, or "".
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
