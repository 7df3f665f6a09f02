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

// Phase is the progress of a move.
type Phase string

// The phases. A move goes from Moving to Done, and a restoration from any phase to Restoring and
// Restored. After a crash a snapshot is Moving or Restoring without a process. Recover completes
// the restoration.
const (
	Moving    Phase = "moving"
	Done      Phase = "done"
	Restoring Phase = "restoring"
	Restored  Phase = "restored"
)

// version is the version of the snapshot's format.
const version = 1

// Snapshot is the state of the NIC before the move, and the progress of the move.
type Snapshot struct {
	Version int
	Boot    string // the boot: interface indexes and messages are void after a reboot
	Phase   Phase
	Asked   bool // an operator requested the move; on a node without a gateway only the operator undoes it
	Time    time.Time
	NIC     string
	Bridge  string
	// BridgeIndex is the interface index of the bridge at the end of the move. It is 0 before the
	// end, and in snapshots of an earlier version of the program.
	BridgeIndex int
	Link        Link
	Gateways    []netip.Addr // next hops through the NIC that answered before the move
	Had         Config
	Sysctls     Sysctls
}

// Link is the NIC itself.
type Link struct {
	Index       int
	MAC         string
	MTU         int
	Promiscuous bool // ovs-vswitchd sets it, and clears it only while running
}

// Config contains the kernel's messages about a device, in the form of message.go and in the order
// of the dumps.
type Config struct {
	Addresses  [][]byte
	Routes     []Route
	Rules      [][]byte
	Neighbours [][]byte
	Text       []string // the addresses, for people
}

// Route is a route through the NIC, and its position in its group. A group has the routes with the same
// table, destination and metric. The kernel prefers the first route of a group.
type Route struct {
	Message []byte
	First   bool // no route of another device precedes it in the group
	Shared  bool // other devices have routes in the group
}

// Sysctls are per-interface settings by the names of readSysctls, such as "ipv4/rp_filter". Bridge
// is nil if the bridge did not exist.
type Sysctls struct {
	NIC, Bridge map[string]string
}

// snapshotPath returns the path of a NIC's snapshot.
func snapshotPath(dir, nic string) string { return filepath.Join(dir, "nic-"+nic+".json") }

// Load returns the snapshot of a moved NIC. It returns fs.ErrNotExist (wrapped) if there is none
// from this boot.
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
		return nil, fmt.Errorf("read snapshot %s: from an earlier boot: %w", path, fs.ErrNotExist)
	}

	return s, nil
}

// save replaces the file. After it returns, the content survives a crash.
func (s *Snapshot) save(dir string) error {
	if err := WriteJSON(snapshotPath(dir, s.NIC), s); err != nil {
		return fmt.Errorf("save snapshot: %w", err)
	}

	return nil
}

// WriteJSON replaces a file and creates its directory. After it returns, the content survives a
// crash. Both are accessible to their owner only.
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

// BootID returns an ID that changes at each boot.
func BootID() string {
	b, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(b))
}

// takeSnapshot reads the NIC. It changes nothing.
func takeSnapshot(nic netlink.Link, bridge string) (*Snapshot, error) {
	a := nic.Attrs()
	s := &Snapshot{
		Version: version,
		Boot:    BootID(),
		Phase:   Moving,
		Time:    time.Now(),
		NIC:     a.Name,
		Bridge:  bridge,
		Link: Link{
			Index:       a.Index,
			MAC:         a.HardwareAddr.String(),
			MTU:         a.MTU,
			Promiscuous: a.RawFlags&unix.IFF_PROMISC != 0,
		},
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

// readConfig reads the addresses, routes, rules and neighbours of a device.
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

		if a.flags&unix.IFA_F_DADFAILED != 0 {
			continue // another host has the address
		}

		c.Addresses = append(c.Addresses, m)
		c.Text = append(c.Text, a.key.String())
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

		isOfOther := func(o route) bool { return o.group == r.group && !o.by(index) }
		c.Routes = append(c.Routes, Route{
			Message: r.msg,
			First:   !slices.ContainsFunc(all[:i], isOfOther),
			Shared:  slices.ContainsFunc(all, isOfOther),
		})
	}

	if c.Rules, err = rulesNaming(name); err != nil {
		return c, err
	}

	c.Neighbours, err = neighsOf(index)

	return c, err
}

// nextHops returns the next hops through the NIC of the host's routes, without duplicates.
func (s *Snapshot) nextHops() (out []netip.Addr) {
	for _, w := range s.Had.Routes {
		r, err := parseRoute(w.Message)
		if err != nil {
			continue
		}

		for i, hop := range r.hops {
			if hop.IsValid() && r.devices[i] == s.Link.Index && !slices.Contains(out, hop) {
				out = append(out, hop)
			}
		}
	}

	return out
}
