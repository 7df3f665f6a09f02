package status

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/atomicfile"
	"github.com/ovn-ebpf/ovn-ebpf/cluster"
)

// Record is the configuration and detected state of the last agent that has started on the node
// since it booted, and the error with which the last one ended. If none has got so far that it knew
// its configuration, the record is partial: it has no Wiring, but the Paths that were configured.
type Record struct {
	Node    string    `json:"node"`
	Started time.Time `json:"started"`
	Wiring  Wiring    `json:"wiring"`
	Paths   Paths     `json:"paths"`
	Ports   struct {
		First     uint16 `json:"first"`
		Last      uint16 `json:"last"`
		NodePorts bool   `json:"nodePorts"`

		FirstNodePort uint16 `json:"firstNodePort,omitempty"` // 0 in records of older agents
		LastNodePort  uint16 `json:"lastNodePort,omitempty"`
	} `json:"snatPorts"` // of the SNAT range, and of node ports

	Failure string `json:"failure,omitempty"` // the error with which an agent has ended since; "": none
}

// Wiring describes how the gateway is connected.
type Wiring struct {
	Layout   string `json:"layout"`
	Backend  string `json:"backend"`
	Mode     string `json:"mode"` // shared or local, none without a gateway, or ModeUnderlay
	Datapath string `json:"datapath"`
	Uplink   string `json:"uplink"`
	Bridge   string `json:"bridge"`
	VLAN     uint16 `json:"vlan,omitempty"`   // of the gateway's network
	NoEBPF   string `json:"noEBPF,omitempty"` // why the kernel cannot run eBPF

	Shortcuts   bool   `json:"shortcuts,omitempty"`   // where supported
	NoShortcuts string `json:"noShortcuts,omitempty"` // why they are not supported
}

// Paths are the locations of the node's state.
type Paths struct {
	PinDir     string `json:"pinDir"`
	RunDir     string `json:"runDir,omitempty"` // "" in records of older agents
	OVSDB      string `json:"ovsdb"`
	MetricsTLS bool   `json:"metricsTLS,omitempty"`
	OVSRunDir  string `json:"ovsRunDir"`
	OVNRunDir  string `json:"ovnRunDir"`
	Metrics    string `json:"metrics,omitempty"` // host:port; "": not served
	CNISocket  string `json:"cniSocket"`
	ConfList   string `json:"confList,omitempty"` // "": not written
}

// fileName is the name of the record in the run directory.
const fileName = "agent.json"

// ErrNone is returned (wrapped) when no agent has run since the last boot.
var ErrNone = errors.New("no agent has run on this node since it booted")

// Write writes r to the run directory dir.
func Write(dir string, r Record) error {
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}

	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("record the agent's start: %w", err)
	}

	if err := atomicfile.Write(filepath.Join(dir, fileName), append(b, '\n'), 0o644); err != nil {
		return fmt.Errorf("record the agent's start: %w", err)
	}

	return nil
}

// Read returns the record in the run directory. It returns ErrNone (wrapped) without one.
func Read(dir string) (Record, error) {
	var r Record

	path := filepath.Join(dir, fileName)

	b, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return r, fmt.Errorf("%w (no %s)", ErrNone, path)
	}

	if err != nil {
		return r, fmt.Errorf("read the agent's record: %w", err)
	}

	if err := json.Unmarshal(b, &r); err != nil {
		return r, fmt.Errorf("read the agent's record %s: %w", path, err)
	}

	return r, nil
}

// Complete adds the Failure of r to the record in the directory. Without a record, it writes r. It
// is for agents that have no configuration yet.
func Complete(dir string, r Record) error {
	existing, err := Read(dir)
	switch {
	case errors.Is(err, ErrNone):
		return Write(dir, r)
	case err != nil:
		return err
	}

	existing.Failure = r.Failure

	return Write(dir, existing)
}

// Remove removes the record, if it exists.
func Remove(dir string) error {
	if err := os.Remove(filepath.Join(dir, fileName)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove the agent's record: %w", err)
	}

	return nil
}

// ModeUnderlay is the Mode of a node in underlay mode. It has no gateway, so nothing else of Wiring
// is set.
const ModeUnderlay = "underlay"

// Underlay reports whether the node is in underlay mode.
func (r Record) Underlay() bool { return r.Wiring.Mode == ModeUnderlay }

// CheckMode returns an error if the last agent of the node ran in the other mode, overlay or
// underlay, and has left its programs and pods. inUnderlay is the mode of the agent that starts.
func CheckMode(dir string, inUnderlay bool) error {
	r, err := Read(dir)
	if err != nil || r.partial() || r.Underlay() == inUnderlay {
		return nil //nolint:nilerror // a record that cannot be read must not keep an agent from starting
	}

	lastMode, newMode := "overlay", ModeUnderlay
	if r.Underlay() {
		lastMode, newMode = newMode, lastMode
	}

	return fmt.Errorf("start in %s mode: the node is in %s mode: first run 'ovnkube agent --cleanup' there, which removes its pods' interfaces",
		newMode, lastMode)
}

// IsUnderlay reports whether the last agent of the node ran in underlay mode. It returns ErrNone
// (wrapped) if none has left anything.
func IsUnderlay(dir string) (bool, error) {
	r, err := Read(dir)
	if err == nil && r.partial() {
		err = fmt.Errorf("%w (incomplete)", ErrNone)
	}

	return r.Underlay(), err
}

// ports returns the SNAT range.
func (r Record) ports() cluster.PortRange {
	return cluster.PortRange{First: r.Ports.First, Last: r.Ports.Last}
}

// reserved returns the ports that the host must not choose for its own connections.
func (r Record) reserved() []cluster.PortRange {
	out := []cluster.PortRange{r.ports()}
	if r.Ports.NodePorts && r.Ports.FirstNodePort != 0 {
		out = append(out, cluster.PortRange{First: r.Ports.FirstNodePort, Last: r.Ports.LastNodePort})
	}

	return out
}

// partial reports whether the agent's configuration is not known: see Record.
func (r Record) partial() bool { return r.Wiring.Mode == "" }

// hasNoGateway reports whether the uplink carries nothing of ovn-ebpf.
func (r Record) hasNoGateway() bool { return r.Wiring.Mode == "none" }

// local reports whether the host forwards what pods send to other networks.
func (r Record) local() bool { return r.Wiring.Mode == "local" }
