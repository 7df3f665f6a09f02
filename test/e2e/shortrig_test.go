package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/ovn-ebpf/ovn-ebpf/bpf"
	"github.com/ovn-ebpf/ovn-ebpf/test/lab"
	"github.com/ovn-ebpf/ovn-ebpf/test/lab/traffic"
)

// shortcutRig is the cluster with one more pod on node1, which has a NodePort of its own.
type shortcutRig struct {
	*Cluster
	pin      string
	pod      *lab.Pod
	nodePort uint16 // of the pod
	port     uint16 // the last source port of a line
}

// withoutAgent kills node1's agent during f.
func (r *shortcutRig) withoutAgent(t *testing.T, f func()) {
	t.Helper()

	if err := r.StopAgent(1, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := errors.Join(r.StartAgent(t.Context(), 1), r.AwaitAgent(t.Context(), 1)); err != nil {
			t.Error(err)
		}
	}()

	f()
}

// line is a held connection of the pod with the outside host.
type line struct {
	*background
	proto       uint8
	pod, remote netip.AddrPort // the ends
	via         netip.AddrPort // inward: the NodePort
}

// open holds a connection with a source port of its own: of the pod to the outside host, or with inward
// from there to the pod's NodePort.
func (r *shortcutRig) open(t *testing.T, inward, udp, v6 bool, interval time.Duration) *line {
	t.Helper()

	r.port++
	sport := 20000 + r.port
	l := &line{proto: 6, pod: port(choose(v6, r.pod.IP4(), r.pod.IP6()), sport), remote: port(outside(v6), outsidePort)}

	from, to, name := r.pod.Host(), l.remote, "pod to outside"
	if inward {
		l.pod, l.remote = port(l.pod.Addr(), podPort), port(outside(v6), sport)
		l.via = port(r.gateway(1)(v6), r.nodePort)
		from, to, name = "ext", l.via, "outside to NodePort"
	}

	argv := []string{"-interval", interval.String(), "-sport", fmt.Sprint(sport), "-timeout", "1m"}
	if udp {
		l.proto, argv = 17, append(argv, "-udp")
	}

	l.background = r.hold(t, fmt.Sprintf("%s, protocol %d, %s", name, l.proto, Result{V6: v6}.Family()), from, to, time.Hour, argv...)

	return l
}

// openAll holds connections in both directions, of both protocols and families, and waits until they
// have shortcuts.
func (r *shortcutRig) openAll(t *testing.T) (lines []*line) {
	t.Helper()

	for _, v6 := range []bool{false, true} {
		for _, udp := range []bool{false, true} {
			lines = append(lines, r.open(t, false, udp, v6, 100*time.Millisecond), r.open(t, true, udp, v6, 100*time.Millisecond))
		}
	}

	r.short(t, lines...)

	return lines
}

// has reports whether an entry is the line's. The connection tracker may change the port of the end
// that a line does not begin at.
func (l *line) has(s bpf.Shortcut) bool {
	switch {
	case s.Proto != l.proto:
		return false
	case l.via.IsValid() && s.FromWire:
		return s.Src == l.remote && s.Dst == l.via && s.NewDst == l.pod
	case l.via.IsValid():
		return s.NewSrc == l.via && s.NewDst == l.remote && s.Src == l.pod
	case s.FromWire:
		return s.NewDst == l.pod && s.NewSrc == l.remote
	default:
		return s.Src == l.pod && s.Dst == l.remote
	}
}

// entries returns the entries of a line: of the pod's packets, and of those from the wire. If former
// translations have left several, it returns the entry with the longest lease.
func (r *shortcutRig) entries(l *line) (pod, wire *bpf.Shortcut, err error) {
	err = bpf.Shortcuts(r.pin, func(s bpf.Shortcut) {
		if !l.has(s) {
			return
		}

		of := &pod
		if s.FromWire {
			of = &wire
		}

		if *of == nil || s.Left > (*of).Left {
			*of = &s
		}
	})

	return pod, wire, err
}

// leased returns the entry of the line's pod that has a lease. Between two leases no entry has one, and
// one of a former translation cannot be told from the present one.
func (r *shortcutRig) leased(t *testing.T, l *line) (pod *bpf.Shortcut) {
	t.Helper()

	within(t, "a lease of "+l.name, func() (err error) {
		if pod, _, err = r.entries(l); err == nil && (pod == nil || pod.Left <= 0) {
			err = fmt.Errorf("entry %+v", pod)
		}

		return err
	})

	return pod
}

// inUse returns an error unless both directions of the line have shortcuts in use.
func (r *shortcutRig) inUse(l *line) error {
	pod, wire, err := r.entries(l)
	if err != nil {
		return err
	}

	if pod == nil || wire == nil || pod.Left <= 0 || wire.Left <= 0 {
		return fmt.Errorf("entries %+v and %+v", pod, wire)
	}

	return nil
}

// short waits until each line has shortcuts in use.
func (r *shortcutRig) short(t *testing.T, lines ...*line) {
	t.Helper()

	for _, l := range lines {
		within(t, "shortcuts of "+l.name, func() error {
			if l.ended() {
				t.Fatalf("%s: ended: %v: %s%s", l.name, l.failed, l.out.String(), l.err.String())
			}

			return r.inUse(l)
		})
	}
}

// renewed waits until OVS has renewed the shortcuts of each line: none holds by an old lease.
func (r *shortcutRig) renewed(t *testing.T, lines ...*line) {
	t.Helper()

	last, changes := map[*line]uint32{}, map[*line]int{}

	defer func() {
		if t.Failed() {
			r.explainLines(t, lines)
		}
	}()

	within(t, "renewed leases", func() error {
		var errs []error

		for _, l := range lines {
			pod, wire, err := r.entries(l)
			switch seen, known := last[l]; {
			case err != nil:
				return err
			case pod == nil || wire == nil || pod.Left <= 0 || wire.Left <= 0:
				errs = append(errs, fmt.Errorf("%s: entries %+v and %+v", l.name, pod, wire))
				continue
			case known && seen != pod.Renewals: // a new epoch begins at 0
				changes[l]++
			}

			if last[l] = pod.Renewals; changes[l] < 2 {
				errs = append(errs, fmt.Errorf("%s: renewed %d times", l.name, changes[l]))
			}
		}

		return errors.Join(errs...)
	})
}

// explainLines logs the state of lines that are not renewed: all entries, what the connection tracker
// and the datapath have, and what was lost.
func (r *shortcutRig) explainLines(t *testing.T, lines []*line) {
	tracked := r.trackedBy(t, "node1")
	flows := r.execute(t, "node1", "ovs-appctl", "-t", "ovs-vswitchd", "dpctl/dump-flows", "-m")
	t.Logf("datapath flows:\n%s", flows)

	for _, l := range lines {
		if r.inUse(l) == nil {
			continue
		}

		_ = bpf.Shortcuts(r.pin, func(s bpf.Shortcut) {
			if s.Proto == l.proto && slices.Contains([]netip.AddrPort{s.Src, s.Dst, s.NewDst}, l.remote) {
				t.Logf("%s: entry %+v", l.name, s)
			}
		})

		for entry := range strings.Lines(tracked) {
			if strings.Contains(entry, fmt.Sprintf("port=%d", l.remote.Port())) {
				t.Logf("%s: tracked %s", l.name, entry)
			}
		}

		l.stop(t)
		<-l.done
		t.Logf("%s: %s", l.name, l.out.String())
	}
}

// stopped ends the line and returns its report.
func (l *line) stopped(t *testing.T) (report traffic.HoldReport) {
	t.Helper()
	l.stop(t)

	out := l.wait(t)
	if err := json.Unmarshal([]byte(out), &report); err != nil || report.Sent == 0 || report.Error != "" {
		t.Errorf("%s: %v: %s", l.name, err, out)
	}

	t.Logf("%s: sent %d, lost %d, longest gap %d ms", l.name, report.Sent, report.Lost, report.MaxGapMS)

	return report
}

// survived ends the lines. TCP loses nothing; of UDP so much may be lost as passes during the change.
func survived(t *testing.T, lines []*line, changes int) {
	t.Helper()
	lostAtMost(t, lines, 20*changes)
}

// lostAtMost ends the lines. TCP loses nothing, and UDP not more than that.
func lostAtMost(t *testing.T, lines []*line, most int) {
	t.Helper()

	for _, l := range lines {
		if report := l.stopped(t); l.proto == 6 && report.Lost != 0 || report.Lost > most {
			t.Errorf("%s: %+v", l.name, report)
		}
	}
}

// counts returns node1's packets by reason.
func (r *shortcutRig) counts(t *testing.T) map[string]uint64 {
	t.Helper()

	counters, err := bpf.ReadCounters(r.pin)
	if err != nil {
		t.Fatal(err)
	}

	out := map[string]uint64{}
	for _, c := range counters {
		out[c.Reason] += c.Packets
	}

	return out
}

// metric returns the sum of the agent's metric over the series that have the label "short".
func (r *shortcutRig) metric(t *testing.T, name, label string) (sum float64) {
	t.Helper()

	client, err := r.Client("node1")
	if err != nil {
		t.Fatal(err)
	}

	parser := expfmt.NewTextParser(model.UTF8Validation)

	families, err := parser.TextToMetricFamilies(strings.NewReader(fetch(t, client, r.Node(1).MetricsURL)))
	if err != nil {
		t.Fatal(err)
	}

	for _, m := range families[name].GetMetric() {
		for _, l := range m.GetLabel() {
			if l.GetName() == label && l.GetValue() == "short" {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}

	return sum
}

// mirror adds a mirror to node1's br-int until the returned function is called, which may be repeated.
func (r *shortcutRig) mirror(t *testing.T) (cancel func()) {
	t.Helper()

	vsctl := func(argv ...string) {
		r.execute(t, "node1", append([]string{"ovs-vsctl", "--db=" + r.Node(1).OVSDB}, argv...)...)
	}
	vsctl("--", "--id=@m", "create", "Mirror", "name=m", "--", "set", "Bridge", "br-int", "mirrors=@m")

	return sync.OnceFunc(func() { vsctl("clear", "Bridge", "br-int", "mirrors") })
}

// noShortcuts waits until no pod of node1 may have shortcuts.
func (r *shortcutRig) noShortcuts(t *testing.T) {
	t.Helper()
	within(t, "no pod with shortcuts", func() error {
		if c, err := bpf.ReadShortcutCounts(r.pin); err != nil || c.Pods != 0 {
			return fmt.Errorf("%+v: %w", c, err)
		}

		return nil
	})
}

// says waits until ovnkube status contains the text. The agent of an emulated node may take long to answer,
// and the status then lacks its part. The exit status does not matter here.
func (r *shortcutRig) says(t *testing.T, want string) {
	t.Helper()
	within(t, "ovnkube status", func() error {
		out, err := r.Exec(t.Context(), "node1", r.Binary("ovnkube"), "status", "-run-dir", r.Node(1).RunDir)
		if !strings.Contains(string(out), want) {
			return fmt.Errorf("no %q in: %s: %w", want, out, err)
		}

		return nil
	})
}

// hostEnd returns the number of the host's end of a pod's interface.
func (r *shortcutRig) hostEnd(t *testing.T, pod *lab.Pod) int {
	t.Helper()
	out := r.execute(t, pod.Host(), "ip", "-o", "link", "show", "eth0")
	_, rest, _ := strings.Cut(out, "eth0@if")
	number, _, _ := strings.Cut(rest, ":")

	n, err := strconv.Atoi(number)
	if err != nil {
		t.Fatalf("%q: %v", out, err)
	}

	return n
}

// device returns the interface that the line's shortcuts are for.
func (r *shortcutRig) device(t *testing.T, l *line) int {
	t.Helper()

	pod, wire, err := r.entries(l)
	if err != nil || pod == nil || wire == nil || pod.Device != wire.Device {
		t.Fatalf("%s: %+v and %+v (%v)", l.name, pod, wire, err)
	}

	return pod.Device
}
