package nicbridge

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/ovn-ebpf/ovn-ebpf/atomicfile"
)

// Phase says how far a move is.
type Phase string

// The phases. A snapshot that is "moving" or "restoring" without a process
// that does it is what a crash leaves: Recover ends it.
const (
	Moving    Phase = "moving"
	Done      Phase = "done"
	Restoring Phase = "restoring"
	Restored  Phase = "restored"
)

const version = 1

// Snapshot is the NIC before the move, and what became of it.
type Snapshot struct {
	Version  int
	Boot     string // the boot it is of: interface indexes and messages mean nothing in another
	Phase    Phase
	Asked    bool // by an operator, who alone undoes the move on a node without a gateway
	Time     time.Time
	NIC      string
	Bridge   string
	Link     Link
	Gateways []netip.Addr // next hops by the NIC that answered before the move
	Had      Config
	Sysctls  Sysctls
}

// Link is the NIC itself.
type Link struct {
	Index       int
	MAC         string
	MTU         int
	Promiscuous bool // vswitchd switches it on, and off only if it lives
}

// Config is the kernel's messages about the NIC.
type Config struct {
	Addresses  [][]byte
	Routes     []Route
	Rules      [][]byte
	Neighbours [][]byte
	Text       []string // the addresses, for people
}

// Route is a route by the NIC and its place among routes with the same
// destination and metric.
type Route struct {
	Message []byte
	First   bool // none of another device stands before it
	Shared  bool // there are some of other devices
}

// Sysctls are per-interface settings by path below /proc/sys/net. Bridge is
// nil when there was no such bridge.
type Sysctls struct {
	NIC, Bridge map[string]string
}

func snapshotPath(dir, nic string) string { return filepath.Join(dir, "nic-"+nic+".json") }

// Load returns the snapshot of a NIC that was moved, or fs.ErrNotExist
// (wrapped) if there is none of this boot.
func Load(dir, nic string) (*Snapshot, error) {
	path := snapshotPath(dir, nic)
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read snapshot of %s: %w", nic, err)
	}
	s := &Snapshot{}
	if err := json.Unmarshal(b, s); err != nil {
		return nil, fmt.Errorf("read snapshot %s: %w", path, err)
	}
	if s.Version != version {
		return nil, fmt.Errorf("read snapshot %s: version %d, want %d", path, s.Version, version)
	}
	if s.Boot != BootID() {
		return nil, fmt.Errorf("read snapshot %s: of an earlier boot: %w", path, fs.ErrNotExist)
	}
	return s, nil
}

// save replaces the file; after it returns, the content survives a crash.
func (s *Snapshot) save(dir string) error {
	if err := WriteJSON(snapshotPath(dir, s.NIC), s); err != nil {
		return fmt.Errorf("save snapshot: %w", err)
	}
	return nil
}

// WriteJSON replaces a file, and makes its directory; after it returns, the content
// survives a crash. Both are for their owner alone.
func WriteJSON(path string, v any) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return atomicfile.Write(path, b, 0o600)
}

// BootID is another after each boot.
func BootID() string {
	b, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(b))
}

// take reads the NIC. It changes nothing.
func take(nic netlink.Link, bridge string) (*Snapshot, error) {
	a := nic.Attrs()
	s := &Snapshot{
		Version: version, Boot: BootID(), Phase: Moving, Time: time.Now(),
		NIC: a.Name, Bridge: bridge,
		Link: Link{Index: a.Index, MAC: a.HardwareAddr.String(), MTU: a.MTU, Promiscuous: a.RawFlags&unix.IFF_PROMISC != 0},
	}
	var err error
	if s.Had, err = readConfig(a.Name, a.Index); err != nil {
		return nil, err
	}
	s.Sysctls.NIC = readSysctls(a.Name)
	if _, err := netlink.LinkByName(bridge); err == nil {
		s.Sysctls.Bridge = readSysctls(bridge)
	}
	return s, nil
}

func readConfig(name string, index int) (Config, error) {
	var c Config
	addrs, err := addrsOf(index)
	if err != nil {
		return c, err
	}
	for _, m := range addrs {
		a, err := parseAddr(m)
		if err != nil {
			return c, err
		}
		if a.flags&unix.IFA_F_DADFAILED == 0 { // another host has it
			c.Addresses, c.Text = append(c.Addresses, m), append(c.Text, a.key.String())
		}
	}
	all, err := routes()
	if err != nil {
		return c, err
	}
	for i, r := range all {
		if !r.by(index) || r.automatic() {
			continue
		}
		if r.byObject {
			return c, fmt.Errorf("%s has a route by a nexthop object, which cannot be moved", name)
		}
		other := func(o route) bool { return o.group == r.group && !o.by(index) }
		c.Routes = append(c.Routes, Route{
			Message: r.msg, First: !slices.ContainsFunc(all[:i], other), Shared: slices.ContainsFunc(all, other),
		})
	}
	if c.Rules, err = rulesNaming(name); err != nil {
		return c, err
	}
	c.Neighbours, err = neighsOf(index)
	return c, err
}
