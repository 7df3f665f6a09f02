package bpf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sys/unix"

	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// ErrNoTCX means that the kernel is older than Linux 6.6.
var ErrNoTCX = errors.New("kernel has no tcx")

// Snap is the maximum number of frame bytes in a Sample.
const Snap = len(monitorSample{}.Frame)

// MonitorOptions selects the decisions to sample.
type MonitorOptions struct {
	Addrs netip.Prefix       // of source or destination; invalid: any
	Port  uint16             // of source or destination; 0: any
	Proto uint8              // 0: any
	Want  func(Counter) bool // by port, direction, verdict and reason; nil: any
	Rate  uint32             // limit of samples per second
}

// Sample is a decision on a packet.
type Sample struct {
	Counter                 // the counter of the reason, without counts
	Time      time.Time     // arrival of the packet
	At        time.Duration // the same on CLOCK_MONOTONIC, like the ages in the tables
	From      verdict.Direction
	Len       int    // of the complete frame, without Tag
	L3        int    // bytes after its Ethernet header; of a GSO packet those of one segment
	TPID, TCI uint16 // of a removed VLAN tag; TPID 0: none
	Frame     []byte // the first Snap bytes, without Tag
}

// monitorProgram returns the sampling program of monitor.bpf.c for a hook of the layout, or "".
func monitorProgram(layout verdict.Layout, h hook) string {
	switch {
	case h.name == uplinkIngress:
		return "monitor_wire"
	case layout == verdict.Bridged && h.name == uplinkEgress:
		return "monitor_out"
	case layout == verdict.Bridged && h.name == bridgeEgress:
		return "monitor_host"
	case layout == verdict.Bridged:
		return "" // its ingress decides nothing
	}

	return "monitor_ovn"
}

// Monitor samples live decisions. It attaches the rules once more, before the deciding programs,
// and runs them on the same packets and tables. It ends with the process, because its links have no
// pins.
type Monitor struct {
	Layout verdict.Layout // of the deciding programs

	coll             *ebpf.Collection
	links            []link.Link
	reader           *ringbuf.Reader
	booted           time.Time // origin of CLOCK_MONOTONIC
	pinDir           string
	decidingPrograms map[string]ebpf.ProgramID // by hook, the programs with these tables
}

// OpenMonitor attaches the sampling programs before those pinned in pinDir. It must run in the
// network namespace of the programs. It returns ErrNotAttached without attached programs, and
// ErrNoTCX if the kernel cannot order programs.
func OpenMonitor(pinDir string, o MonitorOptions) (*Monitor, error) {
	live, err := findLive(pinDir)
	if err != nil {
		return nil, fmt.Errorf("find gateway programs in %q: %w", pinDir, err)
	}
	defer live.close()

	if err := haveTCX(live.uplink); err != nil { // an older kernel may not even load them
		return nil, fmt.Errorf("attach sampling programs: %w", err)
	}

	spec, err := loadMonitor()
	if err != nil {
		return nil, fmt.Errorf("read sampling programs: %w", err)
	}

	if err := live.borrow(spec, pinDir); err != nil {
		return nil, err
	}

	if err := spec.Variables["filter"].Set(o.filter()); err != nil {
		return nil, fmt.Errorf("set filter: %w", err)
	}

	now, err := monotonicNow()
	if err != nil {
		return nil, err
	}

	m := &Monitor{
		Layout:           live.layout,
		booted:           time.Now().Add(-now),
		pinDir:           pinDir,
		decidingPrograms: map[string]ebpf.ProgramID{},
	}

	borrowed := ebpf.CollectionOptions{MapReplacements: live.maps}
	if m.coll, err = ebpf.NewCollectionWithOptions(spec, borrowed); err != nil {
		return nil, fmt.Errorf("load sampling programs: %w", err)
	}

	if m.reader, err = ringbuf.NewReader(m.coll.Maps["samples"]); err != nil {
		return nil, errors.Join(fmt.Errorf("open ring buffer: %w", err), m.Close())
	}

	if err := m.attach(); err != nil {
		return nil, errors.Join(err, m.Close())
	}

	return m, nil
}

// haveTCX queries the programs of an interface. Kernels without tcx do not support the query.
func haveTCX(ifindex int) error {
	_, err := link.QueryPrograms(link.QueryOptions{Target: ifindex, Attach: ebpf.AttachTCXIngress})
	if errors.Is(err, unix.EINVAL) || errors.Is(err, link.ErrNotSupported) {
		return ErrNoTCX
	}

	return err
}

// attach attaches a sampling program before each deciding program, if that is attached.
func (m *Monitor) attach() error {
	for _, h := range layoutHooks[m.Layout] {
		name := monitorProgram(m.Layout, h)
		if name == "" {
			continue
		}

		prog, ifindex, err := attachedProgram(m.pinDir, h)
		if err != nil {
			return fmt.Errorf("find program of %s: %w", h.name, err)
		}

		if prog == nil {
			continue
		}

		id, err := programID(prog)
		prog.Close()

		if err != nil {
			return fmt.Errorf("inspect program of %s: %w", h.name, err)
		}

		m.decidingPrograms[h.name] = id

		l, err := link.AttachTCX(link.TCXOptions{
			Interface: ifindex,
			Program:   m.coll.Programs[name],
			Attach:    h.attachType(),
			Anchor:    link.Head(),
		})
		if err != nil {
			return fmt.Errorf("attach %s to interface %d: %w", name, ifindex, err)
		}

		m.links = append(m.links, l)
	}

	return nil
}

// filter returns o in the format of the programs.
func (o MonitorOptions) filter() monitorSampleFilter {
	f := monitorSampleFilter{Rate: o.Rate, Port: bePort(o.Port), Proto: o.Proto}

	for i := range verdict.ReasonCount {
		if o.Want == nil || o.Want(CounterOf(verdict.Reason(i).Rule())) {
			f.Reasons[i/64] |= 1 << (i % 64)
		}
	}

	if o.Addrs.IsValid() {
		f.Addr.W, f.Mask.W = netmask(o.Addrs)
	}

	if o.Addrs.IsValid() || o.Port != 0 || o.Proto != 0 {
		f.MatchHeaders = 1
	}

	return f
}

// Read waits for a sample. It returns os.ErrDeadlineExceeded at the deadline and os.ErrClosed after
// Close.
func (m *Monitor) Read() (Sample, error) {
	record, err := m.reader.Read()
	if err != nil {
		return Sample{}, err
	}

	var s monitorSample
	if _, err := binary.Decode(record.RawSample, binary.NativeEndian, &s); err != nil {
		return Sample{}, fmt.Errorf("read sample: %w", err)
	}

	return Sample{
		Counter: CounterOf(verdict.Reason(s.Reason).Rule()),
		Time:    m.booted.Add(time.Duration(s.Ns)),
		At:      time.Duration(s.Ns),
		L3:      int(s.L3Len),
		From:    verdict.Direction(s.Direction),
		Len:     int(s.Len),
		TPID:    uint16(s.Tag >> 16),
		TCI:     uint16(s.Tag),
		Frame:   append([]byte(nil), s.Frame[:s.Captured]...),
	}, nil
}

// SetDeadline sets the deadline of Read. The zero Time means none.
func (m *Monitor) SetDeadline(t time.Time) { m.reader.SetDeadline(t) }

// Missed returns the number of wanted packets without a sample since OpenMonitor: above the rate,
// or because Read was too slow.
func (m *Monitor) Missed() (n uint64, err error) {
	if err := m.coll.Variables["missed"].Get(&n); err != nil {
		return 0, fmt.Errorf("read what was left out: %w", err)
	}

	return n, nil
}

// Stale reports whether other programs decide now, for example after a restart of the agent. The
// samples then use the tables of the old programs.
func (m *Monitor) Stale() bool {
	for _, h := range layoutHooks[m.Layout] {
		want, ok := m.decidingPrograms[h.name]
		if !ok {
			continue
		}

		prog, _, err := attachedProgram(m.pinDir, h)
		if prog == nil || err != nil {
			return true
		}

		id, err := programID(prog)
		prog.Close()

		if id != want || err != nil {
			return true
		}
	}

	return false
}

// Close detaches the programs and ends Read.
func (m *Monitor) Close() error {
	var errs []error
	for _, l := range m.links {
		errs = append(errs, l.Close())
	}

	if m.reader != nil {
		errs = append(errs, m.reader.Close())
	}

	m.coll.Close()

	return errors.Join(errs...)
}
