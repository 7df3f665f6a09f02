package main

import (
	"context"
	"flag"
	"fmt"

	"github.com/ovn-ebpf/ovn-ebpf/agent/status"
	"github.com/ovn-ebpf/ovn-ebpf/cmd/ovnkube/setting"
)

// finder finds the agent of this node for a tool. The run directory is a setting, read from the
// same sources as the agent's. All other paths are in the agent's record there.
type finder struct{ *settings }

// agentInfo is a tool's knowledge of this node's agent.
type agentInfo struct {
	runDir, pinDir string
	record         status.Record
	errRecord      error // why there is no record
}

// newFinder declares the flags of the paths. others are further settings to declare.
func newFinder(f *flag.FlagSet, others ...string) finder {
	s := newSettings("")
	s.declareConfigFile(f)
	s.DeclareSome(f, "run-dir")
	f.Lookup("run-dir").Usage = "`directory` of the agent's state, which has the agent's other paths"
	s.DeclareSome(f, others...)

	return finder{s}
}

// newPinFinder declares --pin-dir as well, for tools that read the programs' maps.
func newPinFinder(f *flag.FlagSet, others ...string) finder {
	pinFinder := newFinder(f, append(others, "pin-dir")...)
	pins := f.Lookup("pin-dir")
	pins.Usage, pins.DefValue = "`directory` of the pinned maps; default: the agent's", ""

	return pinFinder
}

// find reads the settings and the record. A missing record is not an error here, as maps can be
// read without it.
func (s finder) find(ctx context.Context, env *environment) (agentInfo, error) {
	if err := s.resolveForTool(ctx, env); err != nil {
		return agentInfo{}, err
	}

	found := agentInfo{runDir: s.agent.runDir, pinDir: s.agent.pinDir}
	found.record, found.errRecord = status.Read(found.runDir)

	if s.Origin("pin-dir").Source == setting.Default && found.errRecord == nil {
		found.pinDir = found.record.Paths.PinDir
	}

	return found, nil
}

// where returns the paths in which the agent was searched, for errors.
func (found agentInfo) where() string {
	return fmt.Sprintf("--pin-dir is %s, --run-dir is %s", found.pinDir, found.runDir)
}
