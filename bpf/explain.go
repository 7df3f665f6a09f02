package bpf

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// ErrNotAttached means that no gateway program is attached.
var ErrNotAttached = errors.New("no gateway program is attached")

// ErrShortWay means that the short path and the full path differ, which is a fault of the programs.
var ErrShortWay = errors.New("the short path decides differently: please report this")

// programsByOrigin are the programs of explain.bpf.c, by the origin of the packets.
var programsByOrigin = [...]string{
	verdict.FromWire: "explain_wire", verdict.FromOVN: "explain_ovn", verdict.FromHost: "explain_host",
}

// globals are the maps with the global variables that the rules read (maps.h). Each load of the
// programs has its own, without pins. The first one has the configuration.
var globals = []string{".data.config", ".data.ports", ".data.hosts", ".data.nets"}

// Explainer reports what the attached programs would do with a packet. It runs the rules of this
// binary on their tables. It does not count, learn or send. Its methods are not safe for concurrent
// use.
type Explainer struct {
	Layout verdict.Layout // of the attached programs
	Config Config         // the programs' configuration at the last ReadConfig

	uplink int // interface index
	coll   *ebpf.Collection
}

// Explanation is the predicted decision for a packet.
type Explanation struct {
	Counter               // the counter of the reason, without counts
	Short   bool          // the short path decided, with the same result
	Steps   []Step        // the lookups of the full path, in order
	At      time.Duration // time of the run, on CLOCK_MONOTONIC
}

// OpenExplainer finds the programs pinned in pinDir and loads the rules of this binary for their
// tables. It returns ErrNotAttached if there are none. It also fails if an agent of another version
// has tables with a different layout.
func OpenExplainer(pinDir string) (*Explainer, error) {
	live, err := findLive(pinDir)
	if err != nil {
		return nil, fmt.Errorf("find gateway programs in %q: %w", pinDir, err)
	}
	defer live.close()

	spec, err := loadExplain()
	if err != nil {
		return nil, fmt.Errorf("read explaining programs: %w", err)
	}

	if err := live.borrow(spec, pinDir); err != nil {
		return nil, err
	}

	coll, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: live.maps})
	if err != nil {
		return nil, fmt.Errorf("load explaining programs: %w", err)
	}

	e := &Explainer{Layout: live.layout, uplink: live.uplink, coll: coll}
	if err := e.ReadConfig(); err != nil {
		return nil, errors.Join(err, e.Close())
	}

	return e, nil
}

// ReadConfig reads the programs' configuration again.
func (e *Explainer) ReadConfig() error {
	var cell gatewayConfig
	if err := e.coll.Maps[globals[0]].Lookup(uint32(0), &cell); err != nil {
		return fmt.Errorf("read gateway config: %w", err)
	}

	e.Config = configOf(cell)
	e.Config.Layout = e.Layout

	var err error
	if e.Config.Internal, e.Config.External, err = readNetworks(e.coll.Maps["networks"]); err != nil {
		return fmt.Errorf("read networks: %w", err)
	}

	return nil
}

// Close releases the second load.
func (e *Explainer) Close() error {
	e.coll.Close()
	return nil
}

// live is the state of the attached programs, which another load of the same rules can share.
type live struct {
	layout verdict.Layout
	uplink int                  // interface index
	maps   map[string]*ebpf.Map // by name in the C source: globals and, after borrow, pinned maps
}

// borrow opens the pinned maps that spec needs, and adds them to l.maps. A missing one is an error.
func (l *live) borrow(spec *ebpf.CollectionSpec, pinDir string) (err error) {
	for name, m := range spec.Maps {
		if m.Pinning != ebpf.PinByName {
			continue
		}

		m.Pinning = ebpf.PinNone // a missing map must not be created

		if l.maps[name], err = ebpf.LoadPinnedMap(filepath.Join(pinDir, name), nil); err != nil {
			return fmt.Errorf("open pinned map %q: %w", name, err)
		}
	}

	return nil
}

func (l *live) close() {
	for _, m := range l.maps {
		m.Close()
	}
}

// findLive finds the attached programs by their pins. It returns ErrNotAttached if none is at the
// uplink's ingress. The caller must close the result.
func findLive(pinDir string) (*live, error) {
	l := &live{maps: make(map[string]*ebpf.Map)}

	for _, h := range allHooks {
		prog, ifindex, err := attachedProgram(pinDir, h)
		if err != nil {
			l.close()
			return nil, err
		}

		if prog == nil {
			continue
		}

		if h.name == uplinkIngress {
			l.uplink = ifindex
		}

		err = l.adoptMaps(h, prog)
		prog.Close()

		if err != nil {
			l.close()
			return nil, err
		}
	}

	if l.uplink == 0 {
		l.close()
		return nil, ErrNotAttached
	}

	return l, nil
}

// attachedProgram returns the program on a hook and its interface, or nil.
func attachedProgram(pinDir string, h hook) (*ebpf.Program, int, error) {
	at, err := pinnedTCX(filepath.Join(pinDir, h.name))
	if err != nil {
		return nil, 0, err
	}

	if at.ifindex != 0 {
		p, err := ebpf.NewProgramFromID(at.prog)
		return p, at.ifindex, err
	}

	pins, err := clsactPins(pinDir, h.name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, nil
	}

	for ifindex, path := range pins {
		p, err := ebpf.LoadPinnedProgram(path, nil)
		return p, ifindex, err
	}

	return nil, 0, err
}

// adoptMaps adds the global data of the hook's program. From the program at uplink ingress it also
// learns the layout.
func (l *live) adoptMaps(h hook, prog *ebpf.Program) error {
	info, err := prog.Info()
	if err != nil {
		return err
	}

	if h.name == uplinkIngress {
		l.layout = layoutOf(info.Name)
	}

	ids, _ := info.MapIDs()
	for _, id := range ids {
		m, err := ebpf.NewMapFromID(id)
		if err != nil {
			return err
		}

		if name := globalOf(m); name == "" || l.maps[name] != nil {
			m.Close()
		} else {
			l.maps[name] = m
		}
	}

	return nil
}

// layoutOf returns the layout, from the name of its program at uplink ingress. The kernel truncates
// names to 15 bytes.
func layoutOf(program string) verdict.Layout {
	for layout, hooks := range layoutHooks {
		if len(program) > 0 && strings.HasPrefix(hooks[0].program, program) {
			return verdict.Layout(layout)
		}
	}

	return verdict.Direct
}

// globalOf returns the name of the global data that m contains, or "". Older kernels strip dots
// from names.
func globalOf(m *ebpf.Map) string {
	info, err := m.Info()
	if err != nil {
		return ""
	}

	for _, name := range globals {
		if strings.ReplaceAll(info.Name, ".", "") == strings.ReplaceAll(name, ".", "") {
			return name
		}
	}

	return ""
}

// skbuff is struct __sk_buff of linux/bpf.h. A test run (BPF_PROG_TEST_RUN) may set only a few of
// its fields, and all others must be zero.
type skbuff struct {
	_       [8]byte
	Mark    uint32
	_       [28]byte
	Ifindex uint32
	_       [4]byte
	CB      [5]uint32
	_       [96]byte
	GSOSegs uint32
	_       [8]byte
	GSOSize uint32
	_       [12]byte
}

// Explain predicts the decision for an Ethernet frame. It first removes the frame's VLAN tag, as
// the kernel does at reception. It must run in the network namespace of the programs. If the short
// and the full path differ, it returns the explanation by the full path, and ErrShortWay.
func (e *Explainer) Explain(dir verdict.Direction, frame []byte) (Explanation, error) {
	if len(frame) < 14 {
		return Explanation{}, fmt.Errorf("explain frame of %d bytes: shorter than an Ethernet header",
			len(frame))
	}

	if err := e.ReadConfig(); err != nil {
		return Explanation{}, err
	}

	proto, tci, frame := untag(frame)
	if len(frame) < 14 {
		return Explanation{}, errors.New("explain frame: truncated VLAN tag: the kernel drops the frame")
	}

	_, err := e.coll.Programs[programsByOrigin[dir]].Run(&ebpf.RunOptions{
		Data:    frame,
		Context: skbuff{Ifindex: uint32(e.uplink), CB: [5]uint32{uint32(bePort(proto)), uint32(tci)}},
	})
	if err != nil {
		return Explanation{}, fmt.Errorf("explain frame: %w", err)
	}

	var run explainDryRun
	if err := e.coll.Maps["explanation"].Lookup(uint32(0), &run); err != nil {
		return Explanation{}, fmt.Errorf("read explanation: %w", err)
	}

	now, err := monotonicNow()
	if err != nil {
		return Explanation{}, err
	}

	out := Explanation{
		Counter: CounterOf(verdict.Reason(run.Reason).Rule()), Short: run.Quick < verdict.ReasonCount, At: now,
	}

	for _, n := range run.Notes[:run.Count] {
		out.Steps = append(out.Steps, e.step(n, now))
	}

	if out.Short && run.Quick != run.Reason {
		return out, fmt.Errorf("%w: %s, the full path %s", ErrShortWay, verdict.Reason(run.Quick), out.Reason)
	}

	return out, nil
}

// untag removes the outer VLAN tag of a frame. It returns the tag's protocol and TCI, or 0 without
// a tag. If the tag is truncated, rest is shorter than an Ethernet header.
func untag(frame []byte) (proto, tci uint16, rest []byte) {
	word := func(i int) uint16 { return uint16(frame[i])<<8 | uint16(frame[i+1]) }

	proto = word(12)
	if proto != unix.ETH_P_8021Q && proto != unix.ETH_P_8021AD {
		return 0, 0, frame
	}

	if len(frame) < 18 {
		return proto, 0, frame[:12]
	}

	return proto, word(14), append(append([]byte(nil), frame[:12]...), frame[16:]...)
}

// ageOf returns the time since ns, which is a time of the programs; 0: none.
func ageOf(now time.Duration, ns uint64) time.Duration {
	if ns == 0 {
		return 0
	}

	return now - time.Duration(ns)
}
