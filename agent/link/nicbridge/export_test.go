package nicbridge

import (
	"errors"
	"testing"

	"github.com/vishvananda/netlink"
)

// Exports for tests outside the package, which may import the agent's gateway.
const (
	NICName    = nicName
	BridgeName = bridgeName
	VictimEnv  = victimEnv
	AskedEnv   = askedEnv
)

// Rig is rig.
type Rig struct {
	*rig
	before []string
}

// NewRig is newRig.
func NewRig(t *testing.T) *Rig { return &Rig{rig: newRig(t)} }

// Dir returns the directory of snapshot and claim.
func (r *Rig) Dir() string { return r.dir }

// OVSDB returns the address of the rig's database, OVSDir its run directory.
func (r *Rig) OVSDB() string  { return r.sw.Address }
func (r *Rig) OVSDir() string { return r.sw.Dir }

// Note records the current state for Same.
func (r *Rig) Note(t *testing.T) { r.before = r.state(t) }

// Same waits until the state equals the recorded one and the host answers.
func (r *Rig) Same(t *testing.T, what string) {
	t.Helper()
	r.same(t, what, r.before)

	if !kernelDatapath() { // an agent that restores does not know of the rig's nftables table
		_ = nft("add table netdev steal; delete table netdev steal")
	}

	r.reachable(t)
}

// Mover is mover.
func (r *Rig) Mover(t *testing.T, what string, kill int) bool {
	t.Helper()
	return r.mover(t, what, kill)
}

// Moved returns an error unless the bridge permanently has the host's addresses.
func (r *Rig) Moved() error {
	s, err := Load(r.dir, nicName)
	switch {
	case err != nil:
		return err
	case s.Phase != Done:
		return errors.New("phase " + string(s.Phase))
	}

	bridge, err := netlink.LinkByName(s.Bridge)
	if err != nil {
		return err
	}

	have, err := addrsOf(bridge.Attrs().Index)
	if err == nil && !s.hasAll(have) {
		err = errors.New("the bridge lacks addresses of the host")
	}

	return err
}

// Stride returns the step between the changes that a fault test covers.
func Stride() int { return stride() }
