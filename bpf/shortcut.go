package bpf

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"path/filepath"
	"slices"
	"time"

	"github.com/cilium/ebpf"
)

const (
	maxSlots        = 0x4000 // MAX_SLOTS in types.h
	maxSlotsPerCPU  = 256    // packets of pods that may be inside OVS at a time
	defaultLease    = time.Second
	defaultCapacity = 131072
	maxShortPods    = 4096 // pods with shortcuts
)

// ShortcutOptions configures shortcuts: established North-South connections of pods past OVS.
// short.h says how they work. The zero value turns them off: no program is loaded for pods, and
// those of the uplink have no code for them.
type ShortcutOptions struct {
	On      bool
	Lease   time.Duration // how long an entry holds without OVS; 0: one second
	Entries int           // capacity, two entries per connection; 0: 131072
}

// shortcutMaps are the maps that are pinned only while shortcuts are on.
var shortcutMaps = []string{
	"shortcuts",
	"shortcut_epoch",
	"shortcut_counts",
	"short_pods",
	"pod_received",
	"slots",
}

// prepareShortcuts sets the sizes and constants for shortcuts in spec. If they are off, their maps
// are as small as possible, and not pinned.
func prepareShortcuts(spec *ebpf.CollectionSpec, opts Options) error {
	o := opts.Shortcuts
	if opts.podProgram() == "" {
		for _, name := range shortcutMaps {
			spec.Maps[name].Pinning, spec.Maps[name].MaxEntries = ebpf.PinNone, 1
		}

		spec.Maps["unanswered"].MaxEntries = 1

		return nil
	}

	if o.Lease == 0 {
		o.Lease = defaultLease
	}

	if o.Entries == 0 {
		o.Entries = defaultCapacity
	}

	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return err
	}

	// a power of two, because the programs mask the number of a slot
	perCPU := maxSlotsPerCPU
	for perCPU > 1 && perCPU*cpus > maxSlots {
		perCPU /= 2
	}

	spec.Maps["shortcuts"].MaxEntries = uint32(o.Entries)
	spec.Maps["pod_received"].MaxEntries = maxShortPods
	spec.Maps["slots"].MaxEntries = uint32(min(perCPU*cpus, maxSlots))
	v := spec.Variables

	return errors.Join(v["shortcuts_on"].Set(uint8(1)), v["lease_ns"].Set(uint64(o.Lease)),
		v["slots_per_cpu"].Set(uint32(perCPU)))
}

// dropShortcuts unpins the state of shortcuts that an earlier load had on. Programs on pods go with
// it.
func dropShortcuts(opts Options) error {
	err := errors.Join(opts.attacher().dropDevices(podHook+"_"), unpinMaps(opts.PinDir, shortcutMaps...))
	if err != nil {
		return fmt.Errorf("turn shortcuts off: %w", err)
	}

	return nil
}

// ErrNoShortcuts means that shortcuts are off on this node.
var ErrNoShortcuts = errors.New("shortcuts are off")

// ForgetShortcuts ends every shortcut at once: each connection goes through OVS again.
func ForgetShortcuts(pinDir string) error {
	m, err := openShortcutMap(pinDir, "shortcut_epoch")
	if err != nil {
		return err
	}
	defer m.Close()

	return raiseEpoch(m)
}

// openShortcutMap opens a pinned map of shortcuts. It returns ErrNoShortcuts if the map is missing.
func openShortcutMap(pinDir, name string) (*ebpf.Map, error) {
	m, err := ebpf.LoadPinnedMap(filepath.Join(pinDir, name), nil)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNoShortcuts
	}

	if err != nil {
		return nil, fmt.Errorf("open pinned map %q: %w", name, err)
	}

	return m, nil
}

func readEpoch(pinDir string) (uint32, error) {
	m, err := openShortcutMap(pinDir, "shortcut_epoch")
	if err != nil {
		return 0, err
	}
	defer m.Close()

	return epochOf(m)
}

func epochOf(m *ebpf.Map) (epoch uint32, err error) {
	if err := m.Lookup(uint32(0), &epoch); err != nil {
		return 0, fmt.Errorf("read epoch of shortcuts: %w", err)
	}

	return epoch, nil
}

// raiseEpoch makes all entries invalid: they have another epoch. Concurrent calls may raise it only
// once, which is enough: each has read the former epoch after its own change of the configuration.
func raiseEpoch(m *ebpf.Map) error {
	epoch, err := epochOf(m)
	if err != nil {
		return err
	}

	if err := m.Put(uint32(0), epoch+1); err != nil {
		return fmt.Errorf("raise epoch of shortcuts: %w", err)
	}

	return nil
}

// ForgetShortcuts is ForgetShortcuts for this load. It does nothing while shortcuts are off.
func (g *Gateway) ForgetShortcuts() error {
	if g.opts.podProgram() == "" {
		return nil
	}

	return raiseEpoch(g.objs.ShortcutEpoch)
}

// DeleteShortcuts deletes the entries of pods' interfaces. After DetachPod no program uses them;
// this makes room for others.
func (g *Gateway) DeleteShortcuts(ifindexes []int) error {
	if len(ifindexes) == 0 || g.opts.podProgram() == "" {
		return nil
	}

	_, err := deleteEntries(g.objs.Shortcuts, func(_ gatewayShortcutKey, s gatewayShortcut) bool {
		return slices.Contains(ifindexes, int(s.Device))
	})
	if err != nil {
		return fmt.Errorf("delete shortcuts of interfaces %v: %w", ifindexes, err)
	}

	return nil
}

// Shortcut is an entry of the table: how the programs rewrite the packets of one direction of a
// connection.
type Shortcut struct {
	FromWire bool // else from the pod
	Proto    uint8
	Src, Dst netip.AddrPort // as the packet arrives
	NewSrc   netip.AddrPort
	NewDst   netip.AddrPort
	Device   int           // the pod's
	Longest  int           // length of IP packets that OVS is known to let through
	Hops     int           // decrement of TTL or hop limit
	Left     time.Duration // until the connection must go through OVS again; 0: not in use
	Renewals uint32
}

// Shortcuts calls f for each entry. Entries of an earlier epoch are not in use.
func Shortcuts(pinDir string, f func(Shortcut)) error {
	m, err := openShortcutMap(pinDir, "shortcuts")
	if err != nil {
		return err
	}
	defer m.Close()

	epoch, err := readEpoch(pinDir)
	if err != nil {
		return err
	}

	now, err := monotonicNow()
	if err != nil {
		return err
	}

	err = eachEntry(m, func(k gatewayShortcutKey, s gatewayShortcut) { f(shortcutOf(k, s, epoch, now)) })
	if err != nil {
		return fmt.Errorf("list shortcuts: %w", err)
	}

	return nil
}

func shortcutOf(k gatewayShortcutKey, s gatewayShortcut, epoch uint32, now time.Duration) Shortcut {
	out := Shortcut{
		FromWire: k.Origin == uint8(gatewayOriginORIGIN_WIRE), Proto: k.Proto,
		Src: addrPort(s.WasSrc.W, k.Sport), Dst: addrPort(s.WasDst.W, k.Dport),
		NewSrc: addrPort(s.Src.W, s.Sport), NewDst: addrPort(s.Dst.W, s.Dport),
		Device: int(s.Device), Longest: int(s.Longest), Hops: int(s.Hops), Renewals: s.Renewals,
	}
	if s.Until != 0 && s.Epoch == epoch {
		out.Left = max(time.Duration(s.Until)-now, 0)
	}

	return out
}

// ShortcutCounts are counts since the state was first pinned.
type ShortcutCounts struct {
	Created uint64 // entries
	Renewed uint64 // connections, by a packet of each direction through OVS
	Unseen  uint64 // packets of pods that found no slot: they went through OVS unobserved
	// Mismatched counts entries in use that OVS contradicted when their connection went through it
	// again, without a change of flows or configuration since they were made.
	Mismatched uint64
	Epoch      uint32
	Entries    int
	Pods       int // devices whose packets may become shortcuts
}

// Evicted returns about how many entries were evicted to make room for others. The kernel does not
// count them. The result may fall by a few between two calls, because entries are created while
// they are counted.
func (c ShortcutCounts) Evicted() uint64 { return c.Created - min(c.Created, uint64(c.Entries)) }

// ReadShortcutCounts reads the counts from the maps pinned in pinDir. It returns ErrNoShortcuts
// while shortcuts are off.
func ReadShortcutCounts(pinDir string) (ShortcutCounts, error) {
	var out ShortcutCounts

	m, err := openShortcutMap(pinDir, "shortcut_counts")
	if err != nil {
		return out, err
	}
	defer m.Close()

	var cpus []gatewayShortcutCounts
	if err := m.Lookup(uint32(0), &cpus); err != nil {
		return out, fmt.Errorf("read counts of shortcuts: %w", err)
	}

	for _, c := range cpus {
		out.Created += c.Created
		out.Renewed += c.Renewed
		out.Unseen += c.Unseen
		out.Mismatched += c.Mismatched
	}

	if out.Epoch, err = readEpoch(pinDir); err != nil {
		return out, err
	}

	pods, err := openShortcutMap(pinDir, "short_pods")
	if err != nil {
		return out, err
	}
	defer pods.Close()

	err = errors.Join(
		eachEntry(pods, func(_ uint32, p gatewayPodPort) {
			if p.Mtu != 0 {
				out.Pods++
			}
		}),
		Shortcuts(pinDir, func(Shortcut) { out.Entries++ }),
	)

	return out, err
}
